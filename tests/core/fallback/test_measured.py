"""What a bench says of the rungs: by the present batch, with its interval, or not at all."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from speccli.core.bench.results import Result, Samples
from speccli.core.fallback.measured import Bench, Expected, passed_over
from speccli.core.fallback.rungs import lessened, steps
from speccli.core.recipes.load import load
from speccli.core.recipes.model import Draft, Recipe
from speccli.core.values import Number
from tests.support.benches import PLAIN, RATES, Noise, Planted, bench, sweep

RECIPE = load("llama-3.3-70b-eagle3-h200", ["cost.gpu_hour_usd=3.6"])
QUIET = Noise(run=0.002, drift=0.005, prompt=0.02, request=0.01)
EAGLE, NGRAM, OFF = RECIPE.draft, lessened(RECIPE, "ngram").draft, Draft()
K1 = steps(RECIPE)[0].recipe.draft
ARMS = [
    PLAIN,
    Planted("eagle3", {1: 1.9, 8: 1.7, 32: 1.5, 64: 1.24, 128: 0.77}),
    Planted("eagle3-k1", {1: 1.5, 8: 1.4, 32: 1.3, 64: 1.2, 128: 0.9}, k=1),
    Planted("ngram", {1: 1.1, 8: 1.08, 32: 1.05, 64: 0.9, 128: 0.8}, "ngram", 3),
]


def result(**given: Any) -> Result:
    return bench(ARMS, **{"noise": QUIET, "prompts": 60, **given})


@cache
def usual() -> Result:
    return result()


def at(batch: float | None, found: Result | None = None, recipe: Recipe = RECIPE) -> Bench:
    number = Number.unknown("no engine tells") if batch is None else Number.known(batch)
    return Bench(usual() if found is None else found, recipe, number)


def test_a_rung_has_the_speed_tail_and_cost_measured_at_the_nearest_batch() -> None:
    found = at(30).expected(OFF)
    assert found.batch == 32
    rate = found.tokens_per_s
    assert rate.value == pytest.approx(RATES[32], rel=0.03)
    assert rate.value is not None
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < rate.value < rate.high
    assert found.usd_per_1m.value == pytest.approx(3.6 / 3600 / rate.value * 1e6)
    assert found.usd_per_1m.low == pytest.approx(3.6 / 3600 / rate.high * 1e6)
    assert found.tpot_p99_s.n == 180, "of the requests of all three repeats together"
    assert found.tpot_p99_s.low is not None
    assert found.how == "simulated"


def test_the_price_is_the_recipes_before_the_benchs() -> None:
    dear = replace(RECIPE, cost=replace(RECIPE.cost, gpu_hour_usd=36.0))
    free = replace(RECIPE, cost=replace(RECIPE.cost, gpu_hour_usd=None))
    rate = at(1).expected(OFF).tokens_per_s.value or 1.0
    assert at(1, recipe=dear).expected(OFF).usd_per_1m.value == pytest.approx(1e4 / rate)
    assert at(1, recipe=free).expected(OFF).usd_per_1m.value == pytest.approx(2500 / 3.6 / rate)
    unpriced = usual()
    unpriced = replace(unpriced, arms=tuple(replace(a, gpu_hour_usd=None) for a in unpriced.arms))
    told = at(1, unpriced, free).expected(OFF).usd_per_1m
    assert (told.value, told.state) == (None, "unknown")
    assert "no price" in str(told.reason)


@pytest.mark.parametrize(
    ("made", "draft", "reason"),
    [
        pytest.param(Bench(None, RECIPE, Number.known(8)), OFF, "no bench given", id="no-bench"),
        pytest.param(at(None), OFF, "batch is not known: no engine tells", id="no-batch"),
        pytest.param(at(400), OFF, "measured at batch 1, 8, 32, 64, 128; now it is 400", id="far"),
        pytest.param(at(8), Draft("suffix", k=3), "has no arm of it", id="no-arm"),
        pytest.param(at(8), replace(NGRAM, k=7), "has no arm of it", id="another-k"),
    ],
)
def test_what_nobody_measured_is_unknown_with_its_reason(
    made: Bench, draft: Draft, reason: str
) -> None:
    found: Expected = made.expected(draft)
    for told in (found.tokens_per_s, found.tpot_p99_s, found.ttft_p99_s, found.usd_per_1m):
        assert told.value is None
        assert told.state == "unknown"
        assert reason in str(told.reason)
    assert found.how == "unmeasured"


def test_measured_once_has_no_interval_and_says_so() -> None:
    told = at(8, result(repeats=1)).expected(OFF).tokens_per_s
    assert told.value is not None
    assert (told.low, told.high) == (None, None)
    assert told.reason == "measured once: no interval"
    assert "measured once" in at(8, result(repeats=1)).faster(EAGLE, OFF).words()


def test_an_interval_of_few_repeats_ends_at_nothing_and_not_below() -> None:
    wild = result(repeats=2, noise=Noise(run=0.9))
    told = [at(n, wild).expected(OFF) for n in (1, 8, 32, 64, 128)]
    lows = [each.tokens_per_s.low for each in told]
    assert min(low for low in lows if low is not None) == 0.0
    for each in told:
        if each.tokens_per_s.low == 0.0:
            assert each.usd_per_1m.high is None, "what it may cost has no upper end"
            assert each.usd_per_1m.low is not None


def test_p99s_of_several_rows_without_requests_do_not_add_up() -> None:
    found = usual()
    bare = replace(found, rows=tuple(replace(row, samples=Samples()) for row in found.rows))
    told = at(8, bare).expected(OFF).tpot_p99_s
    assert told.value is None
    assert "do not add up" in str(told.reason)
    one = result(repeats=1, prompts=120)
    kept = replace(one, rows=tuple(replace(row, samples=Samples()) for row in one.rows))
    assert at(8, kept).expected(OFF).tpot_p99_s.value is not None


def test_where_off_is_faster_ngram_is_not_stopped_at() -> None:
    drafts = [K1, NGRAM, OFF]
    assert passed_over(at(8), drafts, 1, EAGLE) is None
    told = passed_over(at(64), drafts, 1, EAGLE)
    assert told is not None
    assert told.startswith("no speculation is 1.1")
    assert "not proven" not in told
    assert passed_over(at(64), drafts, 0, EAGLE) is None, "less of K is still faster there"
    assert passed_over(at(128), drafts, 0, EAGLE) is not None
    assert passed_over(at(128), drafts, 2, EAGLE) is None, "nothing is below off"


def test_a_difference_within_noise_is_told_as_not_proven() -> None:
    noisy = result(repeats=2, prompts=10, noise=Noise(run=0.1, prompt=0.3))
    told = passed_over(at(64, noisy), [NGRAM, OFF], 0, EAGLE)
    assert told is None or "not proven" in told
    close = bench(
        [PLAIN, Planted("ngram", {8: 0.99}, "ngram", 3)], batches=(8,), noise=QUIET, prompts=60
    )
    assert passed_over(at(8, close), [NGRAM, OFF], 0, EAGLE) is None, "one per cent moves nobody"


def test_without_a_bench_nothing_is_passed_over() -> None:
    nothing = Bench(None, RECIPE, Number.known(64))
    assert passed_over(nothing, [K1, NGRAM, OFF], 1, EAGLE) is None


def test_an_unmeasured_rung_gives_way_to_one_that_beats_what_serves() -> None:
    arms = [arm for arm in ARMS if arm.name != "eagle3-k1"]
    found = bench(arms, noise=QUIET, prompts=60)
    drafts = [K1, NGRAM, OFF]
    told = passed_over(at(128, found), drafts, 0, EAGLE)
    assert told is not None
    assert "not measured at this batch, and" in told
    assert "as what serves now" in told
    assert passed_over(at(8, found), drafts, 0, EAGLE) is None, "none is faster than what serves"


def test_k_by_batch_comes_from_a_sweep() -> None:
    curves = {3: {1: 1.9, 32: 1.5, 128: 0.8}, 1: {1: 1.5, 32: 1.3, 128: 0.95}}
    found = sweep(curves, batches=(1, 32, 128), prompts=30, noise=QUIET)
    ranges = at(8, found).schedule(EAGLE)
    assert ranges is not None
    assert [k for _, _, k in ranges] == [3, 0]
    assert at(8).schedule(Draft("p-eagle", k=3)) is None
    less = at(8, found).schedule(replace(EAGLE, k=2))
    assert less is not None
    assert [k for _, _, k in less] == [2, 0], "a rung drafts no more than what it is a rung of"
    split = replace(RECIPE, serving=replace(RECIPE.serving, data_parallel=2))
    assert at(8, found, split).schedule(EAGLE) is None, "vLLM ignores it there"


def test_k_by_batch_is_told_by_the_k_that_it_takes_there() -> None:
    ranges = ((1, 32, 3), (33, 100, 1), (101, 128, 0))
    draft = replace(EAGLE, schedule=ranges)
    assert [at(n).expected(draft).arm for n in (8, 64, 128)] == ["eagle3", "eagle3-k1", "none"]
    assert "measured with K = 1 alone" in at(64).expected(draft).notes[0]


def test_a_bench_of_something_else_says_of_what() -> None:
    found = at(8).expected(EAGLE)
    assert any("measured on simulated-8b" in note for note in found.notes)
    assert any("measured with the draft simulated-eagle3" in note for note in found.notes)
    assert not any("the draft" in note for note in at(8).expected(OFF).notes)


@pytest.mark.parametrize(
    ("gpu", "model"), [("NVIDIA A100-SXM4-80GB", RECIPE.target.model), (None, "another/model")]
)
def test_a_bench_of_something_else_says_nothing(gpu: str | None, model: str) -> None:
    result = usual()
    found = replace(
        result,
        simulated=False,
        arms=tuple(replace(arm, model=model) for arm in result.arms),
        provenance=replace(result.provenance, gpu={"name": gpu} if gpu else None),
    )
    bench_ = Bench(found, RECIPE, Number.known(8))
    told = bench_.faster(OFF, EAGLE).ratio
    assert told.value is None
    assert f"is of {gpu or model}" in (told.reason or "")
    assert at(8).faster(OFF, EAGLE).ratio.value is not None
