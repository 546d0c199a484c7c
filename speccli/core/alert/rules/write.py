"""The files of `alert rules`: for Prometheus, for its operator, for promtool and for Grafana."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from speccli.core.alert.examine import Terms as Judged
from speccli.core.alert.rules.alerting import alerts, constants
from speccli.core.alert.rules.cases import cases_of
from speccli.core.alert.rules.dashboard import UID, dashboard
from speccli.core.alert.rules.model import Terms
from speccli.core.config import Settings
from speccli.core.errors import UsageError
from speccli.core.open import pricing_of
from speccli.core.sources.promql import RULE_INTERVAL_S, duration
from speccli.core.sources.recorded import recording_rules, rules_text

RECORDING = "recording-rules.yaml"
ALERTING = "alerting-rules.yaml"
TESTS = "rules-test.yaml"
OPERATOR = "prometheus-rule.yaml"
DASHBOARD = "grafana-dashboard.json"
_MARK = "# Written by "


def alerting_rules(terms: Terms) -> dict[str, Any]:
    """The alerting rules file, thresholds as series first."""
    interval = duration(RULE_INTERVAL_S)
    return {
        "groups": [
            {"name": "specctl-thresholds", "rules": constants(terms), "interval": interval},
            {
                "name": "specctl-alerts",
                "rules": [alert.rule() for alert in alerts(terms)],
                "interval": interval,
            },
        ]
    }


def files(
    terms: Terms,
    *,
    made_by: str = "specctl alert rules",
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Name and text of every file.

    Args:
        terms: Thresholds.
        made_by: Who writes them, for their first line.
        namespace: Where the PrometheusRule goes.
        labels: What its operator picks rules by (`ruleSelector`).
    """
    groups = [*recording_rules()["groups"], *alerting_rules(terms)["groups"]]
    meta: dict[str, Any] = {"name": "specctl"}
    if namespace:
        meta["namespace"] = namespace
    meta["labels"] = {"app.kubernetes.io/name": "specctl", **(labels or {})}
    operator = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": meta,
        "spec": {"groups": groups},
    }
    head = f"{_MARK}`{made_by}`; do not edit.\n"
    return {
        RECORDING: rules_text(),
        ALERTING: f"# Alerting rules of specctl. docs/alerting.md.\n{head}"
        + _yaml(alerting_rules(terms)),
        TESTS: f"# promtool test rules {TESTS}\n{head}"
        + _yaml(cases_of(alerts(terms), (RECORDING, ALERTING))),
        OPERATOR: f"# Both rule files, for the Prometheus operator.\n{head}" + _yaml(operator),
        DASHBOARD: json.dumps(dashboard(terms), indent=1) + "\n",
    }


def write(folder: Path, texts: Mapping[str, str], *, force: bool = False) -> list[Path]:
    """Write them; what somebody else wrote is not overwritten.

    Raises:
        UsageError: a file is somebody else's, or the folder cannot be written.
    """
    paths = [folder / name for name in texts]
    try:
        for path in paths:
            if not force and path.exists() and not _ours(path):
                raise UsageError(f"{path} is not of specctl's making", hint="--force overwrites it")
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            path.write_text(texts[path.name], encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    return paths


def terms_of(judged: Judged, settings: Settings) -> Terms:
    """The terms of rules that hold numbers against what checks hold them against."""
    return Terms(judged.thresholds, judged.baseline, pricing_of(settings), judged.require_traffic)


def labels_of(words: Iterable[str]) -> dict[str, str]:
    """`key=value`, each.

    Raises:
        UsageError: not of that form.
    """
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--label {word!r}", hint="write release=kube-prometheus-stack")
        found[key.strip()] = value.strip()
    return found


def _ours(path: Path) -> bool:
    head = path.read_text(encoding="utf-8", errors="replace")
    return _MARK in head[:400] or f'"uid": "{UID}"' in head


def _yaml(value: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, width=100, allow_unicode=True)
    return text
