"""The laws of the discrete engine."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccli.core.sim import Acceptance, Change, SimConfig, SimEngine, StepCost, Traffic
from speccli.core.sim.config import METHODS, Method, default_acceptance
from speccli.core.sim.ledger import Ledger
from speccli.core.sim.request import QueueFullError

START = 1_795_000_000.0
NO_TRAFFIC = Traffic(rate_per_s=0.0)
EVEN = StepCost(jitter=0.0)


def make(seed: int = 0, **given_: Any) -> SimEngine:
    return SimEngine(replace(SimConfig(), **given_), lambda: START, seed)


def with_acceptance(*chances: float, **given_: Any) -> SimEngine:
    return make(k=len(chances), acceptance=Acceptance(chances), **given_)


def check_laws(ledger: Ledger, k: int) -> None:
    positions = ledger.accepted_per_position
    seen = ledger.histograms
    assert len(positions) == k
    assert sum(positions) == ledger.accepted_tokens
    assert ledger.accepted_tokens <= ledger.draft_tokens == k * ledger.drafts
    assert all(earlier >= later for earlier, later in pairwise([ledger.drafts, *positions]))
    assert (
        ledger.generation_tokens + ledger.cut_tokens
        == seen["ttft"].count + seen["itl"].count + ledger.accepted_tokens
    )
    assert ledger.drafts <= seen["itl"].count
    assert 0.0 <= ledger.kv_usage <= 1.0
    assert ledger.cached_tokens <= ledger.prompt_tokens
    assert ledger.prefix_hits <= ledger.prefix_queries
    finished = sum(ledger.finished.values())
    for name in ("e2e", "queue", "prefill", "decode", "inference", "tpot", "request_prompt"):
        assert seen[name].count == finished, name
    for histogram in seen.values():
        *buckets, count, total = histogram.samples()
        assert all(lower <= upper for lower, upper in pairwise(buckets))
        assert buckets[-1] == count
        assert total >= 0.0


@st.composite
def configs(draw: st.DrawFn) -> SimConfig:
    method: Method = draw(st.sampled_from(METHODS))
    k = 0 if method == "none" else draw(st.integers(1, 8))
    chances = draw(st.lists(st.floats(0.0, 1.0), min_size=k, max_size=k))
    match = draw(st.floats(0.0, 1.0)) if method == "ngram" else 1.0
    traffic = Traffic(
        rate_per_s=draw(st.floats(0.0, 20.0)),
        clients=draw(st.sampled_from([0, 0, 1, 7, 60])),
        think_s=draw(st.sampled_from([0.0, 0.5])),
        prompt_mean=draw(st.floats(1.0, 600.0)),
        output_mean=draw(st.floats(1.0, 120.0)),
        cached_share=draw(st.floats(0.0, 1.0)),
    )
    return SimConfig(
        method=method,
        k=k,
        acceptance=Acceptance(tuple(chances), match),
        traffic=traffic,
        max_model_len=1024,
        max_num_seqs=draw(st.integers(1, 64)),
        max_num_batched_tokens=draw(st.integers(64, 4096)),
        kv_tokens=draw(st.integers(1100, 8000)),
        max_queued_requests=draw(st.sampled_from([None, None, 3])),
    )


changes = st.lists(
    st.tuples(
        st.floats(0.0, 10.0),
        st.one_of(
            st.builds(Change, st.sampled_from(["acceptance", "later_positions"]), st.floats(0, 2)),
            st.builds(Change, st.just("traffic"), st.floats(0, 3)),
            st.builds(Change, st.sampled_from(["stall", "resume", "up"])),
            st.builds(Change, st.sampled_from(["restart", "down"]), st.floats(0, 2)),
        ),
    ),
    max_size=4,
)


@given(configs(), changes, st.integers(0, 2**32), st.lists(st.floats(0.0, 10.0), max_size=5))
@settings(max_examples=200, deadline=None)
def test_the_laws_hold_whatever_befalls_it(
    config: SimConfig, script: list[tuple[float, Change]], seed: int, looks: list[float]
) -> None:
    engine = SimEngine(config, lambda: START, seed)
    for at, change in script:
        engine.schedule(START + at, change)
    for look in [*sorted(looks), 10.0]:
        engine.advance(START + look)
        check_laws(engine.ledger, config.k)
        assert engine.now == START + look


@given(configs(), st.integers(0, 2**32), st.lists(st.floats(0.0, 8.0), max_size=6))
@settings(max_examples=60, deadline=None)
def test_the_numbers_do_not_depend_on_how_often_it_is_looked_at(
    config: SimConfig, seed: int, looks: list[float]
) -> None:
    once, often = (SimEngine(config, lambda: START, seed) for _ in range(2))
    once.advance(START + 8.0)
    for look in [*sorted(looks), 8.0]:
        often.advance(START + look)
    assert state(once) == state(often)


def state(engine: SimEngine) -> tuple[object, ...]:
    ledger = engine.ledger
    return (
        ledger.accepted_steps,
        ledger.generation_tokens,
        ledger.running,
        ledger.waiting,
        ledger.finished,
        [histogram.samples() for histogram in ledger.histograms.values()],
    )


def test_another_seed_is_another_run() -> None:
    one, same, other = make(1), make(1), make(2)
    for engine in (one, same, other):
        engine.advance(START + 30)
    assert state(one) == state(same)
    assert state(one) != state(other)


@pytest.mark.parametrize(
    "chances",
    [
        pytest.param((0.73, 0.71, 0.67), id="eagle3"),
        pytest.param((0.72, 0.125, 0.22, 0.25, 0.2), id="cliff"),
        pytest.param((1.0, 1.0), id="everything"),
        pytest.param((0.0, 0.9), id="nothing"),
    ],
)
def test_acceptance_comes_out_as_designed(chances: tuple[float, ...]) -> None:
    engine = with_acceptance(*chances, traffic=Traffic(clients=32))
    engine.advance(START + 40)
    ledger = engine.ledger
    assert ledger.drafts > 10_000
    for seen, wanted in zip(
        ledger.accepted_per_position, engine.acceptance.unconditional, strict=True
    ):
        spread = math.sqrt(wanted * (1 - wanted) / ledger.drafts)
        assert seen / ledger.drafts == pytest.approx(wanted, abs=5 * spread + 1e-12)


def test_p_eagle_is_weaker_after_position_0_only() -> None:
    usual, parallel = (default_acceptance(m, 3, 0.8) for m in ("eagle3", "p-eagle"))
    assert parallel.conditional[0] == usual.conditional[0] == 0.8
    assert all(a < 0.8 for a in parallel.conditional[1:])


def test_ngram_steps_without_a_match_count_no_draft() -> None:
    engine = make(method="ngram", k=4, acceptance=Acceptance((1.0,) * 4, match=0.2))
    engine.advance(START + 60)
    ledger = engine.ledger
    steps = ledger.histograms["itl"].count
    assert ledger.drafts / steps == pytest.approx(0.2, abs=0.02)
    assert 1 + ledger.accepted_tokens / ledger.drafts == 5.0
    first = ledger.histograms["ttft"].count
    assert (ledger.generation_tokens - first) / steps == pytest.approx(1.8, abs=0.1)


def test_one_request_is_counted_as_vllm_counts_it() -> None:
    engine = with_acceptance(1.0, 1.0, 1.0, traffic=NO_TRAFFIC, cost=EVEN)
    heard: list[tuple[float, int, bool]] = []
    engine.submit(
        100, 10, max_tokens=10, reason="length", listener=lambda *step: heard.append(step)
    )
    engine.advance(START + 5)
    # 1 by the prefill, then 4 a step, of which the last is cut from 4 to 1.
    assert [new for _, new, _ in heard] == [1, 4, 4, 1]
    assert [last for _, _, last in heard] == [False, False, False, True]
    ledger, seen = engine.ledger, engine.ledger.histograms
    assert (ledger.drafts, ledger.draft_tokens, ledger.accepted_tokens) == (3, 9, 9)
    assert (ledger.generation_tokens, ledger.cut_tokens, ledger.prompt_tokens) == (10, 3, 100)
    assert (seen["ttft"].count, seen["itl"].count, seen["iteration"].count) == (1, 3, 4)
    assert seen["iteration"].total == 110
    times = [at for at, _, _ in heard]
    assert seen["ttft"].total == pytest.approx(times[0] - START)
    assert seen["decode"].total == pytest.approx(times[-1] - times[0])
    assert seen["tpot"].total == pytest.approx((times[-1] - times[0]) / 9)
    assert seen["e2e"].total == pytest.approx(times[-1] - START)
    assert seen["itl"].total == pytest.approx(times[-1] - times[0])
    assert ledger.finished["length"] == 1
    assert (ledger.running, ledger.waiting) == (0, 0)


def test_token_latency_is_seen_once_a_step_so_it_rises_while_time_per_token_falls() -> None:
    plain = make(method="none", k=0, acceptance=Acceptance(()), traffic=Traffic(clients=8))
    drafted = make(traffic=Traffic(clients=8))
    means = []
    for engine in (plain, drafted):
        engine.advance(START + 120)
        seen = engine.ledger.histograms
        means.append([seen[name].total / seen[name].count for name in ("itl", "tpot")])
    assert means[1][0] > means[0][0]
    assert means[1][1] < means[0][1]


@pytest.mark.parametrize("k", [3, 5])
def test_speculation_wins_at_small_batches_and_loses_at_large_ones(k: int) -> None:
    def speed(clients: int, drafts: int) -> float:
        engine = make(
            method="eagle3" if drafts else "none",
            k=drafts,
            acceptance=default_acceptance("eagle3", drafts),
            traffic=Traffic(clients=clients),
            max_num_seqs=256,
        )
        engine.advance(START + 60)
        return engine.ledger.generation_tokens / 60

    gains = [speed(clients, k) / speed(clients, 0) for clients in (1, 16, 64, 192)]
    assert gains[0] > 1.8
    assert all(earlier > later for earlier, later in pairwise(gains))
    assert gains[2] > 1.0 > gains[3]


def test_a_full_cache_preempts_and_the_wait_shows_in_token_latency_not_in_the_queue() -> None:
    engine = make(traffic=Traffic(clients=40, prompt_mean=300, output_mean=300), kv_tokens=9000)
    engine.advance(START + 60)
    ledger, seen = engine.ledger, engine.ledger.histograms
    assert ledger.preemptions > 10
    assert seen["request_preemptions"].total > 0
    assert ledger.kv_usage > 0.8
    assert ledger.waiting > 0
    slowest = seen["itl"].counts[11:]
    assert sum(slowest) > 0
    check_laws(ledger, 3)


def test_seats_are_limited_and_the_queue_is_first_come_first_served() -> None:
    engine = make(traffic=NO_TRAFFIC, max_num_seqs=2, max_queued_requests=2)
    order: list[int] = []

    def listener(number: int) -> object:
        return lambda _at, _new, last: order.append(number) if last else None

    def submit(number: int) -> None:
        engine.submit(
            50,
            20,
            max_tokens=20,
            reason="length",
            listener=listener(number),  # type: ignore[arg-type]
        )

    for number in (0, 1):
        submit(number)
    engine.advance(START + 0.001)
    for number in (2, 3):
        submit(number)
    with pytest.raises(QueueFullError):
        submit(4)
    assert engine.ledger.rejections == 1
    engine.advance(START + 0.06)
    assert (engine.ledger.running, engine.ledger.waiting) == (2, 2)
    engine.advance(START + 10)
    assert sorted(order[:2]) == [0, 1]
    assert sorted(order[2:]) == [2, 3]
    assert engine.listeners == 0


def test_a_request_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        make().submit(8000, 500, max_tokens=500, reason="length", listener=lambda *_: None)


def test_an_aborted_request_counts_among_the_finished() -> None:
    engine = make(traffic=NO_TRAFFIC)
    request = engine.submit(50, 500, max_tokens=500, reason="stop", listener=lambda *_: None)
    engine.advance(START + 0.5)
    engine.abort(request)
    engine.abort(request)
    engine.advance(START + 2)
    assert engine.ledger.finished["abort"] == 1
    assert (engine.ledger.running, engine.listeners) == (0, 0)
    check_laws(engine.ledger, 3)


def test_a_long_prompt_is_computed_in_parts_and_counted_when_complete() -> None:
    engine = make(traffic=NO_TRAFFIC, max_num_batched_tokens=512, cost=EVEN)
    engine.submit(2000, 1, max_tokens=1, reason="length", listener=lambda *_: None)
    engine.advance(START + 2)
    seen = engine.ledger.histograms
    assert (seen["iteration"].count, seen["iteration"].total) == (1, 2001)
    four_steps = 4 * EVEN.base_s + 2000 * (EVEN.prefill_token_s + 4 * EVEN.context_token_s)
    assert seen["ttft"].total == pytest.approx(four_steps)
    assert seen["tpot"].total == 0.0


def test_a_stalled_engine_shows_its_last_gauges_and_nothing_leaves() -> None:
    engine = make(traffic=Traffic(clients=12))
    engine.schedule(START + 20, Change("stall"))
    engine.schedule(START + 50, Change("resume"))
    engine.advance(START + 21)
    before = state(engine)
    engine.advance(START + 49)
    assert state(engine) == before
    assert engine.ledger.running > 0
    assert not engine.down
    engine.advance(START + 60)
    assert engine.ledger.generation_tokens > 0
    assert sum(engine.ledger.histograms["itl"].counts[17:]) >= engine.ledger.running
    check_laws(engine.ledger, 3)


def test_a_restart_forgets_everything_and_is_a_new_process() -> None:
    engine = make()
    engine.schedule(START + 30, Change("restart", 8.0))
    engine.advance(START + 29)
    assert engine.started_at == START
    assert engine.ledger.generation_tokens > 0
    engine.advance(START + 31)
    assert engine.down
    assert (engine.ledger.generation_tokens, engine.ledger.running) == (0, 0)
    engine.advance(START + 37.9)
    assert engine.down
    engine.advance(START + 45)
    assert not engine.down
    assert engine.started_at == START + 38
    assert engine.ledger.generation_tokens > 0


def test_a_request_in_flight_ends_in_error_when_its_engine_restarts() -> None:
    engine = make(traffic=NO_TRAFFIC)
    heard: list[bool] = []
    request = engine.submit(
        50, 500, max_tokens=500, reason="stop", listener=lambda _at, _new, last: heard.append(last)
    )
    engine.schedule(START + 1, Change("restart", 1.0))
    engine.advance(START + 1.5)
    assert heard[-1] is True
    assert request.reason == "error"


def test_down_stays_down_until_up() -> None:
    engine = make()
    engine.apply(Change("down"))
    engine.advance(START + 500)
    assert engine.down
    engine.apply(Change("up"))
    engine.advance(START + 520)
    assert not engine.down
    assert engine.ledger.generation_tokens > 0
    assert engine.started_at == START + 500


def test_traffic_can_stop_and_come_back() -> None:
    for traffic in (Traffic(), Traffic(clients=10)):
        engine = make(traffic=traffic)
        engine.schedule(START + 10, Change("traffic", 0.0))
        engine.advance(START + 100)
        quiet = engine.ledger.generation_tokens
        assert engine.ledger.running == 0
        engine.advance(START + 200)
        assert engine.ledger.generation_tokens == quiet
        engine.apply(Change("traffic", 1.0))
        engine.advance(START + 230)
        assert engine.ledger.generation_tokens > quiet


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 0}, "cannot draft"),
        ({"method": "none"}, "cannot draft"),
        ({"method": "eagle"}, "eagle3"),
        ({"k": 4}, "acceptances"),
        ({"model": "llama"}, "SIMULATED/"),
        ({"version": "0.1.0"}, "older"),
        ({"kv_tokens": 100}, "kv_tokens"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(**wrong)


def test_an_acceptance_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.\.1"):
        Acceptance((1.2,))
