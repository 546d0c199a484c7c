"""What an engine adapter answers: which metric, under which names, pooled how, absent why.

Nothing outside `speccli.core.engines` knows a metric name or a version number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Part = Literal["counter", "gauge", "bucket", "sum", "count"]


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter, or a labelled set of counters that is summed or kept apart by one label."""

    field: str
    """The word specctl uses for it, e.g. `draft_tokens`."""
    names: tuple[str, ...]
    """Sample names at /metrics, newest first; the first one present counts, never two."""
    by: str | None = None
    """Keep one slot per value of this label (`accepted_at:0`); None: sum over all labels."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """A classic histogram; `names` are family names without `_bucket`, `_sum`, `_count`."""

    field: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge. Several series of one engine (one per API-server pid) are one fact: the largest."""

    field: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Role:
    """What one sample name means: a field of ours, which part of it, and its rank as an alias."""

    field: str
    part: Part
    rank: int
    by: str | None = None


@dataclass(frozen=True)
class Adapter:
    """One engine's dialect."""

    kind: str
    """`vllm`, `sglang`, …: the contract's `engine_kind`."""
    prefix: str
    """What its sample names begin with."""
    counters: tuple[Counter, ...]
    histograms: tuple[Histogram, ...]
    gauges: tuple[Gauge, ...]
    engine_labels: tuple[str, ...]
    """Labels that name the engine inside a server; the first one present is used, else "0"."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Why a field cannot be had from this engine at all, by field."""
    server_error_hint: str | None = None
    """What a 5xx at /metrics has meant in the field."""
    roles: Mapping[str, Role] = field(init=False, repr=False)
    """Every sample name the adapter reads."""

    def __post_init__(self) -> None:
        """Spell out every sample name once."""
        roles: dict[str, Role] = {}
        for counter in self.counters:
            for rank, name in enumerate(counter.names):
                roles[name] = Role(counter.field, "counter", rank, counter.by)
        for gauge in self.gauges:
            for rank, name in enumerate(gauge.names):
                roles[name] = Role(gauge.field, "gauge", rank)
        parts: tuple[tuple[str, Part], ...] = (
            ("_bucket", "bucket"),
            ("_sum", "sum"),
            ("_count", "count"),
        )
        for histogram in self.histograms:
            for rank, name in enumerate(histogram.names):
                for suffix, part in parts:
                    roles[name + suffix] = Role(histogram.field, part, rank)
        object.__setattr__(self, "roles", roles)

    def engine_of(self, labels: Mapping[str, str]) -> str:
        """The engine a series belongs to.

        No engine writes `instance`: a page that has it was put together from several servers' (a
        federation, a proxy), and its engines must not be taken for one.
        """
        named = next((labels[label] for label in self.engine_labels if label in labels), "0")
        return f"{labels['instance']}/{named}" if "instance" in labels else named

    def why_absent(self, field_name: str) -> str:
        """The reason to print where a field is unknown because the engine has no such metric."""
        known = self.absent.get(field_name)
        if known:
            return known
        metrics: tuple[Counter | Histogram | Gauge, ...] = (
            *self.counters,
            *self.histograms,
            *self.gauges,
        )
        names = [metric.names[0] for metric in metrics if metric.field == field_name]
        return f"{names[0]} is not exposed" if names else f"{self.kind} has no metric for it"
