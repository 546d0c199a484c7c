"""Sums that Prometheus made give the same ratios as the engines one by one."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.metrics.counters import INF, layout_of
from speccli.core.sources.promapi import Answer, Series
from speccli.core.sources.tables import (
    buckets_of,
    grown,
    increases_of,
    outliers_of,
    table_of,
)
from speccli.core.stats.histogram import quantile
from speccli.core.stats.increase import Increase, Pool

GROUPS = (
    ("drafts", "draft_tokens", "accepted_tokens"),
    ("generation_tokens", "ttft.count", "itl.count", "steps"),
)
RATIOS = (
    ("accepted_tokens", "draft_tokens"),
    ("accepted_tokens", "drafts"),
    ("generation_tokens", "ttft.count", "itl.count"),
    ("itl.count", "ttft.count", "steps"),
    *((f"accepted_at:{i}", "drafts") for i in range(5)),
)


@dataclass(frozen=True)
class Engine:
    """What one engine's counters grew by, by slot; what it does not export is not in it."""

    slots: dict[str, float]

    def increase(self) -> Increase:
        counters = tuple(sorted(slot for slot in self.slots if "." not in slot))
        names = sorted({slot.partition(".")[0] for slot in self.slots if "." in slot})
        layout = layout_of(counters, tuple((name, (INF,), False) for name in names))
        values = [self.slots[slot] for slot in counters]
        values += [self.slots[f"{name}.count"] for name in names]
        return Increase(layout, array("d", values), 60.0)


@st.composite
def engines(draw: st.DrawFn) -> list[Engine]:
    counts = st.integers(0, 10_000).map(float)
    found = []
    for _ in range(draw(st.integers(1, 6))):
        slots: dict[str, float] = {}
        k = draw(st.integers(0, 5))
        if k:
            slots = {slot: draw(counts) for slot in GROUPS[0]}
            slots |= {f"accepted_at:{i}": draw(counts) for i in range(k)}
        for slot in GROUPS[1]:
            if draw(st.integers(0, 9)):
                slots[slot] = draw(counts)
        found.append(Engine(slots))
    return found


def prometheus(fleet: list[Engine]) -> tuple[dict[tuple[str, str], float], list[tuple[str, ...]]]:
    """What the pooled queries answer for such a fleet, and which groups are incomplete."""
    table: dict[tuple[str, str], float] = {}

    def add(key: tuple[str, str], value: float) -> None:
        table[key] = table.get(key, 0.0) + value

    for engine in fleet:
        for slot, value in engine.slots.items():
            name, _, position = slot.partition(":")
            add((name, position), value)
            if position:
                add(("drafts_at", position), engine.slots["drafts"])
    incomplete = []
    for group in GROUPS:
        present = tuple(s for s in group if any(s in e.slots for e in fleet))
        if all(s in e.slots for e in fleet for s in present):
            continue
        incomplete.append(present)
        for engine in fleet:
            if all(slot in engine.slots for slot in present):
                for slot in present:
                    add((f"joined.{slot}", ""), engine.slots[slot])
    return table, incomplete


def narrowed(fleet: list[Engine], slots: tuple[str, ...]) -> tuple[float, ...] | None:
    """The sums over the engines that have the whole of every group a ratio draws on."""
    needed = set(slots)
    for group in GROUPS:
        if needed & set(group):
            needed |= {s for s in group if any(s in e.slots for e in fleet)}
    able = [engine for engine in fleet if needed <= engine.slots.keys()]
    return tuple(sum(e.slots[s] for e in able) for s in slots) if able else None


@given(engines())
def test_ratios_are_formed_of_the_engines_that_have_all_their_terms(fleet: list[Engine]) -> None:
    table, incomplete = prometheus(fleet)
    pool = Pool(increases_of(table, 60.0, incomplete))
    for slots in RATIOS:
        expected = narrowed(fleet, slots)
        found = pool.sums(*slots)
        if expected is None:
            assert found is None or not any(found)
        else:
            assert found == pytest.approx(expected)


@given(engines())
def test_a_slot_asked_for_alone_counts_every_engine(fleet: list[Engine]) -> None:
    table, incomplete = prometheus(fleet)
    pool = Pool(increases_of(table, 60.0, incomplete))
    exact = Pool([engine.increase() for engine in fleet])
    for slot in (slot for group in GROUPS for slot in group):
        assert (pool.sums(slot) or (0.0,)) == pytest.approx(exact.sums(slot) or (0.0,))
        assert (pool.rate(slot) or 0.0) == pytest.approx(exact.rate(slot) or 0.0)
    assert pool.positions == exact.positions


def test_an_engine_without_speculation_adds_nothing_to_the_acceptance() -> None:
    table = {("drafts", ""): 100.0, ("draft_tokens", ""): 300.0, ("accepted_tokens", ""): 150.0}
    table |= {("accepted_at", "0"): 80.0, ("drafts_at", "0"): 100.0}
    table |= {("generation_tokens", ""): 9_999.0}
    pool = Pool(increases_of(table, 60.0))
    assert pool.sums("accepted_tokens", "draft_tokens") == (150.0, 300.0)
    assert pool.sums("generation_tokens", "drafts") is None


def test_nothing_answered_is_no_member() -> None:
    assert increases_of({}, 60.0) == []


def answer(*series: tuple[dict[str, str], str]) -> Answer:
    return Answer(tuple(Series(labels, [(1795975219.25, value)]) for labels, value in series))


def test_a_table_leaves_out_what_is_not_a_number() -> None:
    found = table_of(
        answer(
            ({"slot": "drafts"}, "7"),
            ({"slot": "waiting"}, "NaN"),
            ({"slot": "ttft", "le": "+Inf"}, "3"),
            ({"slot": "accepted_at", "position": "2"}, "1"),
        )
    )
    assert found == {("drafts", ""): 7.0, ("ttft", "+Inf"): 3.0, ("accepted_at", "2"): 1.0}


def test_rates_grow_and_gauges_do_not() -> None:
    table = {("drafts", ""): 2.0, ("waiting", ""): 5.0, ("ttft", "1"): 0.5}
    table |= {("ttft.series", "1"): 40.0}
    assert grown(table, 120.0) == {
        ("drafts", ""): 240.0,
        ("waiting", ""): 5.0,
        ("ttft", "1"): 60.0,
        ("ttft.series", "1"): 40.0,
    }


def test_bounds_that_not_every_engine_has_are_left_out() -> None:
    table = {("ttft", "0.1"): 10.0, ("ttft", "0.2"): 5.0, ("ttft", "1.0"): 18.0}
    table |= {("ttft", "+Inf"): 20.0}
    table |= {("ttft.series", le): 4.0 for le in ("0.1", "1.0", "+Inf")}
    table |= {("ttft.series", "0.2"): 2.0}
    found = buckets_of(table, "ttft")
    assert found is not None
    assert found.bounds == (0.1, 1.0, math.inf)
    assert found.counts == (10.0, 18.0, 20.0)


def test_rounding_of_sums_is_not_taken_for_a_contradiction() -> None:
    table = {("ttft", "0.1"): 1000.0000001, ("ttft", "0.2"): 1000.0, ("ttft", "+Inf"): 2000.0}
    found = buckets_of(table, "ttft")
    assert found is not None
    assert quantile(found, 0.99).state == "unresolved"  # the last bucket, not «contradict»
    worse = buckets_of({**table, ("ttft", "0.1"): 1100.0}, "ttft")
    assert worse is not None
    assert "contradict" in (quantile(worse, 0.99).reason or "")


def test_a_histogram_without_its_end_says_nothing() -> None:
    assert buckets_of({("ttft", "0.1"): 10.0}, "ttft") is None


def test_outliers_begin_with_those_that_are_down_and_alternate() -> None:
    found = outliers_of(
        answer(
            ({"slot": "low", "instance": "b"}, "0.3"),
            ({"slot": "low", "instance": "a"}, "0.2"),
            ({"slot": "queue", "instance": "q"}, "90"),
            ({"slot": "queue", "instance": "a"}, "10"),
            ({"slot": "down.named", "instance": "d"}, "0"),
            ({"slot": "up"}, "5"),
        )
    )
    assert found == ("d", "a", "q", "b")
