"""`alert rules`: files that Prometheus, its operator, promtool and Grafana take."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from speccli.core.alert.notify.alertmanager import alert_name
from speccli.core.alert.rules.alerting import alerts
from speccli.core.alert.rules.left_out import FOR_CHECKS, IN_PART, left_out
from speccli.core.alert.rules.model import Alert, Terms
from speccli.core.alert.rules.write import (
    ALERTING,
    DASHBOARD,
    OPERATOR,
    RECORDING,
    TESTS,
    TESTS_OF_A_DAY,
    files,
    write,
)
from speccli.core.baseline import Key
from speccli.core.baseline.model import BatchSpeed
from speccli.core.baseline.reference import REFERENCES
from speccli.core.cost import Pricing
from speccli.core.findings.base import CODES, Thresholds
from tests.support.real import absent
from tests.support.recordings import specctl

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "manifests" / "monitoring"
EVERYTHING = Terms(
    Thresholds(
        queue_wait_ms=200,
        ttft_p99_ms=500,
        tpot_p99_ms=50,
        cost_per_1m_usd=1.5,
        hold_s=1800,
        acceptance_floor=0.5,
    ),
    replace(
        REFERENCES[0],
        name="prod",
        plain=(BatchSpeed(32, 900.0, 60), BatchSpeed(64, 1500.0, 60), BatchSpeed(128, 2000.0, 60)),
    ),
    Pricing(2.5, 4, None),
    require_traffic=True,
)
TERMS = {"defaults": Terms(), "everything": EVERYTHING}
ALL_CODES = {
    "SPEC_NOT_ACTIVE",
    "ZERO_ACCEPTANCE",
    "LOW_ACCEPTANCE",
    "PARALLEL_DRAFT_CLIFF",
    "ACCEPTANCE_DRIFT",
    "STALLED",
    "ENGINE_DOWN",
    "METRICS_MISSING",
    "METRICS_INCONSISTENT",
    "ACCEPTANCE_SLOPE",
    "VERSION_SKEW",
    "PARTIAL_DATA",
}
OF_TERMS = {
    "BATCH_COLLAPSE",
    "BASELINE_KEY_MISMATCH",
    "QUEUE_WAIT",
    "P99_REGRESSION",
    "COST_OVER",
    "NO_TRAFFIC",
}


@cache
def made(terms: Terms) -> dict[str, str]:
    """Writing YAML takes a second: once is enough."""
    return files(terms)


def promtool(folder: Path, *words: str) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        absent("promtool is not installed: apt-get install prometheus")
    done = subprocess.run([tool, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real_prometheus
@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_every_alert_fires_when_it_must_and_not_when_it_must_not(
    terms: Terms, tmp_path: Path
) -> None:
    write(tmp_path, made(terms))
    promtool(tmp_path, "check", "rules", RECORDING, ALERTING)
    promtool(tmp_path, "test", "rules", TESTS, TESTS_OF_A_DAY)


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_every_alert_has_a_case_that_fires_and_one_that_does_not(terms: Terms) -> None:
    tests = yaml.safe_load(made(terms)[TESTS])["tests"][1:]
    tests += yaml.safe_load(made(terms)[TESTS_OF_A_DAY])["tests"]
    expected: dict[str, list[bool]] = {}
    for test in tests:
        name = test["name"].split()[0]
        case = next(c for c in test["alert_rule_test"] if c["alertname"] == name)
        expected.setdefault(name, []).append(bool(case["exp_alerts"]))
    assert {name for name in expected if set(expected[name]) == {True, False}} == {
        alert.alert for alert in alerts(terms)
    }


def test_the_manifests_are_up_to_date() -> None:
    for name, text in files(Terms(), made_by="make rules").items():
        assert (MONITORING / name).read_text() == text, "run: make rules"


def test_codes_severities_and_names_are_those_of_checks() -> None:
    found = alerts(Terms())
    assert {alert.code for alert in found} == ALL_CODES
    assert {alert.code for alert in alerts(EVERYTHING)} == ALL_CODES | OF_TERMS
    for alert in alerts(EVERYTHING):
        assert alert.code in CODES
        assert alert.severity in {"warning", "critical"}
        assert alert.alert == alert_name(alert.code) or alert.name


def test_every_code_is_a_rule_or_is_said_to_be_none() -> None:
    assert left_out(EVERYTHING) == FOR_CHECKS
    assert set(left_out(Terms())) == OF_TERMS | set(FOR_CHECKS)
    for terms in TERMS.values():
        assert set(left_out(terms)) | {alert.code for alert in alerts(terms)} == set(CODES)
    page = (ROOT / "docs" / "alerting.md").read_text()
    for code in (*FOR_CHECKS, *IN_PART, *OF_TERMS):
        assert f"| {code} |" in page, code


def test_a_baseline_is_held_against_its_own_model_alone() -> None:
    named = 'model_name="meta-llama/Llama-3.1-8B-Instruct"'
    for code in ("ACCEPTANCE_DRIFT", "BASELINE_KEY_MISMATCH"):
        assert named in _of(code, EVERYTHING).expr
    nameless = replace(EVERYTHING, baseline=replace(REFERENCES[0], key=Key(k=3)))
    assert "model_name" not in _of("ACCEPTANCE_DRIFT", nameless).expr


def _of(code: str, terms: Terms) -> Alert:
    return next(alert for alert in alerts(terms) if alert.code == code)


def test_thresholds_are_those_of_checks() -> None:
    low = _of("LOW_ACCEPTANCE", EVERYTHING)
    assert "< 0.5 and" in low.expr
    assert low.hold == "1800s"
    assert _of("QUEUE_WAIT", EVERYTHING).expr == "specctl:queue_wait_ms > 200"
    assert "specctl:acceptance_baseline" in _of("ACCEPTANCE_DRIFT", EVERYTHING).expr
    assert "offset 1h" in _of("ACCEPTANCE_DRIFT", Terms()).expr


def test_speculation_that_is_not_wanted_is_not_missed() -> None:
    terms = Terms(Thresholds(expect_speculation=False))
    assert "SPEC_NOT_ACTIVE" not in {alert.code for alert in alerts(terms)}


def test_the_operators_form_holds_both_files(tmp_path: Path) -> None:
    texts = files(Terms(), namespace="monitoring", labels={"release": "kps"})
    rule = yaml.safe_load(texts[OPERATOR])
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rule["metadata"]["namespace"] == "monitoring"
    assert rule["metadata"]["labels"]["release"] == "kps"
    plain = [g for name in (RECORDING, ALERTING) for g in yaml.safe_load(texts[name])["groups"]]
    assert rule["spec"]["groups"] == plain


# The dashboard --------------------------------------------------------------------------------


def dashboard(terms: Terms = EVERYTHING) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made(terms)[DASHBOARD])
    return found


def test_the_dashboard_has_the_panels_an_operator_looks_for() -> None:
    titles = " | ".join(panel["title"] for panel in dashboard()["panels"])
    for wanted in ("floor and baseline", "by position", "by batch size", "Queue wait", "per 1M"):
        assert wanted in titles
    (annotation,) = dashboard()["annotations"]["list"]
    assert annotation["expr"].startswith("ALERTS{")


def test_the_dashboard_is_whole() -> None:
    board = dashboard()
    assert board["uid"] == "specctl"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    names = {variable["name"] for variable in board["templating"]["list"]}
    text = json.dumps(board)
    assert set(re.findall(r"\$\{?([a-z_]+)", text)) - {"__all"} <= names | {"labels"}
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24


@pytest.mark.filterwarnings("ignore:Prefer using dashboardv2:DeprecationWarning")
@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_grafanas_own_model_knows_every_key_of_the_dashboard(terms: Terms) -> None:
    """Read into Grafana's types and written again, nothing is lost or another."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()

    def again(board: dict[str, Any]) -> Any:
        return json.loads(JSONEncoder().encode(Dashboard.from_json(board)))

    ours = dashboard(terms)
    assert list(lost(ours, again(ours))) == []
    mistyped = json.loads(json.dumps(ours).replace('"displayMode"', '"displayMod"'))
    assert len(list(lost(mistyped, again(mistyped)))) == len(ours["panels"])
    assert ours["schemaVersion"] == again({})["schemaVersion"]


def lost(was: Any, now: Any, path: str = "$") -> Iterator[str]:
    """What is not the same any more."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key, value in was.items():
            yield from lost(value, now.get(key), f"{path}.{key}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for i, pair in enumerate(zip(was, now, strict=True)):
            yield from lost(*pair, f"{path}[{i}]")
    elif was != now:
        yield f"{path}: {was!r} -> {now!r}"


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_what_the_dashboard_asks_for_is_recorded(terms: Terms) -> None:
    groups = yaml.safe_load(made(terms)[OPERATOR])["spec"]["groups"]
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    optional = {"specctl:cost_per_1m_output_usd"}
    asked = set(re.findall(r"specctl:[a-z0-9_:]+", json.dumps(dashboard(terms))))
    assert asked <= recorded | optional


@pytest.mark.real_prometheus
def test_every_query_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    board = dashboard()
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked.append(board["annotations"]["list"][0]["expr"])
    rules = [{"record": f"q:{i}", "expr": each} for i, each in enumerate(asked)]
    text = yaml.safe_dump({"groups": [{"name": "q", "rules": rules}]})
    text = text.replace("$namespace", ".*").replace("$model", ".*")
    (tmp_path / "q.yaml").write_text(text)
    promtool(tmp_path, "check", "rules", "q.yaml")


# The command ----------------------------------------------------------------------------------


def test_the_command_writes_the_files_and_says_which(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    answer = specctl("alert", "rules", "--out", out, "--floor", "0.55", "--label", "release=x")
    assert answer.exit_code == 0
    assert [Path(line).name for line in answer.stdout.split()] == [
        RECORDING,
        ALERTING,
        TESTS,
        TESTS_OF_A_DAY,
        OPERATOR,
        DASHBOARD,
    ]
    assert "< 0.55 and" in (out / ALERTING).read_text()
    again = specctl("alert", "rules", "--out", out, "--baseline", "reference/qwen3-8b")
    assert again.exit_code == 0
    assert "reference/qwen3-8b" in (out / ALERTING).read_text()


def test_what_somebody_else_wrote_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / ALERTING).write_text("groups: []\n")
    answer = specctl("alert", "rules", "--out", tmp_path)
    assert answer.exit_code == 64
    assert [path.name for path in tmp_path.iterdir() if path.suffix] == [ALERTING]
    assert specctl("alert", "rules", "--out", tmp_path, "--force").exit_code == 0


@pytest.mark.parametrize(
    "options", [("--label", "x"), ("--label", "=x"), ("--out", "/proc/x"), ("--baseline", "no")]
)
def test_what_cannot_be_is_usage(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert specctl("alert", "rules", "--out", tmp_path, *options).exit_code == 64
