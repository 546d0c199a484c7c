"""The files of `alert rules`: for Prometheus, for its operator, for promtool and for Grafana."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from speccli.core.alert.examine import Terms as Judged
from speccli.core.alert.rules.alerting import alerts, constants, of_engines
from speccli.core.alert.rules.cases import cases_of, quiet_of
from speccli.core.alert.rules.dashboard import UID, dashboard
from speccli.core.alert.rules.engines import EVERY_S
from speccli.core.alert.rules.left_out import left_out
from speccli.core.alert.rules.model import Alert, Terms
from speccli.core.config import Settings
from speccli.core.errors import UsageError, unwritable
from speccli.core.open import pricing_of
from speccli.core.sources.promql import RULE_INTERVAL_S, duration
from speccli.core.sources.recorded import recording_rules, rules_text

RECORDING = "recording-rules.yaml"
ALERTING = "alerting-rules.yaml"
TESTS = "rules-test.yaml"
TESTS_OF_A_DAY = "rules-test-day.yaml"
OPERATOR = "prometheus-rule.yaml"
DASHBOARD = "grafana-dashboard.json"
_MARK = "# Written by "


def alerting_rules(terms: Terms) -> dict[str, Any]:
    """The alerting rules file, thresholds as series first."""
    often, seldom = _apart(alerts(terms))
    groups = (
        ("specctl-thresholds", constants(terms), RULE_INTERVAL_S),
        ("specctl-alerts", [alert.rule() for alert in often], RULE_INTERVAL_S),
        ("specctl-engines", [*of_engines(terms), *(alert.rule() for alert in seldom)], EVERY_S),
    )
    return {
        "groups": [
            {"name": name, "rules": rules, "interval": duration(every)}
            for name, rules, every in groups
        ]
    }


def _apart(found: Sequence[Alert]) -> tuple[list[Alert], list[Alert]]:
    """Those that are looked at often, and those that need a day."""
    often = [alert for alert in found if alert.every_s <= RULE_INTERVAL_S]
    return often, [alert for alert in found if alert.every_s > RULE_INTERVAL_S]


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
        ALERTING: f"# Alerting rules of specctl. docs/alerting.md.\n{head}{_missing(terms)}"
        + _yaml(alerting_rules(terms)),
        **{
            name: f"# promtool test rules {name}\n{head}" + _yaml(tests)
            for name, tests in _tests(terms).items()
        },
        OPERATOR: f"# Both rule files, for the Prometheus operator.\n{head}" + _yaml(operator),
        DASHBOARD: json.dumps(dashboard(terms), indent=1) + "\n",
    }


def _tests(terms: Terms) -> dict[str, dict[str, Any]]:
    """Of alerts that need a day, apart: their streams are long, and are looked at seldom."""
    often, seldom = _apart(alerts(terms))
    model = terms.model or "m"
    rules = (RECORDING, ALERTING)
    silent = quiet_of([*often, *seldom], model)
    return {
        TESTS: cases_of(often, rules, model, every_s=RULE_INTERVAL_S, first=(silent,)),
        TESTS_OF_A_DAY: cases_of(seldom, rules, model, every_s=EVERY_S),
    }


def _missing(terms: Terms) -> str:
    return "".join(f"# Not here: {code}: {why}.\n" for code, why in left_out(terms).items())


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
        raise unwritable(error, error.filename or folder, UsageError) from error
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
