from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from speccli.core.findings import evaluate
from speccli.core.findings.base import Finding, Thresholds
from speccli.core.sources.base import Scrape
from speccli.core.stats.window import Settings, Window
from speccli.core.values import Number, Quantile
from speccli.core.views.status import finding, interval, number, rfc3339, status, status_text
from tests.support.golden import FOLDER, assert_golden
from tests.support.recordings import specctl, speculation

CONTRACTS = Path(__file__).parents[3] / "docs" / "contracts.md"
RECORDING = FOLDER / "fleet.jsonl"
OPTIONS = ("--gpu-hour-usd", "2.5", "--gpus-per-engine", "4", "--floor", "0.5", "--hold", "30s")

TOP = ["schema", "at", "window_s", "simulated", "fleet", "engines", "p99_by_batch", "findings"]
NUMBERS = [
    "acceptance_rate", "acceptance_length", "draft_tokens", "drafts", "tokens_per_step",
    "wasted_draft_tokens_per_s", "running", "waiting", "batch_size", "kv_cache_usage",
    "queue_wait_ms", "queue_wait_observed_ms", "queue_wait_backlog_ms", "output_tokens_per_s",
    "input_tokens_per_s", "requests_per_s", "cost_per_1m_output_usd", "cost_per_1m_total_usd",
]  # fmt: skip
LATENCIES = ["ttft_s", "itl_s", "tpot_s", "e2e_s", "queue_s"]
METRICS = {*NUMBERS, *LATENCIES, "acceptance_by_position"}
ENGINE = {
    "target", "engine", "model", "engine_kind", "version", "method", "k", "draft", "state",
    "reason", "fix", "resets", "sources",
}  # fmt: skip
FINDING = ["code", "severity", "subject", "evidence", "cause", "action", "since"]
STATES = {
    "ok",
    "no-traffic",
    "partial",
    "stale",
    "missing",
    "down",
    "pending",
    "loading",
    "terminating",
}


def shown(format_: str) -> str:
    answer = specctl("status", "--replay", RECORDING, *OPTIONS, "-o", format_)
    assert (answer.exit_code, answer.stderr) == (0, "")
    return answer.stdout


def test_the_json_of_a_recording_is_the_same_byte_for_byte() -> None:
    assert_golden("fleet.status.json", shown("json"))


def test_the_yaml_of_a_recording_is_the_same_byte_for_byte_and_the_same_object() -> None:
    text = shown("yaml")
    assert_golden("fleet.status.yaml", text)
    assert yaml.safe_load(text) == json.loads(shown("json"))
    assert "&id" not in text, "no aliases: not every reader knows them"


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_of_a_recording_fits_and_stays(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = shown("table")
    assert_golden(f"fleet.status.{width}.txt", text)
    assert max(map(len, text.splitlines())) <= width


def test_the_keys_are_those_of_the_contract() -> None:
    whole = json.loads(shown("json"))
    assert list(whole) == TOP
    assert whole["schema"] == "specctl.status/v1"
    assert set(whole["fleet"]) == METRICS
    for engine in whole["engines"]:
        assert set(engine) == ENGINE | METRICS
        assert engine["state"] in STATES
    for row in whole["p99_by_batch"]:
        assert list(row) == ["batch", "n", "itl_s", "ttft_s", "tpot_s"]
    for found in whole["findings"]:
        assert list(found) == FINDING
    assert {f["code"] for f in whole["findings"]} == {
        "LOW_ACCEPTANCE",
        "VERSION_SKEW",
        "PARTIAL_DATA",
    }


def test_the_contracts_page_lists_the_same_keys() -> None:
    text = CONTRACTS.read_text(encoding="utf-8")
    block = text[text.index("\nMETRICS: ") : text.index("docs/metrics.md has the formula")]
    assert set(re.findall(r"`(\w+)`", block)) == METRICS
    engines = text[text.index('"engines": [{') : text.index('"p99_by_batch": [{')]
    named = set(re.findall(r'"(\w+)"', engines.replace('"ok|', '"')))
    assert not ENGINE - named - {"state"}
    findings = text[text.index('"findings": [{') :].partition("}]}")[0]
    assert re.findall(r'"(\w+)"', findings)[1:] == FINDING


def test_every_number_has_its_state_and_every_absent_one_a_reason() -> None:
    whole = json.loads(shown("json"))
    seen = 0
    for each in (whole["fleet"], *whole["engines"]):
        for value in _numbers(each):
            seen += 1
            assert list(value) == ["value", "state", "reason", "n"]
            assert value["state"] in {"value", "stale", "unknown"}
            assert (value["value"] is None) == (value["state"] == "unknown")
            assert value["state"] == "value" or value["reason"]
        for value in _intervals(each):
            seen += 1
            assert list(value) == ["low", "high", "state", "reason", "n"]
            assert value["state"] in {"value", "unresolved", "unknown"}
            assert value["state"] == "value" or value["reason"]
            assert value["high"] is None or value["low"] < value["high"]
    assert seen > 150


def _numbers(metrics: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (metrics[name] for name in NUMBERS)
    yield from metrics["acceptance_by_position"]
    yield from (metrics[name]["mean"] for name in LATENCIES)


def _intervals(metrics: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in LATENCIES:
        assert list(metrics[name]) == ["p50", "p95", "p99", "mean"]
        yield from (metrics[name][q] for q in ("p50", "p95", "p99"))


def test_the_screens_copy_is_the_same_object() -> None:
    window = Window(Settings())
    window.push([Scrape(1.79e9, "http://a", 200, speculation(1000, 600, 250).encode())])
    snapshot = window.snapshot()
    findings = evaluate(snapshot, Thresholds())
    assert json.loads(status_text(snapshot, findings)) == status(snapshot, findings)


def test_nothing_seen_yet_is_an_object_too() -> None:
    whole = status(Window(Settings()).snapshot(), ())
    assert list(whole) == TOP
    assert whole["engines"] == whole["findings"] == []
    assert whole["fleet"]["acceptance_rate"]["state"] == "unknown"


def test_a_quantile_past_the_last_bucket_has_no_upper_end() -> None:
    value = interval(Quantile(60.0, None, "unresolved", "beyond the last bucket", 100))
    assert value == {
        "low": 60.0,
        "high": None,
        "state": "unresolved",
        "reason": "beyond the last bucket",
        "n": 100,
    }


def test_unknown_is_null_and_never_zero() -> None:
    assert number(Number.unknown("no data")) == {
        "value": None,
        "state": "unknown",
        "reason": "no data",
        "n": None,
    }


def test_a_finding_says_since_when_in_utc() -> None:
    found = Finding("STALLED", "critical", "fleet", "e", "c", "a", 1_795_975_219.25)
    assert finding(found)["since"] == "2026-11-29T18:00:19.250Z"


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (1_795_975_219.25, "2026-11-29T18:00:19.250Z"),
        (0.0, "1970-01-01T00:00:00.000Z"),
        (math.inf, "1970-01-01T00:00:00.000Z"),
        (-1.0, "1970-01-01T00:00:00.000Z"),
        (1e18, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_times_are_rfc_3339(at: float, text: str) -> None:
    assert rfc3339(at) == text
