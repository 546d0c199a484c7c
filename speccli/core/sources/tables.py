"""Answers of pooled queries, turned into what measures are made from. Pure.

Prometheus hands over sums. A ratio may only be formed of engines that have all of its terms, and
`Pool` keeps that rule by looking at each member's layout: so the sums are laid out as members such
that the rule comes out right, without one member per engine.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

from speccli.core.metrics.counters import INF, layout_of
from speccli.core.sources.promapi import Answer
from speccli.core.stats.increase import Buckets, Increase, Pool

Table = Mapping[tuple[str, str], float]
"""Value by slot and by what stays apart in it: a position, a bound, or nothing."""

_SPECULATION = ("drafts", "draft_tokens", "accepted_tokens")
_COUNTERS = ("finished", "generation_tokens", "preemptions", "prompt_tokens", "steps")
_HISTOGRAMS = ("e2e", "itl", "queue", "tpot", "ttft")
_STILL = frozenset({"running", "waiting", "kv_cache_usage"})
"""Slots that do not grow."""
_ROUNDING = 1e-6
"""Share of a histogram's count by which sums of many floats may disagree."""


class FleetPool(Pool):
    """A pool whose histograms were summed elsewhere."""

    def __init__(
        self,
        increases: Iterable[Increase],
        histograms: Mapping[str, Buckets],
        absent: Mapping[str, str],
    ) -> None:
        """`absent`: why a histogram is not there, by field."""
        super().__init__(increases)
        self._histograms = histograms
        self.absent = absent

    def histogram(self, field: str) -> Buckets | None:
        """A histogram over every member that has it."""
        return self._histograms.get(field)


def table_of(answer: Answer) -> dict[tuple[str, str], float]:
    """A tagged answer by slot; what is NaN, the ratio of nothing, is not in it."""
    table: dict[tuple[str, str], float] = {}
    for series in answer.series:
        value = series.value
        if value is not None:
            detail = series.labels.get("le") or series.labels.get("position") or ""
            table[series.labels.get("slot", ""), detail] = value
    return table


def grown(table: Table, seconds: float) -> dict[tuple[str, str], float]:
    """Growth over a window from growth per second; gauges and numbers of series stay."""
    return {
        (slot, detail): value if slot in _STILL or slot.endswith(".series") else value * seconds
        for (slot, detail), value in table.items()
    }


def outliers_of(answer: Answer) -> tuple[str, ...]:
    """Instances that stand out: those that are down, then by turns low acceptance and queue."""
    down: list[str] = []
    ranked: dict[str, list[tuple[float, str]]] = {"low": [], "queue": []}
    for series in answer.series:
        slot, instance = series.labels.get("slot", ""), series.labels.get("instance")
        if instance is None:
            continue
        if slot == "down.named":
            down.append(instance)
        elif slot in ranked and series.value is not None:
            ranked[slot].append((series.value if slot == "low" else -series.value, instance))
    names = sorted(down)
    low, queue = ([name for _, name in sorted(ranked[slot])] for slot in ("low", "queue"))
    for i in range(max(len(low), len(queue))):
        names += [*low[i : i + 1], *queue[i : i + 1]]
    return tuple(dict.fromkeys(names))


def buckets_of(table: Table, name: str) -> Buckets | None:
    """A histogram; of several ladders only the bounds that every series has.

    Sums of many floats can fall by their last digits from one bound to the next; what they fall by
    is rounding, and is taken out. A larger fall is left, for the quantile to refuse.
    """
    series = {_bound(le): n for (slot, le), n in table.items() if slot == f"{name}.series"}
    counts = {_bound(le): n for (slot, le), n in table.items() if slot == name}
    everybody = series.get(INF)
    if everybody is not None:
        counts = {le: n for le, n in counts.items() if series.get(le) == everybody}
    if INF not in counts:
        return None
    bounds = tuple(sorted(counts))
    slack = _ROUNDING * max(1.0, counts[INF])
    smooth: list[float] = []
    for bound in bounds:
        below = smooth[-1] if smooth else 0.0
        n = counts[bound]
        smooth.append(below if 0 < below - n <= slack else n)
    return Buckets(bounds, tuple(smooth), None)


def _bound(le: str) -> float:
    return math.inf if le == "+Inf" else float(le)


def increases_of(
    table: Table, seconds: float, incomplete: Sequence[Sequence[str]] = ()
) -> list[Increase]:
    """The fleet's growth as a few members whose layouts allow the right ratios and no others.

    Args:
        table: Growth by slot over the window.
        seconds: The window.
        incomplete: Groups of slots that some engines have only in part. The table then holds, as
            `joined.SLOT`, the growth of the engines that have the whole group.
    """
    sums: dict[str, float] = {slot: n for (slot, detail), n in table.items() if not detail}
    rest: dict[str, float] = {}
    for slot in (slot for group in incomplete for slot in group):
        both = sums.get(f"joined.{slot}")
        whole = sums.pop(slot, None)
        if both is not None:
            sums[slot] = both
        if whole is not None and whole - (both or 0.0) > _ROUNDING * whole:
            rest[slot] = whole - (both or 0.0)
    members = [*_speculating(table, sums, seconds), *_working(sums, seconds)]
    # What is left over counts where a slot is asked for alone, and in no ratio.
    for slot, n in rest.items():
        members += _member({slot: n}, seconds)
    return members


def _speculating(table: Table, sums: Mapping[str, float], seconds: float) -> Iterator[Increase]:
    """One member per K: engines drafting further than others must not dilute a position.

    Drafts of the engines that have position i, less those that have position i + 1, are the drafts
    of the engines with K = i + 1. Everything else is only ever used summed: it goes to the largest.
    """
    known = {slot: sums[slot] for slot in _SPECULATION if slot in sums}
    if not known:
        return
    accepted = _by_position(table, "accepted_at")
    drafts = _by_position(table, "drafts_at")
    if "drafts" not in known or len(accepted) != len(drafts):
        yield from _member(known, seconds)
        return
    at_least = [known["drafts"], *drafts, 0.0]
    largest = len(drafts)
    for k in range(largest + 1):
        own = max(0.0, at_least[k] - at_least[k + 1])
        if k < largest and own <= _ROUNDING * known["drafts"]:
            continue
        slots = dict.fromkeys(known, 0.0) | {f"accepted_at:{i}": 0.0 for i in range(k)}
        if k == largest:
            slots |= known | {f"accepted_at:{i}": n for i, n in enumerate(accepted)}
        yield from _member(slots | {"drafts": own}, seconds)


def _by_position(table: Table, slot: str) -> list[float]:
    """Values of positions 0, 1, … as far as they go without a gap."""
    found = {int(detail): n for (s, detail), n in table.items() if s == slot and detail.isdigit()}
    return [found[i] for i in range(len(found)) if i in found]


def _working(sums: Mapping[str, float], seconds: float) -> Iterator[Increase]:
    slots = {slot: sums[slot] for slot in _COUNTERS if slot in sums}
    counts = {name: sums[f"{name}.count"] for name in _HISTOGRAMS if f"{name}.count" in sums}
    for name in counts:
        slots[f"{name}.count"] = counts[name]
        if f"{name}.sum" in sums:
            slots[f"{name}.sum"] = sums[f"{name}.sum"]
    if slots:
        yield from _member(slots, seconds)


def _member(slots: Mapping[str, float], seconds: float) -> Iterator[Increase]:
    """A member with these slots; a histogram is laid out as its count and sum alone."""
    counters = tuple(sorted(slot for slot in slots if "." not in slot))
    names = sorted({slot.partition(".")[0] for slot in slots if "." in slot})
    ladders = tuple((name, (INF,), f"{name}.sum" in slots) for name in names)
    values = array("d", [slots[slot] for slot in counters])
    for name, _, has_sum in ladders:
        values.append(slots.get(f"{name}.count", 0.0))
        if has_sum:
            values.append(slots[f"{name}.sum"])
    yield Increase(layout_of(counters, ladders), values, seconds)
