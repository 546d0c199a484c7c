"""`alert check --replay`: what fleets have been seen to do, and the one right verdict on each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.recordings import (
    Answer,
    counter,
    gauge,
    histogram,
    scraped,
    specctl,
    speculation,
    written,
)
from tests.support.scenarios import played

Found = list[tuple[str, str]]
FIXED = ("--baseline", "reference/qwen3-8b", "--dataset", "philschmid/mt-bench")
QWEN = "Qwen/Qwen3-8B"


def tokens(n: float) -> str:
    return counter("vllm:generation_tokens_total", ("", n))


def minute(path: Path, before: str, after: str) -> Path:
    """Two scrapes, 60 s apart."""
    return written(path, [scraped(0, before), scraped(60, after)])


def found(answer: Answer) -> Found:
    return [(f["code"], f["severity"]) for f in answer.json["findings"]]


def check(recording: Path, *options: str) -> Answer:
    answer = specctl("alert", "check", "--replay", recording, "-o", "json", *options)
    assert answer.exit_code == answer.json["exit"]
    return answer


def drafted(drafts: float, positions: Sequence[float]) -> str:
    accepted = sum(positions)
    spec = speculation(len(positions) * drafts, accepted, drafts, positions)
    return spec + tokens(drafts + accepted)


T5 = drafted(0, [0] * 5)
T6_DP = "".join(
    counter("vllm:generation_tokens_total", (',engine="0"', n), (',engine="1"', n)) for n in (2500,)
)


@pytest.mark.parametrize(
    ("before", "after", "options", "exit_code", "expected"),
    [
        pytest.param(T5, T5, (), 0, [("NO_TRAFFIC", "info")], id="t5-zero-drafts"),
        pytest.param(
            T5, T5, ("--require-traffic",), 3, [("NO_TRAFFIC", "info")], id="t5-traffic-required"
        ),
        pytest.param(
            tokens(0), tokens(5000), (), 2, [("SPEC_NOT_ACTIVE", "critical")], id="t6-no-series"
        ),
        pytest.param(
            T5,
            speculation(0, 0, 0, [0] * 5) + tokens(5000),
            (),
            2,
            [("SPEC_NOT_ACTIVE", "critical")],
            id="t6b-series-stay-at-0",
        ),
        pytest.param(
            tokens(0), tokens(5000), ("--method", "none"), 0, [], id="t6-speculation-not-wanted"
        ),
        pytest.param(
            T5,
            speculation(5000, 0, 1000, [0] * 5) + tokens(1000),
            ("--confirm", "3/5"),
            2,
            [("ZERO_ACCEPTANCE", "critical")],
            id="t7-at-once-whatever-is-to-be-confirmed",
        ),
        pytest.param(
            T5,
            drafted(1000, [720, 90, 20, 5, 1]),
            (),
            1,
            [("PARALLEL_DRAFT_CLIFF", "warning")],
            id="t8-cliff",
        ),
        pytest.param(
            drafted(0, [0, 0, 0]).replace('"m"', f'"{QWEN}"'),
            drafted(1000, [650, 400, 200]).replace('"m"', f'"{QWEN}"'),
            FIXED,
            0,
            [],
            id="t9-within-2-percent",
        ),
        pytest.param(
            drafted(0, [0, 0, 0]).replace('"m"', f'"{QWEN}"'),
            drafted(1000, [600, 340, 150]).replace('"m"', f'"{QWEN}"'),
            FIXED,
            1,
            [("ACCEPTANCE_DRIFT", "warning")],
            id="t9-length-2.09-against-2.26",
        ),
    ],
)
def test_verdicts(
    tmp_path: Path,
    before: str,
    after: str,
    options: tuple[str, ...],
    exit_code: int,
    expected: Found,
) -> None:
    answer = check(minute(tmp_path / "r.jsonl", before, after), *options)
    assert answer.exit_code == exit_code
    assert found(answer) == expected


def _queue(counts: list[float], bounds: list[str], total: float) -> str:
    busy = gauge("vllm:num_requests_running", ("", 1)) + gauge("vllm:num_requests_waiting", ("", 0))
    text = drafted(counts[-1], [0.7 * counts[-1], 0.5 * counts[-1]])
    name = "vllm:request_queue_time_seconds"
    return text + busy + histogram(name, bounds, counts, total)


T11_BOUNDS = ["0.3", "0.5", "0.8", "1.0", "7680.0"]
T12_BOUNDS = ["0.3", "1.0", "60.0"]


def test_t11_waits_inside_the_first_bucket_raise_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCTL_QUEUE_WAIT_MS", "100")
    before = _queue([0] * 6, T11_BOUNDS, 0)
    after = _queue([1000] * 6, T11_BOUNDS, 20.0)
    answer = check(minute(tmp_path / "r.jsonl", before, after))
    assert (answer.exit_code, found(answer)) == (0, [])
    p99 = answer.json["status"]["fleet"]["queue_s"]["p99"]
    assert (p99["low"], p99["high"], p99["state"]) == (0.0, 0.3, "unresolved")
    assert "queue_wait=20ms;100;" in _line(tmp_path / "r.jsonl")


def test_t12_waits_beyond_the_last_bucket_are_over_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCTL_QUEUE_WAIT_MS", "100")
    before = _queue([0] * 4, T12_BOUNDS, 0)
    after = _queue([0, 0, 0, 1000], T12_BOUNDS, 300_000.0)
    answer = check(minute(tmp_path / "r.jsonl", before, after))
    assert (answer.exit_code, found(answer)) == (1, [("QUEUE_WAIT", "warning")])
    p99 = answer.json["status"]["fleet"]["queue_s"]["p99"]
    assert (p99["low"], p99["high"]) == (60.0, None)
    assert "queue_wait=300000ms;100;" in _line(tmp_path / "r.jsonl")


def _line(recording: Path) -> str:
    return specctl("alert", "check", "--replay", recording).stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "method", "seconds", "exit_code", "expected"),
    [
        ("steady", "eagle3", 120, 0, []),
        ("zero", "eagle3", 120, 2, [("ZERO_ACCEPTANCE", "critical")]),
        ("drop", "eagle3", 120, 1, [("LOW_ACCEPTANCE", "warning")]),
        ("cliff", "p-eagle", 120, 1, [("PARALLEL_DRAFT_CLIFF", "warning")] * 3),
        ("stall", "eagle3", 80, 2, [("STALLED", "critical")]),
        ("down", "eagle3", 60, 2, [("ENGINE_DOWN", "critical")]),
        ("restart", "eagle3", 120, 0, []),
        ("version-skew", "eagle3", 60, 1, [("VERSION_SKEW", "warning")]),
        ("no-traffic", "eagle3", 300, 0, [("NO_TRAFFIC", "info")]),
    ],
)
def test_scenarios(
    tmp_path: Path, name: str, method: str, seconds: int, exit_code: int, expected: Found
) -> None:
    recording = played(tmp_path / "r.jsonl", name, seconds, method=method)
    answer = check(recording, "--hold", "30s")
    assert (answer.exit_code, found(answer)) == (exit_code, expected)
    assert answer.json["status"]["simulated"]


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with the baseline `sound`: two hours in which nothing happened."""
    folder = tmp_path_factory.mktemp("state")
    recording = played(folder / "r.jsonl", "steady", 7200, step=30, seed=3)
    options = ("--replay", recording, "--for", "2h", "--state", folder)
    assert specctl("baseline", "record", "sound", *options).exit_code == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "exit_code", "expected", "words"),
    [
        ("drift", 1, [("ACCEPTANCE_DRIFT", "warning")], "the draft, as far as counters tell"),
        ("traffic-shift", 0, [("ACCEPTANCE_DRIFT", "info")], "traffic, not the draft"),
        ("steady", 0, [], None),
    ],
)
def test_a_bad_draft_is_told_from_another_traffic(
    tmp_path: Path,
    baseline: Path,
    name: str,
    exit_code: int,
    expected: Found,
    words: str | None,
) -> None:
    recording = played(tmp_path / "r.jsonl", name, 3600, step=30)
    answer = check(recording, "--baseline", "sound", "--state", str(baseline))
    assert (answer.exit_code, found(answer)) == (exit_code, expected)
    if words:
        assert words in answer.json["findings"][0]["cause"]


def test_the_history_tells_every_change_and_when(tmp_path: Path) -> None:
    recording = played(tmp_path / "r.jsonl", "stall", 260)
    answer = check(recording)
    turns = [
        (turn["at"][11:19], turn["verdict"], [(c["change"], c["code"]) for c in turn["changes"]])
        for turn in answer.json["history"]
    ]
    assert turns[0] == ("18:00:00", "ok", [])
    assert [t[1:] for t in turns[1:]] == [
        ("critical", [("firing", "STALLED")]),
        ("ok", [("resolved", "STALLED")]),
    ]
    assert answer.exit_code == 0
    assert answer.json["verdict"] == "ok"


def test_the_text_is_one_line_for_the_monitoring_system_then_one_a_finding(tmp_path: Path) -> None:
    page = speculation(5000, 0, 1000, [0] * 5) + tokens(1000)
    answer = specctl("alert", "check", "--replay", minute(tmp_path / "r.jsonl", T5, page))
    first, second, third = answer.stdout.splitlines()
    assert first == (
        "SPECCTL CRITICAL - ZERO_ACCEPTANCE 10.0.0.7:8000/0: accepted 0 of 5,000 draft tokens "
        "(0.000) over 60 s, n=1000 drafts | engines=1;;1: acceptance_rate=0;0.4:; "
        "acceptance_length=1;; draft_tokens=5000;; wasted_draft_tokens_per_s=83.3333;; "
        "output_tokens_per_s=16.6667;; running=U;; waiting=U;; queue_wait=U;; ttft_p99=U;; "
        "tpot_p99=U;; cost_per_1m_usd=U;;"
    )
    assert second.startswith("CRITICAL ZERO_ACCEPTANCE 10.0.0.7:8000/0: accepted 0 of 5,000")
    assert third.startswith("2026-11-29T18:01:00.000Z FIRING critical ZERO_ACCEPTANCE")
    assert answer.stderr == ""


def test_what_servers_say_cannot_forge_a_line_or_performance_data(tmp_path: Path) -> None:
    target = "http://x|engines=9;;\u001b[2J:8000"
    page = speculation(5000, 0, 1000, [0] * 5) + tokens(1000)
    lines = [scraped(0, T5, target), scraped(60, page, target)]
    answer = specctl("alert", "check", "--replay", written(tmp_path / "r.jsonl", lines))
    first = answer.stdout.splitlines()[0]
    assert first.count("|") == 1
    assert "\u001b" not in answer.stdout


def test_a_recording_of_one_scrape_is_judged_since_the_process_began(tmp_path: Path) -> None:
    page = speculation(5000, 0, 1000, [0] * 5) + tokens(1000)
    answer = check(written(tmp_path / "r.jsonl", [scraped(0, page)]))
    assert (answer.exit_code, found(answer)) == (2, [("ZERO_ACCEPTANCE", "critical")])


def test_a_recording_without_scrapes_is_unknown(tmp_path: Path) -> None:
    answer = check(written(tmp_path / "r.jsonl", []))
    assert answer.exit_code == 3
    assert answer.json["status"] is None


def test_the_object_has_what_the_contract_says(tmp_path: Path) -> None:
    answer = check(minute(tmp_path / "r.jsonl", T5, T5))
    told = json.loads(answer.stdout)
    assert told["schema"] == "specctl.alert/v1"
    assert {"exit", "verdict", "findings", "status", "history"} <= set(told)
    assert told["status"]["schema"] == "specctl.status/v1"


@pytest.mark.parametrize(
    "options",
    [
        ("--replay", "missing.jsonl"),
        ("--replay", "r.jsonl", "--baseline", "no-such"),
        ("--replay", "r.jsonl", "--confirm", "5/2"),
        (),
        ("-e", "http://a:8000", "--deadline", "0.5s"),
        ("-e", "http://a:8000", "--window", "60s", "--deadline", "10s"),
    ],
)
def test_what_cannot_be_is_usage_and_never_looks_like_an_alarm(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    written(tmp_path / "r.jsonl", [scraped(0, T5)])
    answer = specctl("alert", "check", *options)
    assert (answer.exit_code, answer.stdout) == (64, "")
