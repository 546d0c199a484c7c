"""What fleets have been seen to expose, and the one right answer to each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from speccli.main import app
from tests.support.recordings import (
    HOST,
    SPEC,
    Answer,
    counter,
    gauge,
    histogram,
    scraped,
    specctl,
    speculation,
    written,
)

Look = Callable[..., Answer]


@pytest.fixture(params=["one-scrape", "zero-then-value"])
def look(request: pytest.FixtureRequest, tmp_path: Path) -> Look:
    """The page as a single scrape, and as growth from a page of zeros a minute before."""

    def looked(page: str, zeros: str) -> Answer:
        lines = [scraped(60, page)]
        if request.param == "zero-then-value":
            lines.insert(0, scraped(0, zeros))
        recording = written(tmp_path / "r.jsonl", lines)
        return specctl("status", "--replay", recording, "-o", "json")

    return looked


def _two_uneven_engines(of: float) -> str:
    one, two = ',engine="0"', ',engine="1"'
    families = (("draft_tokens", 1000, 100), ("accepted_tokens", 800, 10), ("drafts", 200, 20))
    text = ""
    for name, first, second in families:
        series = ((one, of * first), (two, of * second))
        text += counter(f"{SPEC}{name}_total", *series)
        text += gauge(f"{SPEC}{name}_created", (one, 1.795e9), (two, 1.795e9))
    return text


def test_t1_uneven_engines_are_pooled_before_dividing(look: Look) -> None:
    answer = look(_two_uneven_engines(1), _two_uneven_engines(0))
    assert answer.exit_code == 0
    assert answer.fleet["acceptance_rate"]["value"] == pytest.approx(810 / 1100)
    assert answer.fleet["acceptance_rate"]["n"] == 1100
    assert answer.fleet["acceptance_length"]["value"] == pytest.approx(1 + 810 / 220)
    rates = {e["engine"]: e["acceptance_rate"]["value"] for e in answer.json["engines"]}
    assert rates == {"0": pytest.approx(0.8), "1": pytest.approx(0.1)}


def test_t2_a_gauge_repeated_by_pid_is_its_largest(look: Look) -> None:
    used = [
        (f',engine="0",pid="{pid}"', 0.6530455880475035 if pid == 273 else 0.0)
        for pid in range(271, 279)
    ]
    page = gauge("vllm:kv_cache_usage_perc", *used)
    answer = look(page, page)
    assert answer.fleet["kv_cache_usage"]["value"] == 0.6530455880475035
    assert answer.engine["kv_cache_usage"]["value"] == 0.6530455880475035


def test_t3_a_reset_in_the_window_loses_no_tokens(tmp_path: Path) -> None:
    samples = zip((0, 15, 30, 45), (1000, 1090, 12, 60), (2000, 2150, 20, 100), strict=True)
    lines = [
        scraped(
            at,
            counter(f"{SPEC}accepted_tokens_total", ("", accepted))
            + counter(f"{SPEC}draft_tokens_total", ("", drafted)),
        )
        for at, accepted, drafted in samples
    ]
    answer = specctl("status", "--replay", written(tmp_path / "r", lines), "-o", "json")
    assert answer.fleet["acceptance_rate"]["value"] == pytest.approx(150 / 250)
    assert answer.fleet["draft_tokens"]["value"] == 250
    assert answer.engine["resets"] == 1


def test_t5_no_drafts_is_no_traffic_and_no_number(look: Look) -> None:
    page = speculation(0, 0, 0) + counter("vllm:generation_tokens_total", ("", 0))
    answer = look(page, page)
    assert answer.exit_code == 0
    assert answer.engine["state"] == "no-traffic"
    for name in ("acceptance_rate", "acceptance_length"):
        assert answer.fleet[name] == {
            "value": None,
            "state": "unknown",
            "reason": "no drafts in the window",
            "n": 0,
        }
    assert [f["code"] for f in answer.json["findings"]] == ["NO_TRAFFIC"]


def test_t5_the_table_shows_a_dash_and_not_zero(tmp_path: Path) -> None:
    page = speculation(0, 0, 0) + counter("vllm:generation_tokens_total", ("", 0))
    recording = written(tmp_path / "r", [scraped(0, page), scraped(60, page)])
    answer = specctl("status", "--replay", recording)
    assert answer.exit_code == 0
    row = next(line for line in answer.stdout.splitlines() if line.startswith("○ 10.0.0.7:8000/0"))
    assert " no traffic " in row
    assert "—" in row
    assert "0.000" not in answer.stdout


def test_t6a_tokens_without_any_series_of_speculation(look: Look) -> None:
    tokens = "vllm:generation_tokens_total"
    answer = look(counter(tokens, ("", 5000)), counter(tokens, ("", 0)))
    assert answer.exit_code == 0
    assert answer.fleet["acceptance_rate"]["value"] is None
    (finding,) = answer.findings("SPEC_NOT_ACTIVE")
    assert finding["severity"] == "critical"
    assert "5,000 tokens" in finding["evidence"]


def test_t6b_tokens_and_series_of_speculation_that_stay_zero(look: Look) -> None:
    tokens = "vllm:generation_tokens_total"
    answer = look(
        counter(tokens, ("", 5000)) + speculation(0, 0, 0, (0, 0, 0)),
        counter(tokens, ("", 0)) + speculation(0, 0, 0, (0, 0, 0)),
    )
    (finding,) = answer.findings("SPEC_NOT_ACTIVE")
    assert finding["severity"] == "critical"
    assert "0 drafts" in finding["evidence"]
    assert answer.fleet["acceptance_rate"]["reason"] == "no drafts in the window"


def test_t6c_two_engines_of_an_old_version_may_hide_what_they_do(look: Look) -> None:
    def page(tokens: int) -> str:
        series = [(f',engine="{i}",version="0.10.1"', tokens) for i in (0, 1)]
        return counter("vllm:generation_tokens_total", *series)

    answer = look(page(5000), page(0))
    findings = answer.findings("SPEC_NOT_ACTIVE")
    assert {f["severity"] for f in findings} == {"critical"}
    assert all("data-parallel" in f["cause"] and "0.10.2" in f["action"] for f in findings)


def test_t7_nothing_accepted_is_critical_at_once(look: Look) -> None:
    answer = look(speculation(5000, 0, 1000, [0] * 5), speculation(0, 0, 0, [0] * 5))
    assert answer.exit_code == 0, "status reports; alert check judges"
    assert answer.fleet["acceptance_rate"]["value"] == 0
    assert answer.fleet["acceptance_length"]["value"] == 1
    assert [n["value"] for n in answer.fleet["acceptance_by_position"]] == [0] * 5
    (finding,) = answer.findings("ZERO_ACCEPTANCE")
    assert finding["severity"] == "critical"
    assert not answer.findings("LOW_ACCEPTANCE"), "one fault, one finding"


def test_t8_a_parallel_draft_that_is_right_once_is_a_cliff(look: Look) -> None:
    answer = look(speculation(5000, 836, 1000, (720, 90, 20, 5, 1)), speculation(0, 0, 0, [0] * 5))
    positions = [n["value"] for n in answer.fleet["acceptance_by_position"]]
    assert positions == [0.72, 0.09, 0.02, 0.005, 0.001]
    assert positions[1] / positions[0] == pytest.approx(0.125)
    assert answer.findings("PARALLEL_DRAFT_CLIFF")
    assert not answer.findings("ZERO_ACCEPTANCE")


_OLD = ("0.3", "0.5", "1.0", "1.5", "2.0", "2.5", "5.0", "10.0", "15.0", "20.0", "30.0", "60.0")
_NEW = (*_OLD, "120.0", "240.0", "480.0", "960.0", "1920.0", "7680.0")
_QUEUE = "vllm:request_queue_time_seconds"


def test_t11_waits_inside_the_first_bucket_are_unresolved(look: Look) -> None:
    empty, full = [0] * (len(_NEW) + 1), [1000] * (len(_NEW) + 1)
    answer = look(histogram(_QUEUE, _NEW, full, 20.0), histogram(_QUEUE, _NEW, empty, 0.0))
    queue = answer.fleet["queue_s"]
    assert queue["p99"] == {
        "low": 0.0,
        "high": 0.3,
        "state": "unresolved",
        "reason": "inside the first bucket",
        "n": 1000,
    }
    assert queue["mean"]["value"] == pytest.approx(0.020)
    assert answer.fleet["queue_wait_observed_ms"]["value"] == pytest.approx(20.0)
    assert "0.297" not in answer.stdout


def test_t12_a_tail_past_the_last_bucket_has_no_upper_end(look: Look) -> None:
    counts = [0] * len(_OLD) + [100]
    answer = look(
        histogram(_QUEUE, _OLD, counts, 30000.0),
        histogram(_QUEUE, _OLD, [0] * (len(_OLD) + 1), 0.0),
    )
    p99 = answer.fleet["queue_s"]["p99"]
    assert (p99["low"], p99["high"], p99["state"]) == (60.0, None, "unresolved")
    assert answer.fleet["queue_s"]["mean"]["value"] == pytest.approx(300.0)


_ITL = ("0.01", "0.025", "0.05", "0.1")


def _rollout_page(
    *names: str, cache: str | None, n: int, target: str, at: float
) -> dict[str, object]:
    counts = [0, n // 2, n, n, n]
    text = "".join(histogram(f"vllm:{name}_seconds", _ITL, counts, 0.03 * n) for name in names)
    if cache:
        text += gauge(f"vllm:{cache}", ("", 0.5 if n else 0.0))
    return scraped(at, text, target)


@pytest.mark.parametrize("pair", [False, True], ids=["one-scrape", "zero-then-value"])
def test_t14_two_versions_in_a_fleet_count_each_engine_once(tmp_path: Path, pair: bool) -> None:
    old, new = "time_per_output_token", "inter_token_latency"
    lines = []
    for at, n in ((0.0, 0), (60.0, 600)) if pair else ((60.0, 600),):
        lines += [
            _rollout_page(old, cache="gpu_cache_usage_perc", n=n, target="http://a:8000", at=at),
            _rollout_page(
                old, new, cache="kv_cache_usage_perc", n=n, target="http://b:8000", at=at
            ),
            _rollout_page(new, cache=None, n=n, target="http://c:8000", at=at),
        ]
    answer = specctl("status", "--replay", written(tmp_path / "r", lines), "-o", "json")
    assert answer.fleet["itl_s"]["mean"]["n"] == 3 * 600
    assert answer.fleet["itl_s"]["p99"]["n"] == 3 * 600
    assert answer.fleet["kv_cache_usage"]["value"] == 0.5
    read = {e["target"][7]: e["sources"] for e in answer.json["engines"]}
    assert {name: source["itl"] for name, source in read.items()} == {
        "a": f"vllm:{old}_seconds",
        "b": f"vllm:{new}_seconds",
        "c": f"vllm:{new}_seconds",
    }
    assert read["a"]["kv_cache_usage"] == "vllm:gpu_cache_usage_perc"
    assert read["b"]["kv_cache_usage"] == "vllm:kv_cache_usage_perc"


def test_engines_are_named_by_their_target_without_credentials(tmp_path: Path) -> None:
    line = scraped(0, speculation(10, 5, 2), "http://me:secret@10.0.0.7:8000/metrics")
    answer = specctl("status", "--replay", written(tmp_path / "r", [line]), "-o", "json")
    assert answer.engine["target"] == HOST
    assert "secret" not in answer.stdout + answer.stderr


def test_a_mistyped_method_is_a_usage_error_with_the_nearest_name() -> None:
    result = CliRunner().invoke(app, ["status", "-e", "127.0.0.1:9", "--method", "eagl3"])
    assert result.exit_code == 64
    assert "did you mean eagle3?" in result.stderr


def test_what_is_low_and_has_not_lasted_is_shown_and_no_finding_yet(tmp_path: Path) -> None:
    def page(of: float) -> str:
        return speculation(of * 5000, of * 400, of * 1000, [of * n for n in (200, 100, 60, 30, 10)])

    recording = written(tmp_path / "r.jsonl", [scraped(0, page(0)), scraped(60, page(1))])
    assert specctl("status", "--replay", recording, "-o", "json").findings("LOW_ACCEPTANCE") == []
    shown = " ".join(specctl("status", "--replay", recording).stdout.split())
    assert "INFO LOW_ACCEPTANCE" in shown
    assert "pending: accepted 400 of 5,000 draft tokens (0.080)" in shown
    assert "under 0.4 for 60 s of 60 min" in shown
    held = specctl("status", "--replay", recording, "--hold", "60s")
    assert "WARNING LOW_ACCEPTANCE" in held.stdout
    assert "pending" not in held.stdout
