"""What one round of scrapes amounts to: frozen, whole, and the only thing views ever see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

from speccli.core.cost import Pricing
from speccli.core.stats import batch
from speccli.core.stats.increase import Buckets, Increase, Pool, merge_buckets
from speccli.core.stats.measures import Metrics, Subject, measure
from speccli.core.stats.track import Point
from speccli.core.values import Latency, Number, Quantile

EngineState = Literal[
    "ok", "no-traffic", "partial", "stale", "missing", "down", "pending", "loading", "terminating"
]
Processes = Literal["one", "unsure", "several"]
"""Who answers at an engine's URL; `unsure`: another process than before, as a restart or as one of
several. Nothing is measured unless it is one."""
FRESH: frozenset[str] = frozenset({"ok", "no-traffic", "partial"})
"""States whose numbers belong to now."""
NOT_DUE: frozenset[str] = frozenset({"pending", "loading", "terminating"})
"""States in which no numbers are due yet, or any more."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, told once."""

    at: float
    subject: str
    text: str
    severity: Literal["info", "warning", "critical"] = "info"


@dataclass(frozen=True, slots=True)
class TrailPoint:
    """Growth of engines that were read together; what charts are pooled from.

    The fleet's, where it is summed elsewhere. All of a point's engines expose the same terms: NaN
    is what they do not. Points overlap where engines are read at different times.
    """

    at: float
    """When it ends, Unix seconds."""
    seconds: float
    """Over how long."""
    draft_tokens: float
    accepted_tokens: float
    drafts: float
    generation_tokens: float
    first_tokens: float
    decode_steps: float
    waiting: float
    running: float


@dataclass(frozen=True)
class EngineSnapshot:
    """One engine over the window; or one target that shows no engine, with the reason."""

    target: str
    engine: str
    """Label inside its server; `?` where a target has shown none yet."""
    state: EngineState
    reason: str | None
    fix: str | None = None
    """What to do about the state, where the source knows."""
    kind: str = "vllm"
    model: str | None = None
    version: str | None = None
    method: str = "unknown"
    method_told: bool = False
    """Whether the server or the operator named the method, rather than missing series."""
    meant: str | None = None
    """The method that specctl deployed it with, where the source knows; `none`: without one."""
    k: int | None = None
    """Draft tokens per step the engine was started with; None where not told."""
    draft: str | None = None
    """The draft model, where the server tells it."""
    pool: str | None = None
    """The pool of its deployment, where the source knows; pools may differ on purpose."""
    at: float | None = None
    """When its newest sample was taken, Unix seconds."""
    started: float | None = None
    resets: int = 0
    increase: Increase | None = None
    gauges: Mapping[str, float] = field(default_factory=dict)
    points: Sequence[Point] = ()
    offset: Sequence[float] | None = None
    """By how much `points`' totals now go beyond the engine's own counters, by slot: what earlier
    processes counted. None where they do not."""
    bins: batch.Bins = batch.EMPTY
    several_api_servers: bool = False
    processes: Processes = "one"
    discarded: int = 0
    """Intervals dropped because the speculation counters contradicted each other."""
    low_since: float | None = None
    """Since when acceptance has stayed under the floor, Unix seconds; None while it does not."""
    sources: Mapping[str, str] = field(default_factory=dict)
    pricing: Pricing = field(default_factory=Pricing)

    @property
    def name(self) -> str:
        """`host:port/engine`: how people speak of it."""
        return f"{self.target.split('://')[-1]}/{self.engine}"

    @cached_property
    def subject(self) -> Subject:
        """What its numbers are measured on."""
        return Subject(
            Pool([self.increase] if self.increase else []),
            [self.gauges],
            self.kind,
            self.several_api_servers,
            speculating=self.method != "none",
            partial=self.state == "partial",
        )

    @cached_property
    def metrics(self) -> Metrics:
        """Its numbers: marked stale where they are old, unknown where the engine is gone."""
        metrics = measure(self.subject, self.pricing)
        if self.state in FRESH and (self.increase is not None or self.reason is None):
            return metrics
        reason = self.reason or self.state
        return _map_metrics(metrics, stale=self.state == "stale", reason=reason)


@dataclass(frozen=True, slots=True)
class BatchRow:
    """Latency at one range of batch sizes."""

    batch: str
    itl: Buckets | None
    ttft: Buckets | None


@dataclass(frozen=True)
class Snapshot:
    """The fleet over the window."""

    at: float
    """The newest sample's time, Unix seconds."""
    window_s: float
    """The window asked for; `covered_s` is what the samples cover of it."""
    engines: tuple[EngineSnapshot, ...]
    trail: Sequence[TrailPoint]
    """In order of their ends; up to where every engine that answers has been read."""
    events: tuple[Event, ...]
    pricing: Pricing
    simulated: bool = False
    source: str = "scrape"
    note: str | None = None
    """What the reader should know of the source, e.g. that a recording ends in a cut line."""
    pooled: Pool | None = None
    """The fleet's growth as a Prometheus summed it, where engines are too many to fetch."""
    pooled_gauges: Sequence[Mapping[str, float]] | None = None
    pooled_engines: int | None = None
    """How many engines stand behind `pooled`; `engines` then holds outliers only."""
    unbinned: str | None = None
    """Why there is no latency by batch size; None where there may be."""

    @cached_property
    def fresh(self) -> tuple[EngineSnapshot, ...]:
        """Engines whose numbers belong to now."""
        return tuple(e for e in self.engines if e.state in FRESH and e.increase is not None)

    @cached_property
    def subject(self) -> Subject:
        """What the fleet's numbers are measured on."""
        if self.pooled is not None:
            gauges = self.pooled_gauges or ()
            several = any(e.several_api_servers for e in self.engines)
            return Subject(self.pooled, gauges, self._kind, several, engines=self.pooled_engines)
        members = self.fresh
        windowed = [e for e in members if e.increase and not e.increase.since_start]
        members = tuple(windowed) or members
        return Subject(
            Pool([e.increase for e in members if e.increase]),
            [e.gauges for e in members],
            self._kind,
            any(e.several_api_servers for e in members),
            speculating=any(e.method != "none" for e in members),
            partial=any(e.state == "partial" for e in members),
        )

    @property
    def _kind(self) -> str:
        return next((e.kind for e in self.engines), "vllm")

    @cached_property
    def fleet(self) -> Metrics:
        """The fleet's numbers, pooled before dividing."""
        return measure(self.subject, self.pricing)

    @property
    def covered_s(self) -> float:
        """Seconds from the first to the last sample behind the numbers; 0 with one sample.

        A filled window is covered by a little more than was asked for: counting begins at the last
        sample before it.
        """
        pool = self.subject.pool
        return 0.0 if pool.since_start else pool.seconds or 0.0

    @cached_property
    def by_batch(self) -> tuple[BatchRow, ...]:
        """Latency by batch size over the fleet, one row per range seen.

        Outliers are not the fleet: none where it was summed elsewhere, and `unbinned` says so.
        """
        return () if self.pooled is not None else batch_rows(self.fresh)


def _map_metrics(metrics: Metrics, *, stale: bool, reason: str) -> Metrics:
    def number(old: Number) -> Number:
        return old.as_stale(reason) if stale else Number.unknown(reason)

    def quantile(old: Quantile) -> Quantile:
        return Quantile.unknown(reason, n=old.n)

    changed: dict[str, Any] = {}
    for item in fields(metrics):
        old = getattr(metrics, item.name)
        if isinstance(old, Number):
            changed[item.name] = number(old)
        elif isinstance(old, Latency):
            changed[item.name] = Latency(
                quantile(old.p50), quantile(old.p95), quantile(old.p99), number(old.mean)
            )
        else:
            changed[item.name] = tuple(number(each) for each in old)
    return replace(metrics, **changed)


def batch_rows(engines: Sequence[EngineSnapshot]) -> tuple[BatchRow, ...]:
    """Rows for the batch ranges that `engines` ran at."""
    rows: list[BatchRow] = []
    for i, label in enumerate(batch.LABELS):
        itl: list[Buckets] = []
        ttft: list[Buckets] = []
        for engine in engines:
            grown = engine.bins[i]
            if grown is None or engine.increase is None:
                continue
            at = 0
            for name, parts in (("itl", itl), ("ttft", ttft)):
                slots = engine.increase.layout.histograms[name]
                end = at + len(slots.bounds)
                has_sum = slots.sum >= 0
                parts.append(
                    Buckets(slots.bounds, tuple(grown[at:end]), grown[end] if has_sum else None)
                )
                at = end + has_sum
        if itl:
            rows.append(BatchRow(label, merge_buckets(itl), merge_buckets(ttft)))
    return tuple(rows)
