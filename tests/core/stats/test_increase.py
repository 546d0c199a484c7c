"""Pools: many engines added before anything is divided."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.metrics.counters import INF, Layout, layout_of
from speccli.core.stats.increase import Buckets, Increase, Pool, merge_buckets

SLOTS = ("accepted_at:0", "accepted_tokens", "draft_tokens", "drafts")
LADDER = ("itl", (0.1, 1.0, INF), True)
LAYOUT = layout_of(SLOTS, (LADDER,))
COUNTS = st.integers(0, 2**40).map(float)


def increase(
    values: Sequence[float], seconds: float | None = 10.0, layout: Layout = LAYOUT
) -> Increase:
    return Increase(layout, array("d", values), seconds)


@st.composite
def growths(draw: st.DrawFn) -> list[float]:
    size = LAYOUT.size
    return draw(st.lists(COUNTS, min_size=size, max_size=size))


@given(st.lists(growths(), min_size=1, max_size=6))
def test_a_pool_equals_one_engine_with_the_summed_counters(members: list[list[float]]) -> None:
    pool = Pool([increase(values) for values in members])
    one = Pool([increase([sum(column) for column in zip(*members, strict=True)])])
    for slots in (("drafts",), ("accepted_tokens", "draft_tokens"), ("itl.count", "itl.sum")):
        assert pool.sums(*slots) == one.sums(*slots)
        assert pool.rate(*slots) == pytest.approx(one.rate(*slots))
    assert pool.histogram("itl") == one.histogram("itl")
    assert pool.positions == one.positions
    assert pool.slots == one.slots


@given(st.lists(growths(), min_size=2, max_size=6), st.data())
def test_a_pool_of_pools_equals_one_pool(members: list[list[float]], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(members) - 1))
    parts = [
        Pool([increase(v) for v in some]).sums("drafts") for some in (members[:at], members[at:])
    ]
    whole = Pool([increase(v) for v in members]).sums("drafts")
    assert whole == (sum(part[0] for part in parts if part),)


def test_a_ratio_is_formed_of_the_engines_that_have_all_its_terms() -> None:
    plain = layout_of(("generation_tokens",), ())
    spec = layout_of(("drafts", "generation_tokens"), ())
    pool = Pool([increase([100], layout=plain), increase([10, 30], layout=spec)])
    assert pool.sums("generation_tokens") == (130,)
    assert pool.sums("generation_tokens", "drafts") == (30, 10)
    assert pool.sums("accepted_tokens") is None


def test_engines_of_several_layouts_are_pooled() -> None:
    other = layout_of(("accepted_at:0", "accepted_at:1", *SLOTS[1:]), ())
    pool = Pool([increase([1, 2, 3, 4, 0, 0, 0, 0]), increase([1, 1, 2, 3, 4], layout=other)])
    assert pool.positions == 2
    assert pool.sums("accepted_at:0", "drafts") == (2, 8)
    assert pool.sums("accepted_at:1", "drafts") == (1, 4)


def test_a_rate_adds_rates_and_not_counts() -> None:
    layout = layout_of(("drafts",), ())
    pool = Pool([increase([100], 10.0, layout), increase([100], 50.0, layout)])
    assert pool.rate("drafts") == 12.0
    assert pool.seconds == 50.0


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_a_member_that_covers_no_known_time_has_no_rate(seconds: float | None) -> None:
    layout = layout_of(("drafts",), ())
    assert Pool([increase([100], seconds, layout)]).rate("drafts") is None
    assert Pool([increase([100], seconds, layout)]).seconds is None


def test_an_empty_pool_knows_nothing() -> None:
    pool = Pool([])
    assert pool.sums("drafts") is None
    assert pool.rate("drafts") is None
    assert pool.histogram("itl") is None
    assert (pool.seconds, pool.positions, pool.slots) == (None, 0, frozenset())
    assert not pool.since_start


BOUNDS = st.lists(st.sampled_from([0.1, 0.3, 0.5, 1.0, 2.5, 10.0]), unique=True).map(
    lambda some: (*sorted(some), INF)
)


@st.composite
def observed(draw: st.DrawFn) -> tuple[Buckets, list[float]]:
    """A histogram and what was observed."""
    bounds = draw(BOUNDS)
    values = draw(st.lists(st.floats(0.0, 20.0, allow_subnormal=False), max_size=20))
    counts = tuple(float(sum(v <= bound for v in values)) for bound in bounds)
    return Buckets(bounds, counts, math.fsum(values)), values


@given(st.lists(observed(), min_size=1, max_size=4))
def test_merged_buckets_count_the_same_observations(
    parts: list[tuple[Buckets, list[float]]],
) -> None:
    merged = merge_buckets([buckets for buckets, _ in parts])
    assert merged is not None
    everything = [value for _, values in parts for value in values]
    assert merged.n == len(everything)
    assert merged.sum == pytest.approx(math.fsum(everything))
    for bound, count in zip(merged.bounds, merged.counts, strict=True):
        assert count == sum(value <= bound for value in everything)
        assert all(bound in buckets.bounds for buckets, _ in parts)


def test_two_ladders_merge_on_the_bounds_both_have() -> None:
    one = Buckets((0.1, 0.5, 1.0, INF), (1, 2, 3, 4), 2.0)
    two = Buckets((0.3, 1.0, INF), (10, 20, 30), 9.0)
    assert merge_buckets([one, two]) == Buckets((1.0, INF), (23, 34), 11.0)
    assert merge_buckets([]) is None


def test_a_sum_is_unknown_where_one_part_has_none() -> None:
    one, two = Buckets((INF,), (1,), 2.0), Buckets((INF,), (1,), None)
    merged = merge_buckets([one, two])
    assert merged is not None
    assert merged.sum is None
