"""Frozen counters of one engine at one instant, laid out so that differences are cheap.

A `Layout` names the slots of a flat array of doubles; engines of one version and K share one layout
object, so pooling a fleet is adding arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

INF = float("inf")


@dataclass(frozen=True, slots=True)
class HistogramSlots:
    """Where a histogram lies in the array."""

    start: int
    """Index of the first cumulative bucket; the buckets follow in the order of `bounds`."""
    bounds: tuple[float, ...]
    """Upper bounds in seconds, ascending, the last one +Inf (its slot is the count)."""
    sum: int
    """Index of `_sum`; -1 where the exposition has none."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The slots of one engine's array: counters first, then each histogram's buckets and sum."""

    counters: tuple[str, ...]
    """Slot names such as `drafts` or `accepted_at:0`, in array order from index 0."""
    ladders: tuple[tuple[str, tuple[float, ...], bool], ...]
    """Per histogram: field, bounds, whether it has a sum."""
    index: Mapping[str, int] = field(init=False)
    histograms: Mapping[str, HistogramSlots] = field(init=False)
    size: int = field(init=False)
    names: frozenset[str] = field(init=False)
    """Counter slots and histogram fields present."""
    positions: int = field(init=False)
    """How many `accepted_at:i` slots there are: the K the engine was started with; 0 if none."""
    spec: tuple[int, ...] = field(init=False)
    """Indexes of the speculation counters: they are updated together, so they must agree."""
    heads: tuple[int, ...] = field(init=False)
    """Indexes of every counter and of every histogram's count: what falls when a process restarts.

    A single bucket tells nothing: a new process may soon have more in it than the old one had.
    """
    families: tuple[tuple[int, ...], ...] = field(init=False)
    """Indexes of the counters that ratios are formed of, of speculation and of steps: one is a
    measure of the same work as the next, so they reset together or something is wrong."""
    rest: tuple[int, ...] = field(init=False)
    """Indexes in no family."""

    def __post_init__(self) -> None:
        """Derive the indexes."""
        index = {name: i for i, name in enumerate(self.counters)}
        histograms: dict[str, HistogramSlots] = {}
        at = len(self.counters)
        for name, bounds, has_sum in self.ladders:
            end = at + len(bounds)
            histograms[name] = HistogramSlots(at, bounds, end if has_sum else -1)
            at = end + has_sum
        spec = tuple(i for name, i in index.items() if name.split(":")[0] in _SPEC)
        counts = tuple(slots.start + len(slots.bounds) - 1 for slots in histograms.values())
        set_ = object.__setattr__
        set_(self, "index", index)
        set_(self, "histograms", histograms)
        set_(self, "size", at)
        set_(self, "names", frozenset({*index, *histograms}))
        set_(self, "positions", sum(name.startswith("accepted_at:") for name in index))
        set_(self, "spec", spec)
        steps = [i for name, i in index.items() if name in _STEPS]
        for name in _STEPS & histograms.keys():
            slots = histograms[name]
            steps.extend(range(slots.start, slots.start + len(slots.bounds) + (slots.sum >= 0)))
        set_(self, "families", tuple(family for family in (spec, tuple(steps)) if family))
        known = {*spec, *steps}
        set_(self, "rest", tuple(i for i in range(at) if i not in known))
        set_(self, "heads", (*range(len(self.counters)), *counts))

    def same_as(self, other: Layout) -> bool:
        """Whether the slots are the same ones, though the object may be another."""
        return self.counters == other.counters and self.ladders == other.ladders


_SPEC = frozenset({"drafts", "draft_tokens", "accepted_tokens", "accepted_at"})
_STEPS = frozenset({"generation_tokens", "steps", "itl", "ttft"})


@lru_cache(maxsize=1024)
def layout_of(
    counters: tuple[str, ...], ladders: tuple[tuple[str, tuple[float, ...], bool], ...]
) -> Layout:
    """The one layout object for these slots."""
    return Layout(counters, ladders)


@dataclass(frozen=True, slots=True)
class Counters:
    """One engine at one instant: everything later numbers are made of."""

    target: str
    """The server's URL, without credentials."""
    engine: str
    """The engine's label inside its server."""
    kind: str
    """Which adapter read it: `vllm`, `sglang`."""
    at: float
    """When it was scraped, Unix seconds."""
    layout: Layout
    values: array[float]
    """Cumulative counts since the process began, `layout.size` doubles. Never mutated."""
    gauges: Mapping[str, float]
    """Gauges by field; a gauge that was NaN or absent is not in it."""
    model: str | None = None
    started: float | None = None
    """The process's start time, Unix seconds; None where the server does not tell."""
    partial: str | None = None
    """Why something is missing from this scrape; None when nothing is."""
    several_api_servers: bool = False
    """Series carry a `pid` label: the step counter is then not a step count (vLLM PR #51329)."""
    simulated: bool = False
    version: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    """Field → the metric name it was read from."""

    def get(self, slot: str) -> float | None:
        """A counter slot's cumulative value, None where the engine has no such counter."""
        i = self.layout.index.get(slot)
        return None if i is None else self.values[i]
