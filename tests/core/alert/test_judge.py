"""The judge over the simulator's scenarios, across runs, and over pages that lie."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speccli.core.alert.judge import Judge
from speccli.core.baseline import Baseline, Key
from speccli.core.baseline.model import BatchSpeed
from speccli.core.baseline.reference import REFERENCES
from speccli.core.findings import Finding, Thresholds
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings, Window
from tests.core.alert.streams import play, recorded
from tests.core.findings.bodies import Engine, answer, codes, only, snapshot, zero
from tests.core.findings.test_properties import rounds

SLOW = Thresholds(drift_every_s=60.0)


@cache
def good() -> Baseline:
    return recorded("steady")


def told(findings: tuple[Finding, ...]) -> list[tuple[str, str, str]]:
    return [(f.code, f.severity, f.subject) for f in findings]


def last_of(judge: Judge, *shots: Snapshot) -> tuple[Finding, ...]:
    found: tuple[Finding, ...] = ()
    for shot in shots:
        found = judge.observe(shot)
    return found


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("steady", []),
        ("restart", []),
        ("drift", [("ACCEPTANCE_DRIFT", "warning", "fleet")]),
        ("traffic-shift", [("ACCEPTANCE_DRIFT", "info", "fleet")]),
        ("zero", [("ZERO_ACCEPTANCE", "critical", "sim-2:8000/0")]),
        ("drop", [("ACCEPTANCE_DRIFT", "critical", "sim-2:8000/0")]),
    ],
)
def test_a_scenario_raises_what_it_is_about(
    scenario: str, expected: list[tuple[str, str, str]]
) -> None:
    judge = Judge(good(), SLOW)
    assert told(last_of(judge, *play(scenario, n=3, seed=5))) == expected


def test_drift_is_put_down_to_the_draft_and_a_shift_to_the_traffic() -> None:
    drift = only(last_of(Judge(good(), SLOW), *play("drift")), "ACCEPTANCE_DRIFT")
    assert drift.cause.startswith("the draft, as far as counters tell")
    assert "against 0.56" in drift.evidence
    shift = only(last_of(Judge(good(), SLOW), *play("traffic-shift")), "ACCEPTANCE_DRIFT")
    assert shift.cause.startswith("traffic, not the draft")
    assert "prompts of 2,0" in shift.cause


def test_a_mix_that_the_baseline_knows_explains_itself() -> None:
    both = recorded("steady", "traffic-shift")
    assert sum(each.looks >= 10 for each in both.bins) == 2
    found = last_of(Judge(both, SLOW), *play("traffic-shift", seed=9))
    assert all(f.severity == "info" for f in found)


def test_a_cliff_keeps_its_own_name() -> None:
    made: dict[str, Any] = {"method": "p-eagle", "n": 2}
    found = last_of(Judge(recorded("steady", **made), SLOW), *play("cliff", **made))
    assert codes(found) == ["PARALLEL_DRAFT_CLIFF", "PARALLEL_DRAFT_CLIFF"]


def test_what_one_process_sees_many_runs_see() -> None:
    """Cron: a new window and a new judge each time, the state through JSON."""
    base = good()
    whole, state = Judge(base, SLOW), None
    found: tuple[Finding, ...] = ()
    for shot in play("drift", minutes=20):
        at_once = whole.observe(shot)
        judge = Judge(base, SLOW, state)
        found = judge.observe(shot)
        assert judge.note is None
        state = json.loads(json.dumps(judge.state(), allow_nan=False))
        assert found == at_once
    assert codes(found) == ["ACCEPTANCE_DRIFT"]


def test_a_cron_job_counts_what_grew_between_its_runs() -> None:
    """Windows of 10 s every five minutes: the growth in between is judged all the same."""
    base = replace(good(), key=Key())
    state = None
    for run in range(3):
        shots, thirds = [], []
        for at in (300 * run, 300 * run + 10):
            n = 40 * at
            page = Engine(gen=2 * n, dt=3 * n, acc=n, dr=n, pos=[0.5 * n, 0.3 * n, 0.2 * n])
            thirds.append([answer(at, "http://a:8000", page)])
        shots.append(snapshot(*thirds))
        judge = Judge(base, Thresholds(), state)
        found = last_of(judge, *shots)
        state = judge.state()
    assert judge._fleet.whole.since.drafts == pytest.approx(40 * 610)
    assert codes(found) == ["ACCEPTANCE_DRIFT"]


QWEN = next(each for each in REFERENCES if "qwen" in each.name)


def pair(positions: tuple[float, ...], **more: Any) -> Snapshot:
    """Inputs of vLLM's own acceptance test: 1,000 drafts of K = 3."""
    model = more.pop("model", "Qwen/Qwen3-8B")
    acc = sum(positions)
    page = Engine(gen=1000 + acc, dt=3000, acc=acc, dr=1000, pos=positions, model=model)
    return snapshot(
        [answer(0, "http://a:8000", zero(3, model=model))],
        [answer(60, "http://a:8000", page, **more)],
    )


def test_the_reference_pair_is_judged_at_once() -> None:
    same = Key(dataset="philschmid/mt-bench")
    assert Judge(QWEN, Thresholds(), running=same).observe(pair((650, 400, 200))) == ()
    found = Judge(QWEN, Thresholds(), running=same).observe(pair((600, 340, 150)))
    drift = only(found, "ACCEPTANCE_DRIFT")
    assert drift.severity == "warning"
    assert "length 2.09 against 2.26" in drift.evidence


def test_live_traffic_is_not_held_against_a_fixed_set_of_prompts() -> None:
    found = Judge(QWEN, Thresholds()).observe(pair((600, 340, 150)))
    assert told(found) == [("BASELINE_KEY_MISMATCH", "unknown", "a:8000/0")]
    assert "dataset philschmid/mt-bench -> live traffic" in found[0].evidence


def test_the_part_of_the_key_that_differs_is_named() -> None:
    same = Key(dataset="philschmid/mt-bench")
    other = pair((600, 340, 150), model="Qwen/Qwen3-14B")
    found = Judge(QWEN, Thresholds(), running=same).observe(other)
    assert codes(found) == ["BASELINE_KEY_MISMATCH"]
    assert "target Qwen/Qwen3-8B -> Qwen/Qwen3-14B" in found[0].evidence
    forced = Judge(QWEN, Thresholds(), running=same, force=True).observe(other)
    assert told(forced) == [
        ("ACCEPTANCE_DRIFT", "warning", "a:8000/0"),
        ("BASELINE_KEY_MISMATCH", "info", "a:8000/0"),
    ]


def test_a_draft_older_than_its_target() -> None:
    base = replace(
        QWEN,
        tolerance=None,
        key=Key(target_revision="a1", draft="d", draft_revision="7"),
    )
    shot = pair((650, 400, 200))
    behind = Key(target_revision="b2", draft="d", draft_revision="7")
    found = Judge(base, Thresholds(), running=behind).observe(shot)
    assert told(found) == [("DRAFT_BEHIND_TARGET", "warning", "a:8000/0")]
    assert "target revision a1 -> b2, with draft d, draft revision 7" in found[0].evidence
    both = Key(target_revision="b2", draft="d", draft_revision="8")
    found = Judge(base, Thresholds(), running=both).observe(shot)
    assert codes(found) == ["BASELINE_KEY_MISMATCH"]
    alike = Key(target_revision="a1", draft="d", draft_revision="7")
    assert Judge(base, Thresholds(), running=alike).observe(shot) == ()


@pytest.mark.parametrize(
    ("plain", "wrong"),
    [((6000.0, 9000.0), True), ((2000.0, 3000.0), False), ((), False)],
    ids=["slower", "faster", "no-plain-arm"],
)
def test_batch_collapse(plain: tuple[float, ...], wrong: bool) -> None:
    """100 requests a step, 100 steps/s, 5,000 tokens/s."""
    buckets = {
        "vllm:inter_token_latency_seconds": ([("1.0", 599_000), ("+Inf", 599_000)], 1.0),
        "vllm:time_to_first_token_seconds": ([("1.0", 1000), ("+Inf", 1000)], 1.0),
    }
    steps = {"vllm:iteration_tokens_total_count": 6000.0}
    n = 100_000
    end = Engine(
        gen=300_000, dt=3 * n, acc=1.25 * n, dr=n, pos=[0.65 * n, 0.4 * n, 0.2 * n],
        counts=steps, histograms=buckets,
    )  # fmt: skip
    none = {name: ([(le, 0.0) for le, _ in rows], 0.0) for name, (rows, _) in buckets.items()}
    begin = replace(zero(3), counts=dict.fromkeys(steps, 0.0), histograms=none)
    shot = snapshot([answer(0, "http://a:8000", begin)], [answer(60, "http://a:8000", end)])
    rows = tuple(BatchSpeed(b, s, 60.0) for b, s in zip((64.0, 128.0), plain, strict=False))
    base = replace(QWEN, key=Key(), tolerance=None, plain=rows)
    found = Judge(base, Thresholds()).observe(shot)
    assert ("BATCH_COLLAPSE" in codes(found)) is wrong
    if wrong:
        assert "5,000 output tokens/s at batch 100" in only(found, "BATCH_COLLAPSE").evidence


def test_a_slide_is_said_of_its_engine() -> None:
    acc, shots, window = 0.0, [], Window(Settings())
    for i in range(60):
        rate = 0.6 - 0.1 * i / 60
        acc += 90_000 * rate
        n = 30_000.0 * (i + 1)
        page = Engine(gen=n + acc, dt=3 * n, acc=acc, dr=n)
        window.push([answer(300.0 * i, "http://a:8000", page)])
        shots.append(window.snapshot())
    judge = Judge(replace(QWEN, key=Key(), tolerance=None), Thresholds(drift_margin=1.0))
    assert "ACCEPTANCE_SLOPE" not in codes(last_of(judge, *shots)), "mix unknown: a day"
    judge._units["a:8000/0"].slope.mixed = True
    found = judge.observe(shots[-1])
    assert "acceptance down 9." in only(found, "ACCEPTANCE_SLOPE").evidence


def test_a_restart_cuts_the_history() -> None:
    judge = Judge(good(), SLOW)
    shots = list(play("drift", n=1, minutes=20))
    assert codes(last_of(judge, *shots)) == ["ACCEPTANCE_DRIFT"]
    again = [
        replace(s, at=s.at + 1300, engines=tuple(_later(e, 1300) for e in s.engines))
        for s in play("steady", n=1, minutes=3)
    ]
    assert last_of(judge, *again) == ()


def _later(engine: Any, seconds: float) -> Any:
    points = [replace(point, at=point.at + seconds) for point in engine.points]
    started = None if engine.started is None else engine.started + seconds
    return replace(engine, at=engine.at + seconds, started=started, points=points)


@pytest.mark.parametrize(
    "state",
    [
        {},
        [],
        "x",
        {"version": 2},
        {"version": 1, "baseline": None, "meter": 3, "fleet": {}, "engines": {}},
    ],
)
def test_a_state_that_cannot_be_used_is_dropped_and_said(state: Any) -> None:
    judge = Judge(good(), SLOW, state)
    assert judge.note is not None
    assert "begins anew" in judge.note
    assert last_of(judge, *play("steady", minutes=2)) == ()


def test_another_baseline_makes_old_evidence_void() -> None:
    judge = Judge(good(), SLOW)
    last_of(judge, *play("drift", minutes=20))
    other = Judge(replace(good(), name="other"), SLOW, judge.state())
    assert other.note == "another baseline than before: the evidence begins anew"
    first = Judge(good(), SLOW, Judge(None, SLOW).state())
    assert first.note is None
    assert not other._fleet.whole.alarm


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(rounds(), st.sampled_from([None, 60.0]), st.booleans())
def test_no_fleet_makes_a_judge_raise(
    fleet: list[list[Scrape]], window_s: float | None, force: bool
) -> None:
    base = replace(QWEN, key=Key(k=3), tolerance=None, bins=())
    thresholds = Thresholds(drift_every_s=1.0, drift_min_drafts=1.0, drift_looks=2.0)
    window, state = Window(Settings(window_s=window_s)), None
    for scrapes in fleet:
        window.push(scrapes)
        judge = Judge(base, thresholds, state, force=force)
        assert judge.note is None
        for finding in judge.observe(window.snapshot()):
            assert finding.evidence
            assert "nan" not in finding.evidence
            assert not finding.cause.endswith(".")
        state = json.loads(json.dumps(judge.state(), allow_nan=False))
