"""The fluid engine keeps the laws between counters and agrees with the discrete one."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccli.core.sim import Change, FluidEngine, SimConfig, SimEngine, Traffic, build_fleet
from tests.core.sim.conftest import ManualClock
from tests.core.sim.test_engine import START, check_laws, configs
from tests.support.tracing import untraced


@given(
    configs(),
    st.integers(0, 2**32),
    st.lists(st.floats(0.0, 60.0), max_size=6),
    st.sampled_from(["stall", "restart", "down", "acceptance", "traffic"]),
)
@settings(max_examples=100, deadline=None)
def test_the_laws_hold(config: SimConfig, seed: int, looks: list[float], kind: str) -> None:
    engine = FluidEngine(config, lambda: START, seed)
    engine.schedule(START + 20, Change(kind, 0.5))  # type: ignore[arg-type]
    for look in [*sorted(looks), 60.0]:
        engine.advance(START + look)
        check_laws(engine.ledger, config.k)


@pytest.mark.parametrize(
    "traffic",
    [
        pytest.param(Traffic(rate_per_s=4.0), id="usual"),
        pytest.param(Traffic(rate_per_s=0.5), id="light"),
        pytest.param(Traffic(clients=48), id="closed-loop"),
    ],
)
def test_it_agrees_with_the_discrete_engine_in_the_mean(traffic: Traffic) -> None:
    config = SimConfig(traffic=traffic)
    engines = FluidEngine(config, lambda: START, 1), SimEngine(config, lambda: START, 1)
    for engine in engines:
        for second in range(1, 601):
            engine.advance(START + second)
    fluid, discrete = (engine.ledger for engine in engines)
    for name, tolerance in {"generation_tokens": 0.1, "drafts": 0.12}.items():
        assert getattr(fluid, name) == pytest.approx(getattr(discrete, name), rel=tolerance)
    rates = [ledger.accepted_tokens / ledger.draft_tokens for ledger in (fluid, discrete)]
    assert rates[0] == pytest.approx(rates[1], abs=0.01)
    for name in ("itl", "tpot", "e2e", "ttft"):
        means = [
            ledger.histograms[name].total / ledger.histograms[name].count
            for ledger in (fluid, discrete)
        ]
        assert means[0] == pytest.approx(means[1], rel=0.35), name


def test_more_traffic_than_it_can_serve_waits() -> None:
    engine = FluidEngine(SimConfig(traffic=Traffic(rate_per_s=30.0)), lambda: START)
    for second in range(1, 61):
        engine.advance(START + second)
    queue = engine.ledger.histograms["queue"]
    assert engine.ledger.waiting > 100
    assert queue.total / queue.count > 1.0
    assert engine.ledger.running == engine.config.max_num_seqs


def test_a_stalled_one_hangs_and_a_restarted_one_begins_again() -> None:
    engine = FluidEngine(SimConfig(), lambda: START)
    engine.advance(START + 20)
    engine.apply(Change("stall"))
    before = engine.ledger.generation_tokens, engine.revision
    engine.advance(START + 40)
    assert (engine.ledger.generation_tokens, engine.revision) == before
    assert engine.ledger.running > 0
    engine.apply(Change("restart", 5.0))
    engine.advance(START + 44)
    assert engine.down
    engine.advance(START + 60)
    assert not engine.down
    assert engine.started_at == START + 45
    assert 0 < engine.ledger.generation_tokens < before[0]


def test_the_grid_of_ticks_makes_it_independent_of_the_looks() -> None:
    one, often = (FluidEngine(SimConfig(), lambda: START, 3) for _ in range(2))
    one.advance(START + 10)
    for tenth in range(1, 101):
        often.advance(START + tenth / 10)
    assert one.ledger.accepted_steps == often.ledger.accepted_steps


def test_two_thousand_engines_advance_in_well_under_their_time(clock: ManualClock) -> None:
    fleet = build_fleet(2000, clock=clock)
    assert all(isinstance(engine, FluidEngine) for engine in fleet.engines)
    with untraced():
        begin = time.thread_time()
        clock.now += 10.0
        fleet.advance()
        took = time.thread_time() - begin
    assert took < 5.0
    assert sum(engine.ledger.drafts > 0 for engine in fleet.engines) == 2000
