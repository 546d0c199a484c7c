"""Latency by batch size, from windows in which the batch size is known.

No engine exports batch size with its latencies. Within one scrape interval of one engine, the mean
number of requests per step is exact, (Δ itl_count + Δ ttft_count) / Δ steps, and the interval's own
inter-token and first-token observations belong to it. Latencies observed when a request finishes
(queue, TPOT, end to end) cannot be attributed so, and are not.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from speccli.core.metrics.counters import Layout

LABELS = ("1-2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129+")
_EDGES = (2.5, 4.5, 8.5, 16.5, 32.5, 64.5, 128.5)

Bins = tuple["array[float] | None", ...]
"""Per label: growth of the ITL slots, then of the TTFT slots; None where nothing fell in it."""

EMPTY: Bins = (None,) * len(LABELS)


def bin_of(batch: float) -> int:
    """Index into LABELS of a mean batch size (requests per step, > 0)."""
    return next((i for i, edge in enumerate(_EDGES) if batch < edge), len(_EDGES))


def mean_batch(layout: Layout, growth: Sequence[float]) -> float | None:
    """Requests per step in an interval; None where steps or observations are not exported."""
    steps = layout.index.get("steps")
    itl, ttft = layout.histograms.get("itl"), layout.histograms.get("ttft")
    if steps is None or itl is None or ttft is None or growth[steps] <= 0:
        return None
    served = growth[itl.start + len(itl.bounds) - 1] + growth[ttft.start + len(ttft.bounds) - 1]
    return served / growth[steps] if served > 0 else None


def slots(layout: Layout) -> tuple[int, ...]:
    """The array places a bin keeps: ITL's, then TTFT's."""
    places: list[int] = []
    for field in ("itl", "ttft"):
        at = layout.histograms[field]
        places.extend(range(at.start, at.start + len(at.bounds)))
        if at.sum >= 0:
            places.append(at.sum)
    return tuple(places)


def add(bins: Bins, label: int, growth: Sequence[float], places: Sequence[int]) -> Bins:
    """`bins` with an interval's growth added to one of them; the others are shared, not copied."""
    old = bins[label]
    new = array("d", [growth[i] for i in places])
    if old is not None:
        new = array("d", map(sum, zip(old, new, strict=True)))
    return (*bins[:label], new, *bins[label + 1 :])


def growth_between(start: Bins, end: Bins) -> Bins:
    """What was added to each bin between two points of one history."""
    result: list[array[float] | None] = []
    for old, new in zip(start, end, strict=True):
        if new is None or new is old:
            result.append(None)
        elif old is None:
            result.append(new)
        else:
            result.append(array("d", [b - a for a, b in zip(old, new, strict=True)]))
    return tuple(result)
