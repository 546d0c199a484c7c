from __future__ import annotations

import random
import time

import numpy as np
import pytest

from speccli.core.bench.bootstrap import (
    Contrast,
    Resamples,
    Scatter,
    log_ratio_variance,
    percentile_interval,
    pooled,
    sums_by_prompt,
)
from tests.support.tracing import untraced


def test_a_mean_without_drawing_varies_as_much_as_one_with() -> None:
    rng, draw = random.Random(3), np.random.default_rng(3)
    prompts = [f"p{i}" for i in range(80)] * 3
    easy = {prompt: rng.lognormvariate(0, 0.3) for prompt in prompts}
    ours = [128 * easy[p] * rng.lognormvariate(0, 0.1) for p in prompts]
    theirs = [150 * easy[p] * rng.lognormvariate(0, 0.2) for p in prompts]
    ones = [128.0] * len(prompts)
    told = log_ratio_variance(
        sums_by_prompt(prompts, ones, ours), sums_by_prompt(prompts, ones, theirs)
    )
    a, b = (np.array(each).reshape(3, 80).sum(0) for each in (ours, theirs))
    picks = draw.integers(0, 80, (10_000, 80))
    drawn = np.log(b[picks].sum(1) / a[picks].sum(1))
    assert told == pytest.approx(drawn.var(), rel=0.06)


def test_prompts_in_common_are_paired_and_others_are_not() -> None:
    rng = random.Random(4)
    prompts = [f"p{i}" for i in range(60)]
    hard = [rng.lognormvariate(0, 0.8) for _ in prompts]
    ones = [1.0] * 60
    a = sums_by_prompt(prompts, hard, ones)
    twice = sums_by_prompt(prompts, [2 * x for x in hard], ones)
    others = sums_by_prompt([f"q{i}" for i in range(60)], [2 * x for x in hard], ones)
    assert log_ratio_variance(a, twice) == pytest.approx(0.0, abs=1e-12)
    assert (log_ratio_variance(a, others) or 0) > 0.01


def test_a_quantile_is_drawn_as_numpy_would_draw_it() -> None:
    rng, draw = random.Random(5), np.random.default_rng(5)
    ids = [f"p{i:03}" for i in range(200)]
    values = [rng.lognormvariate(0, 0.5) for _ in range(600)]
    ours = Resamples(ids, 4000).high_quantile(ids * 3, values, 0.99)
    rows = np.array(values).reshape(3, 200)
    theirs = [
        float(np.quantile(rows[:, draw.integers(0, 200, 200)], 0.99, method="inverted_cdf"))
        for _ in range(4000)
    ]
    assert ours.value == np.quantile(values, 0.99, method="inverted_cdf")
    assert np.mean(ours.drawn) == pytest.approx(np.mean(theirs), rel=0.01)
    low, high = percentile_interval(ours.drawn)
    assert (low, high) == pytest.approx(tuple(np.quantile(theirs, [0.025, 0.975])), rel=0.02)


def test_a_quantile_where_prompts_were_asked_unequally_often() -> None:
    prompts = ["a"] * 99 + ["b"]
    tail = Resamples(prompts, 500).high_quantile(prompts, [1.0] * 99 + [9.0], 0.99)
    assert tail.value == 1.0 or tail.value == 9.0
    assert set(tail.drawn) == {1.0, 9.0}, "without b there is no 9, with two of a no 1 at the top"


def test_ten_thousand_draws_take_less_than_two_seconds() -> None:
    rng = random.Random(6)
    ids = [f"p{i}" for i in range(200)]
    values = [rng.random() for _ in range(600)]
    with untraced():
        before = time.process_time()
        tail = Resamples(ids, 10_000).high_quantile(ids * 3, values, 0.99)
        took = time.process_time() - before
    assert len(tail.drawn) == 10_000
    assert took < 2


def test_draws_are_the_same_every_time() -> None:
    ids = [f"p{i}" for i in range(20)]
    assert Resamples(ids, 10).weights == Resamples(list(reversed(ids)), 10).weights


def test_scatter_is_pooled_by_its_freedom_and_a_load_counts_once() -> None:
    whole = pooled([(4.0, 3), (1.0, 2), (0.0, 1)], [3, 2, 1])
    assert whole == Scatter((4.0 * 2 + 1.0) / 3, 3)
    assert pooled([(0.0, 1)], [1]) is None
    shared = pooled([(4.0, 3), (4.0, 3)], [3])
    assert shared is not None
    assert shared.df == 2


def test_the_width_grows_with_less_freedom_and_with_either_part() -> None:
    def width(**parts: object) -> float:
        plain = {
            "value": 0.0,
            "repeats": 3,
            "run": Scatter(1e-4, 8),
            "prompt_variance": 1e-4,
            "prompts": 100,
        }
        told = Contrast(**(plain | parts)).width(0.025)  # type: ignore[arg-type]
        assert told is not None
        return told

    assert width(run=Scatter(1e-4, 2)) > width() > width(prompt_variance=None)
    assert width(repeats=5) < width()
    assert Contrast(0.0, 1, None, 1e-4, 100).width(0.025) is None
