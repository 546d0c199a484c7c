"""How much the counters of one engine, or of many pooled, grew over a window."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from speccli.core.metrics.counters import Layout


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram's growth: observations per bucket, their number and their sum."""

    bounds: tuple[float, ...]
    """Upper bounds, seconds, ascending, +Inf last."""
    counts: tuple[float, ...]
    """Observations at or under each bound (cumulative over `bounds`)."""
    sum: float | None
    """Sum of the observations, seconds; None where the exposition has none."""

    @property
    def n(self) -> float:
        """Observations."""
        return self.counts[-1]


@dataclass(frozen=True, slots=True)
class Increase:
    """One engine's growth between two of its samples."""

    layout: Layout
    values: Sequence[float]
    """Growth per slot of `layout`, never negative."""
    seconds: float | None
    """Time between the two samples; None when counted from an unknown process start."""
    since_start: bool = False
    """Only one sample exists: growth is counted from the start of the process."""
    torn: bool = False
    """Intervals in it are left out: their speculation counters contradicted each other."""
    waiting: float | None = None
    """Requests waiting, the mean over its last seconds; None where the gauge is not exposed."""


def merge_buckets(parts: Sequence[Buckets]) -> Buckets | None:
    """Many histograms as one, on the bounds that all of them have.

    A rollout that changes the buckets leaves two ladders in the fleet; only their common bounds
    can be added.
    """
    if not parts:
        return None
    if all(part.bounds == parts[0].bounds for part in parts):
        counts: tuple[float, ...] = tuple(
            map(sum, zip(*(part.counts for part in parts), strict=True))
        )
        bounds = parts[0].bounds
    else:
        common = set(parts[0].bounds).intersection(*(part.bounds for part in parts[1:]))
        bounds = tuple(sorted(common))
        lookups = [dict(zip(part.bounds, part.counts, strict=True)) for part in parts]
        counts = tuple(sum(lookup[bound] for lookup in lookups) for bound in bounds)
    sums = [part.sum for part in parts if part.sum is not None]
    return Buckets(bounds, counts, sum(sums) if len(sums) == len(parts) else None)


class Pool:
    """Increases of several engines, added before anything is divided.

    A ratio is formed from the engines that expose all of its terms: an engine without
    speculation must not add tokens to the numerator of one that has it.
    """

    absent: Mapping[str, str] = {}
    """Why a histogram is not there although the engines export it, by field."""

    def __init__(self, increases: Iterable[Increase]) -> None:
        """`increases`: one per engine."""
        self.members = tuple(increases)
        groups: dict[Layout, list[Increase]] = {}
        for member in self.members:
            groups.setdefault(member.layout, []).append(member)
        self._groups: list[tuple[Layout, Sequence[float]]] = [
            (layout, members[0].values if len(members) == 1 else _added(members))
            for layout, members in groups.items()
        ]

    @cached_property
    def seconds(self) -> float | None:
        """The longest time any member covers; None when no member knows."""
        known = [m.seconds for m in self.members if m.seconds]
        return max(known) if known else None

    @property
    def since_start(self) -> bool:
        """Whether any member is counted from its process start."""
        return any(member.since_start for member in self.members)

    @property
    def torn(self) -> bool:
        """Whether speculation counters of any member lack intervals."""
        return any(member.torn for member in self.members)

    @property
    def waiting(self) -> float | None:
        """Requests waiting, lately, over all members; None unless every one tells."""
        known = [member.waiting for member in self.members if member.waiting is not None]
        return sum(known) if known and len(known) == len(self.members) else None

    @cached_property
    def slots(self) -> frozenset[str]:
        """Every counter slot and histogram any member has."""
        return frozenset().union(*(layout.names for layout, _ in self._groups))

    @property
    def positions(self) -> int:
        """The largest K of any member."""
        return max((layout.positions for layout, _ in self._groups), default=0)

    def sums(self, *slots: str) -> tuple[float, ...] | None:
        """The slots' sums over the members that have all of them; None when no member has.

        A histogram is asked for as `itl.count` or `itl.sum`.
        """
        total: list[float] | None = None
        for layout, values in self._groups:
            found = [_slot(layout, values, slot) for slot in slots]
            if any(value is None for value in found):
                continue
            known = [value for value in found if value is not None]
            total = known if total is None else [a + b for a, b in zip(total, known, strict=True)]
        return None if total is None else tuple(total)

    def rate(self, *slots: str) -> float | None:
        """Σ over members of (sum of `slots`) / seconds, per second; None when no member has."""
        total: float | None = None
        for member in self.members:
            if not member.seconds:
                continue
            found = [_slot(member.layout, member.values, slot) for slot in slots]
            known = [value for value in found if value is not None]
            if len(known) == len(found):
                total = (total or 0.0) + sum(known) / member.seconds
        return total

    def histogram(self, field: str) -> Buckets | None:
        """A histogram over every member that has it."""
        parts = []
        for layout, values in self._groups:
            at = layout.histograms.get(field)
            if at is not None:
                end = at.start + len(at.bounds)
                total = None if at.sum < 0 else values[at.sum]
                parts.append(Buckets(at.bounds, tuple(values[at.start : end]), total))
        return merge_buckets(parts)


def _added(members: Sequence[Increase]) -> array[float]:
    return array("d", map(sum, zip(*(member.values for member in members), strict=True)))


def _slot(layout: Layout, values: Sequence[float], slot: str) -> float | None:
    field, _, part = slot.partition(".")
    if part:
        at = layout.histograms.get(field)
        if at is None or (part == "sum" and at.sum < 0):
            return None
        return values[at.sum] if part == "sum" else values[at.start + len(at.bounds) - 1]
    i = layout.index.get(slot)
    return None if i is None else values[i]
