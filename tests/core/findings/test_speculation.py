"""Is speculation on, and is it right: the rules about drafts and acceptance."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest

from speccli.core.findings import Thresholds, evaluate, so_far, waiting
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot
from tests.core.findings.bodies import (
    AT,
    SPEC,
    A,
    B,
    C,
    Engine,
    answer,
    begun,
    codes,
    good,
    judge,
    only,
    over_a_minute,
    snapshot,
    zero,
)

CLIFF = Engine(gen=1836, dt=5000, acc=836, dr=1000, pos=[720, 90, 20, 5, 1])
LOW = Engine(gen=1500, dt=5000, acc=500, dr=1000, pos=[250, 120, 70, 40, 20])
NOTHING_ACCEPTED = Engine(gen=1000, dt=5000, acc=0, dr=1000, pos=[0] * 5)


def test_t5_zero_drafts_and_no_tokens_are_no_traffic_and_nothing_else() -> None:
    for rounds in ([[answer(0, A, zero())]], [[answer(0, A, zero())], [answer(60, A, zero())]]):
        findings = judge(*rounds)
        assert codes(findings) == ["NO_TRAFFIC"]
        assert findings[0].severity == "info"
        assert findings[0].subject == "a:8000/0"


def test_t6a_tokens_without_any_speculation_series_is_critical() -> None:
    finding = only(over_a_minute(Engine(gen=0), Engine(gen=5000)), "SPEC_NOT_ACTIVE")
    assert finding.severity == "critical"
    assert finding.evidence == "5,000 tokens generated and no speculation series over 60 s"
    assert "PR #25250" in finding.action
    assert "data-parallel" not in finding.cause


def test_t6b_series_that_stay_at_zero_under_traffic_is_critical() -> None:
    finding = only(over_a_minute(zero(), Engine(gen=5000, dt=0, acc=0, dr=0, pos=[0] * 5)),
                   "SPEC_NOT_ACTIVE")  # fmt: skip
    assert finding.severity == "critical"
    assert finding.evidence == "5,000 tokens generated and 0 drafts over 60 s"
    assert finding.since == AT


def test_t6c_two_engines_of_an_old_version_name_its_missing_support() -> None:
    def two(gen: float) -> list[Engine]:
        return [Engine(engine=e, gen=gen, version="0.10.1") for e in "01"]

    findings = judge([answer(0, A, *two(0))], [answer(60, A, *two(5000))])
    assert codes(findings) == ["SPEC_NOT_ACTIVE"] * 2
    for finding in findings:
        assert finding.severity == "critical"
        assert "before vLLM 0.10.2 (PR #24049)" in finding.cause
        assert "data-parallel" in finding.cause
        assert "upgrade to vLLM 0.10.2" in finding.action


@pytest.mark.parametrize(
    ("version", "engines", "named"),
    [
        pytest.param("0.10.x", "01", True, id="a-version-that-is-hardly-one"),
        pytest.param("0.10.2", "01", False, id="fixed-since"),
        pytest.param("0.10.1", "0", False, id="one-engine-was-never-hidden"),
        pytest.param(None, "01", True, id="unknown-version-may-be-old"),
    ],
)
def test_missing_data_parallel_support_is_named_only_where_it_can_be_so(
    version: str | None, engines: str, *, named: bool
) -> None:
    def all_of(gen: float) -> list[Engine]:
        return [Engine(engine=e, gen=gen, version=version) for e in engines]

    findings = judge([answer(0, A, *all_of(0))], [answer(60, A, *all_of(5000))])
    assert all(("PR #24049" in finding.cause) == named for finding in findings)
    assert findings


def test_tokens_per_step_prove_speculation_that_an_old_version_does_not_show() -> None:
    def two(n: float) -> list[Engine]:
        itl = {"vllm:time_per_output_token_seconds": ([("1", n), ("+Inf", n)], n * 0.01)}
        ttft = {"vllm:time_to_first_token_seconds": ([("1", n / 50), ("+Inf", n / 50)], n * 0.01)}
        return [
            Engine(engine=e, gen=2.5 * n, version="0.10.1", histograms={**itl, **ttft})
            for e in "01"
        ]

    findings = judge([answer(0, A, *two(0))], [answer(60, A, *two(2000))])
    assert {finding.severity for finding in findings} == {"warning"}
    assert "2.48 tokens per step" in findings[0].evidence
    assert "it is on" in findings[0].cause


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(good(), id="drafts-rise"),
        pytest.param(Engine(gen=150), id="too-few-tokens-to-tell"),
        pytest.param(Engine(dt=0, acc=0, dr=0), id="no-token-count-at-all"),
        pytest.param(
            Engine(
                gen=400,
                histograms={"vllm:time_to_first_token_seconds": ([("1", 400), ("+Inf", 400)], 4.0)},
            ),
            id="one-token-each-leaves-nothing-to-draft",
        ),
    ],
)
def test_speculation_is_not_called_off(last: Engine) -> None:
    assert "SPEC_NOT_ACTIVE" not in codes(over_a_minute(begun(last), last))


def test_expectation_decides_what_missing_speculation_is() -> None:
    first, last = Engine(gen=0), Engine(gen=5000)
    assert codes(over_a_minute(first, last, expect_speculation=False)) == []
    assert codes(over_a_minute(first, last, expect_speculation=True)) == ["SPEC_NOT_ACTIVE"]


def test_ngram_that_finds_nothing_to_repeat_is_a_warning() -> None:
    last = Engine(gen=5000, dt=0, acc=0, dr=0, pos=[0] * 5)
    finding = only(over_a_minute(zero(), last, method="ngram"), "SPEC_NOT_ACTIVE")
    assert finding.severity == "warning"


def test_a_method_that_was_asked_for_is_named() -> None:
    finding = only(
        over_a_minute(Engine(gen=0), Engine(gen=900), method="eagle3"), "SPEC_NOT_ACTIVE"
    )
    assert finding.cause == "eagle3 was asked for and the engine runs without it"


def _sglang(length: float | None, **info: str) -> list[list[Scrape]]:
    gauge = {} if length is None else {"sglang:spec_accept_length": length}
    return [
        [
            answer(
                at, A, Engine(counts={"sglang:generation_tokens_total": tokens, **gauge}), info=info
            )
        ]
        for at, tokens in ((0, 0), (60, 5000))
    ]


def test_sglang_without_counters_is_judged_only_when_it_must_speculate() -> None:
    assert "SPEC_NOT_ACTIVE" not in codes(judge(*_sglang(0)))
    must = judge(*_sglang(0), expect_speculation=True)
    assert only(must, "SPEC_NOT_ACTIVE").severity == "critical"
    does = judge(*_sglang(2.4), expect_speculation=True)
    assert "SPEC_NOT_ACTIVE" not in codes(does)


def test_sglang_without_its_gauge_is_unknown_unless_it_tells_of_itself() -> None:
    assert "SPEC_NOT_ACTIVE" not in codes(judge(*_sglang(None)))
    must = judge(*_sglang(None), expect_speculation=True)
    finding = only(must, "SPEC_NOT_ACTIVE")
    assert finding.severity == "unknown"
    assert "cannot be told" in finding.cause
    told = judge(*_sglang(None, method="none"), expect_speculation=True)
    assert only(told, "SPEC_NOT_ACTIVE").severity == "critical"


def test_speculation_that_stopped_a_minute_ago_shows_under_a_long_window() -> None:
    rounds = [[answer(60 * i, A, good(1000 * i))] for i in range(10)]
    stuck = good(9000)
    for i in (10, 11):
        rounds.append([answer(60 * i, A, Engine(**{**stuck.__dict__, "gen": 30_000 + 5000 * i}))])
    finding = only(judge(*rounds, window_s=3600.0), "SPEC_NOT_ACTIVE")
    assert "over 60 s" in finding.evidence
    assert finding.since == AT + 540


@pytest.mark.parametrize("scrapes", [1, 2])
def test_t7_zero_acceptance_is_critical_at_the_first_run(scrapes: int) -> None:
    rounds = [[answer(0, A, zero())], [answer(60, A, NOTHING_ACCEPTED)]][-scrapes:]
    findings = judge(*rounds)
    assert codes(findings) == ["ZERO_ACCEPTANCE"]
    assert findings[0].severity == "critical"
    over = "over 60 s" if scrapes == 2 else "since the process started"
    assert findings[0].evidence == (
        f"accepted 0 of 5,000 draft tokens (0.000) {over}, n=1000 drafts"
    )
    assert "vllm#9534" in findings[0].cause


def test_a_lucky_token_does_not_hide_that_nothing_is_accepted() -> None:
    last = Engine(gen=1003, dt=5000, acc=3, dr=1000, pos=[3, 0, 0, 0, 0])
    assert codes(over_a_minute(zero(), last)) == ["ZERO_ACCEPTANCE"]


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(Engine(gen=40, dt=199, acc=0, dr=40, pos=[0] * 5), id="too-few-drafts"),
        pytest.param(Engine(gen=1100, dt=5000, acc=100, dr=1000, pos=[90, 10, 0, 0, 0]), id="few"),
        pytest.param(Engine(gen=1100, dt=5000, dr=1000), id="accepted-tokens-not-exported"),
    ],
)
def test_acceptance_that_is_not_zero_or_not_known_is_not_called_zero(last: Engine) -> None:
    assert "ZERO_ACCEPTANCE" not in codes(over_a_minute(zero(len(last.pos)), last))


def test_acceptance_that_fell_to_zero_a_minute_ago_shows_under_a_long_window() -> None:
    rounds = [[answer(60 * i, A, good(1000 * i))] for i in range(10)]
    for i in (10, 11):
        n = 1000.0 * (i - 9)
        base = good(9000)
        rounds.append([answer(60 * i, A, Engine(
            gen=(base.gen or 0) + n, dt=(base.dt or 0) + 3 * n, acc=base.acc,
            dr=(base.dr or 0) + n, pos=base.pos))])  # fmt: skip
    finding = only(judge(*rounds, window_s=3600.0), "ZERO_ACCEPTANCE")
    assert finding.since == AT + 540


def test_t8_a_cliff_after_position_0_has_its_own_name() -> None:
    for hold in (3600.0, 30.0):
        findings = over_a_minute(zero(), CLIFF, hold_s=hold)
        assert codes(findings) == ["PARALLEL_DRAFT_CLIFF"]
        finding = findings[0]
        assert "0.720, 0.090" in finding.evidence
        assert "p1/p0 0.125" in finding.evidence
        assert "n=1000 drafts" in finding.evidence
        assert "vllm#42004" in finding.cause
        assert "mask_hidden" in finding.cause
        assert "parallel_drafting" in finding.action


def test_a_p_eagle_checkpoint_served_one_by_one_is_suspected_under_eagle3() -> None:
    finding = only(over_a_minute(zero(), CLIFF, method="eagle3"), "PARALLEL_DRAFT_CLIFF")
    assert "without parallel_drafting" in finding.cause


@pytest.mark.parametrize(
    ("last", "method"),
    [
        pytest.param(good(), None, id="an-ordinary-slope"),
        pytest.param(
            Engine(gen=1300, dt=5000, acc=300, dr=1000, pos=[270, 20, 5, 3, 2]),
            None,
            id="position-0-is-low-too",
        ),
        pytest.param(
            Engine(gen=1836, dt=1500, acc=836, dr=1000, pos=[720, 90, 20, 5, 1]),
            None,
            id="draft-lengths-vary",
        ),
        pytest.param(CLIFF, "ngram", id="nothing-is-drafted-in-parallel"),
        pytest.param(Engine(gen=1720, dt=1000, acc=720, dr=1000, pos=[720]), None, id="k-is-1"),
        pytest.param(Engine(gen=58, dt=100, acc=16, dr=20, pos=[14, 1, 1, 0, 0]), None, id="few"),
    ],
)
def test_no_cliff(last: Engine, method: str | None) -> None:
    findings = over_a_minute(zero(len(last.pos)), last, method=method)
    assert "PARALLEL_DRAFT_CLIFF" not in codes(findings)


def test_low_acceptance_needs_the_whole_hold_time() -> None:
    def rounds(minutes: int) -> list[list[Scrape]]:
        return [
            [answer(60 * i, A, Engine(gen=1500 * i, dt=5000 * i, acc=500 * i, dr=1000 * i))]
            for i in range(minutes + 1)
        ]

    assert codes(judge(*rounds(60))) == []
    finding = only(judge(*rounds(61)), "LOW_ACCEPTANCE")
    assert finding.severity == "warning"
    assert finding.since == AT + 60
    assert finding.evidence == (
        "accepted 500 of 5,000 draft tokens (0.100) over 60 s, n=1000 drafts; under 0.4 for 60 min"
    )


def test_a_whole_recording_that_is_low_is_low() -> None:
    rounds = [[answer(0, A, zero())], [answer(3600, A, LOW)]]
    assert codes(judge(*rounds, window_s=None)) == ["LOW_ACCEPTANCE"]
    assert codes(judge(*rounds, window_s=None, hold_s=7200.0)) == []


def low_idle_low(last_s: int) -> list[list[Scrape]]:
    """A low minute, an hour without traffic, and low again."""

    def low(n: float) -> Engine:
        return Engine(gen=1500 * n, dt=5000 * n, acc=500 * n, dr=1000 * n)

    drafted = [min(at, 60) + max(0, at - 3660) for at in range(0, 3660 + last_s + 1, 15)]
    return [[answer(15 * i, A, low(n / 15))] for i, n in enumerate(drafted)]


@pytest.mark.parametrize("window_s", [60.0, 7200.0, None])
def test_an_hour_without_traffic_is_no_hour_of_low_acceptance(window_s: float | None) -> None:
    assert codes(judge(*low_idle_low(15), window_s=window_s, span_s=None)) == []
    rounds = low_idle_low(120)
    finding = only(judge(*rounds, window_s=window_s, span_s=None, hold_s=60.0), "LOW_ACCEPTANCE")
    held = int(finding.evidence.split("under 0.4 for ")[1].split()[0])
    assert 60 <= held <= 120


def test_a_pause_shorter_than_a_window_does_not_begin_the_hold_anew() -> None:
    def at(i: int) -> float:
        return i - i // 4  # every fourth quarter of a minute is idle

    rounds = [
        [answer(15 * i, A, Engine(gen=1500 * n, dt=5000 * n, acc=500 * n, dr=1000 * n))]
        for i in range(4 * 62 + 1)
        if (n := at(i)) >= 0
    ]
    assert only(judge(*rounds), "LOW_ACCEPTANCE").since is not None


def test_acceptance_that_came_back_is_not_low_any_more() -> None:
    rounds = [
        [answer(0, A, zero())],
        [answer(3600, A, LOW)],
        [
            answer(
                3660, A, Engine(gen=2500, dt=6000, acc=1400, dr=1200, pos=[450, 310, 260, 210, 170])
            )
        ],
    ]
    assert codes(judge(*rounds, window_s=None)) == []


def test_low_acceptance_of_an_engine_that_idles_now_is_history() -> None:
    rounds = [[answer(60 * i, A, Engine(gen=1500 * i, dt=5000 * i, acc=500 * i, dr=1000 * i))]
              for i in range(62)]  # fmt: skip
    rounds.append([answer(61 * 60 + 120, A, Engine(gen=1500 * 61, dt=5000 * 61, acc=500 * 61,
                                                   dr=1000 * 61))])  # fmt: skip
    assert codes(judge(*rounds)) == ["NO_TRAFFIC"]


def test_a_draft_that_is_good_at_first_is_told_a_shorter_k() -> None:
    last = Engine(gen=2100, dt=7000, acc=1100, dr=1000, pos=[500, 300, 150, 80, 40, 20, 10])
    rounds = [[answer(0, A, zero(7))], [answer(60, A, last)]]
    finding = only(judge(*rounds, hold_s=60.0), "LOW_ACCEPTANCE")
    assert finding.action == "num_speculative_tokens 2 would have 0.40 accepted on this traffic"


def test_stale_engines_say_nothing_of_acceptance() -> None:
    rounds = [[answer(0, A, zero())], [answer(60, A, NOTHING_ACCEPTED)]]
    assert codes(judge(*rounds, now=120)) == ["PARTIAL_DATA"]


def test_many_engines_with_one_fault_are_one_finding() -> None:
    targets = [f"http://e{i}:8000" for i in range(12)]

    def rounds(broken: int) -> list[list[Scrape]]:
        last = [
            answer(60, t, Engine(gen=900, dt=3000 + i, acc=0, dr=1000, pos=[0] * 3))
            if i < broken
            else answer(60, t, good())
            for i, t in enumerate(targets)
        ]
        return [[answer(0, t, zero(3)) for t in targets], last]

    assert codes(judge(*rounds(6))) == ["ZERO_ACCEPTANCE"] * 6
    finding = only(judge(*rounds(7)), "ZERO_ACCEPTANCE")
    assert finding.subject == "fleet"
    assert finding.evidence.startswith("7 of 12 engines, worst e6:8000/0: accepted 0 of 3,006 ")
    assert finding.since == AT


def test_three_engines_are_each_named() -> None:
    first = [answer(0, t, zero()) for t in (A, B, C)]
    last = [answer(60, t, NOTHING_ACCEPTED) for t in (A, B, C)]
    assert [f.subject for f in judge(first, last)] == ["a:8000/0", "b:8000/0", "c:8000/0"]


@dataclass(frozen=True)
class _Told(EngineSnapshot):
    """An engine whose server told its method."""

    method_told: bool = True


def test_a_server_that_says_it_has_no_draft_is_a_note() -> None:
    info = {"method": "none"}
    shot = snapshot(
        [answer(0, A, Engine(gen=0), info=info)], [answer(60, A, Engine(gen=5000), info=info)]
    )
    told = _Told(**{f.name: getattr(shot.engines[0], f.name) for f in fields(EngineSnapshot)})
    shot = replace(shot, engines=(told,))
    assert only(list(evaluate(shot, Thresholds())), "SPEC_NOT_ACTIVE").severity == "info"
    must = evaluate(shot, Thresholds(expect_speculation=True))
    assert only(list(must), "SPEC_NOT_ACTIVE").severity == "critical"


def test_old_counter_names_are_judged_alike() -> None:
    def old(acc: float, dt: float, dr: float) -> Engine:
        return Engine(gen=dr, counts={f"{SPEC}_draft_tokens": dt, f"{SPEC}_accepted_tokens": acc,
                                      f"{SPEC}_drafts": dr})  # fmt: skip

    assert codes(over_a_minute(old(0, 0, 0), old(0, 5000, 1000))) == ["ZERO_ACCEPTANCE"]


def low_for_a_minute(last: Engine = LOW) -> Snapshot:
    return snapshot([answer(0, A, begun(last))], [answer(60, A, last)])


def test_what_is_low_and_not_for_long_waits_for_its_hold_and_says_for_how_long() -> None:
    shot = low_for_a_minute()
    thresholds = Thresholds(hold_s=3600)
    assert evaluate(shot, thresholds) == ()
    (finding,) = waiting(shot, thresholds)
    assert (finding.code, finding.severity, finding.subject) == (
        "LOW_ACCEPTANCE",
        "warning",
        "a:8000/0",
    )
    assert finding.evidence.endswith("under 0.4 for 60 s of 60 min")
    (note,) = so_far(shot, thresholds)
    assert (note.severity, note.action) == ("info", finding.action)
    assert note.evidence == f"pending: {finding.evidence}"


@pytest.mark.parametrize(
    ("last", "hold_s"),
    [
        pytest.param(LOW, 60, id="held"),
        pytest.param(good(), 3600, id="good"),
        pytest.param(NOTHING_ACCEPTED, 3600, id="better-named"),
        pytest.param(CLIFF, 3600, id="better-named-too"),
    ],
)
def test_what_is_found_already_or_is_in_order_does_not_wait(last: Engine, hold_s: float) -> None:
    assert waiting(low_for_a_minute(last), Thresholds(hold_s=hold_s)) == ()


def test_most_of_a_fleet_waits_as_one() -> None:
    servers = [f"http://{c}:8000" for c in "abcd"]
    shot = snapshot(
        [answer(0, s, begun(LOW)) for s in servers], [answer(60, s, LOW) for s in servers]
    )
    (finding,) = waiting(shot, Thresholds())
    assert finding.subject == "fleet"
    assert finding.evidence.startswith("4 of 4 engines, worst a:8000/0: ")
