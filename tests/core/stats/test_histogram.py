"""Quantiles: the bucket the truth lies in, never a point inside it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.metrics.counters import INF
from speccli.core.stats.histogram import latency, mean, quantile
from speccli.core.stats.increase import Buckets, merge_buckets

QUEUE = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 60.0, 1920.0, 7680.0, INF)
LADDERS = st.lists(st.floats(0.001, 100.0), min_size=1, max_size=8, unique=True).map(
    lambda some: (*sorted(some), INF)
)
OBSERVATIONS = st.lists(st.floats(0.0, 200.0), min_size=1, max_size=300)


def buckets_of(bounds: tuple[float, ...], values: list[float]) -> Buckets:
    counts = tuple(float(sum(v <= bound for v in values)) for bound in bounds)
    return Buckets(bounds, counts, math.fsum(values))


def true_quantile(values: list[float], q: float) -> float:
    """The smallest observation that at least a share q does not exceed."""
    return sorted(values)[math.ceil(q * len(values) - 1e-9) - 1]


@given(LADDERS, OBSERVATIONS, st.sampled_from([0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999]))
def test_the_true_quantile_lies_in_the_interval(
    bounds: tuple[float, ...], values: list[float], q: float
) -> None:
    found = quantile(buckets_of(bounds, values), q, min_n=1)
    true = true_quantile(values, q)
    assert found.state in {"value", "unresolved"}
    assert found.low <= true
    assert found.high is None or true <= found.high
    assert found.n == len(values)
    assert found.high is None or found.low < found.high, "a bucket, not a point"


@given(LADDERS, OBSERVATIONS)
def test_first_and_last_bucket_resolve_nothing(
    bounds: tuple[float, ...], values: list[float]
) -> None:
    for q in (0.5, 0.99):
        found = quantile(buckets_of(bounds, values), q, min_n=1)
        ends = found.high is None or found.high == bounds[0]
        assert (found.state == "unresolved") == ends


@given(LADDERS, LADDERS, OBSERVATIONS, OBSERVATIONS)
def test_the_true_quantile_of_two_ladders_merged_lies_in_the_interval(
    one: tuple[float, ...], two: tuple[float, ...], some: list[float], more: list[float]
) -> None:
    merged = merge_buckets([buckets_of(one, some), buckets_of(two, more)])
    assert merged is not None
    found = quantile(merged, 0.95, min_n=1)
    true = true_quantile(some + more, 0.95)
    assert found.low <= true
    assert found.high is None or true <= found.high


@given(LADDERS, OBSERVATIONS)
def test_quantiles_are_in_order(bounds: tuple[float, ...], values: list[float]) -> None:
    lows = [quantile(buckets_of(bounds, values), q, min_n=1).low for q in (0.5, 0.95, 0.99)]
    assert lows == sorted(lows)


def test_all_in_the_first_bucket_is_unresolved_with_an_exact_mean() -> None:
    buckets = Buckets(QUEUE, (1000.0,) * len(QUEUE), 20.0)
    found = latency(buckets, "")
    for each in (found.p50, found.p95, found.p99):
        assert (each.low, each.high, each.state, each.n) == (0.0, 0.3, "unresolved", 1000)
        assert each.reason == "inside the first bucket"
    assert found.mean.value == pytest.approx(0.020)


def test_all_beyond_the_last_bound_is_more_than_it_and_no_number() -> None:
    bounds = (0.3, 1.0, 60.0, INF)
    found = latency(Buckets(bounds, (0.0, 0.0, 0.0, 100.0), 30000.0), "")
    assert (found.p99.low, found.p99.high, found.p99.state) == (60.0, None, "unresolved")
    assert found.p99.reason == "beyond the last bucket"
    assert found.mean.value == 300.0


def test_a_first_bound_of_zero_holds_what_took_no_time() -> None:
    found = quantile(Buckets((0.0, 0.001, INF), (90.0, 100.0, 100.0), 0.01), 0.5)
    assert (found.low, found.high, found.state) == (0.0, 0.0, "unresolved")
    found = quantile(Buckets((0.0, 0.001, INF), (90.0, 100.0, 100.0), 0.01), 0.95)
    assert (found.low, found.high, found.state) == (0.0, 0.001, "value")


@pytest.mark.parametrize(
    ("q", "need"), [(0.5, 2), (0.9, 10), (0.95, 20), (0.99, 100), (0.999, 1000)]
)
def test_a_quantile_wants_observations_enough_to_be_one(q: float, need: int) -> None:
    def of(n: int) -> Buckets:
        return Buckets((0.1, 1.0, INF), (0.0, float(n), float(n)), None)

    assert quantile(of(need), q).state == "value"
    few = quantile(of(need - 1), q)
    assert (few.state, few.n) == ("unknown", need - 1)
    assert f"needs {need}" in (few.reason or "")


def test_nothing_observed_is_unknown_and_not_zero() -> None:
    found = latency(Buckets((0.1, INF), (0.0, 0.0), 0.0), "")
    assert found.p99.state == found.mean.state == "unknown"
    assert found.mean.value is None
    assert found.mean.reason == "nothing observed in the window"


def test_an_absent_histogram_is_unknown_with_its_reason() -> None:
    found = latency(None, "not exposed")
    assert {found.p50.reason, found.p95.reason, found.p99.reason} == {"not exposed"}
    assert found.mean.reason == "not exposed"


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6))
def test_buckets_that_contradict_each_other_say_nothing(counts: list[int]) -> None:
    bounds = (*map(float, range(1, len(counts))), INF)
    found = quantile(Buckets(bounds, tuple(map(float, counts)), None), 0.5, min_n=1)
    if counts[-1] and counts != sorted(counts):
        assert (found.state, found.reason) == ("unknown", "the buckets contradict each other")


@pytest.mark.parametrize("total", [None, -1.0])
def test_a_mean_wants_a_sum(total: float | None) -> None:
    assert mean(Buckets((INF,), (5.0,), total)).state == "unknown"
