"""Quantiles and their bootstrap intervals, against a bootstrap that really draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.bench.spread import mean, quantile, ranks, spread


@given(st.lists(st.floats(0, 1e3), min_size=100, max_size=200))
def test_quantiles_are_numpys(values: list[float]) -> None:
    ordered = sorted(values)
    for q in (0.5, 0.95, 0.99):
        found = quantile(ordered, q)
        assert found.value == pytest.approx(float(np.quantile(values, q)), abs=1e-9)
        assert found.low is not None
        assert found.high is not None
        assert found.value is not None
        assert ordered[0] <= found.low <= found.value <= found.high <= ordered[-1]


@pytest.mark.parametrize(("n", "q"), [(30, 0.5), (100, 0.95), (400, 0.99), (5000, 0.5)])
def test_the_interval_is_the_bootstraps(n: int, q: float) -> None:
    random = np.random.default_rng(1)
    draws = np.sort(random.integers(0, n, (4000, n)), axis=1)[:, max(1, int(np.ceil(q * n))) - 1]
    low, high = np.quantile(draws, (0.025, 0.975))
    found = ranks(n, q)
    assert found == pytest.approx((low, high), abs=max(1.0, 0.006 * n))


def test_the_means_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(2)
    hits = 0
    for _ in range(400):
        found = mean(list(random.normal(5.0, 1.0, 12)))
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 5.0 <= found.high
    assert 0.92 < hits / 400 < 0.98


def test_a_tail_that_nobody_can_know_is_unknown() -> None:
    found = spread([0.1] * 40)
    assert found.p50.value == 0.1
    assert found.p95.state == "value"
    assert found.p99.state == "unknown"
    assert found.p99.reason == "40 observations: a p99 needs 100"
    assert found.p99.n == 40


def test_the_same_prompts_again_tell_nothing_more_of_a_tail() -> None:
    prompts = [f"p{i % 40}" for i in range(120)]
    found = spread([0.1] * 120, prompts=prompts)
    assert found.p50.value == found.p95.value == 0.1
    assert found.p99.value is None
    assert found.p99.reason == "40 prompts: a p99 needs 100 that differ"
    assert spread([0.1] * 120, prompts=[f"{i}" for i in range(120)]).p99.value == 0.1


def test_no_requests_are_no_zero() -> None:
    assert spread([]).mean.state == "unknown"


def test_chunks_of_one_answer_get_no_interval() -> None:
    found = spread([0.1, 0.2] * 100, independent=False)
    assert found.p50.value == pytest.approx(0.15)
    assert found.p50.low is None
