"""What rules look at: a snapshot, cut into the engines and the fleet that are judged."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from speccli.core.findings.base import FLEET
from speccli.core.stats.increase import Increase, Pool
from speccli.core.stats.measures import Subject
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot

if TYPE_CHECKING:
    from speccli.core.alert.judgement import Judgement

_RECENT_S = 60.0
"""What holds at once is judged on no more than this, however long the window on the screen is."""
_UNIX = 1e9
"""Start times under this are uptimes, not dates."""


@dataclass(frozen=True)
class Scope:
    """One thing that is judged: an engine whose numbers belong to now, or the fleet."""

    name: str
    subject: Subject
    engine: EngineSnapshot | None
    """None for the fleet."""
    method: str

    @property
    def pool(self) -> Pool:
        """Growth over the whole window."""
        return self.subject.pool

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """Growth of late, then over the whole window: the first that has enough is judged."""
        recent = _recent(self.engine) if self.engine else None
        return (self.pool,) if recent is None else (Pool([recent]), self.pool)


class Case:
    """A snapshot, and what several rules need of it."""

    def __init__(self, snapshot: Snapshot, judgement: Judgement | None = None) -> None:
        """`snapshot`: what is judged; `judgement`: what a judge with a memory adds to it."""
        self.snapshot = snapshot
        self.judgement = judgement

    @cached_property
    def engines(self) -> tuple[Scope, ...]:
        """Every engine that is up to date."""
        return tuple(Scope(e.name, e.subject, e, e.method) for e in self.snapshot.fresh)

    @cached_property
    def fleet(self) -> Scope:
        """All of them together; a fleet of one goes by that engine's name."""
        engines = self.snapshot.engines
        alone = len(engines) == 1 and self.snapshot.pooled is None
        methods = {e.method for e in engines}
        method = methods.pop() if len(methods) == 1 else "unknown"
        name = engines[0].name if alone else FLEET
        return Scope(name, self.snapshot.subject, None, method)

    @cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """Engines, and the fleet where a Prometheus summed engines that were not fetched."""
        summed = self.snapshot.pooled is not None
        return (self.fleet, *self.engines) if summed else self.engines

    @cached_property
    def total(self) -> int:
        """How many engines there are."""
        return max(len(self.snapshot.engines), self.snapshot.pooled_engines or 0)

    @cached_property
    def servers(self) -> dict[str, int]:
        """Engines a server has, by target."""
        counts: dict[str, int] = {}
        for engine in self.snapshot.engines:
            counts[engine.target] = counts.get(engine.target, 0) + 1
        return counts


def decoded(pool: Pool) -> float | None:
    """Output tokens a draft could have been made for: all but each request's first."""
    sums = pool.sums("generation_tokens", "ttft.count")
    if sums is not None:
        return sums[0] - sums[1]
    alone = pool.sums("generation_tokens")
    return None if alone is None else alone[0]


def flat_since(engine: EngineSnapshot | None, slot: str) -> float | None:
    """Since when a counter has not grown; None where it just did, or where one sample is all."""
    i = engine.increase.layout.index.get(slot) if engine and engine.increase else None
    if engine is None or i is None or len(engine.points) < 2:
        return None
    last = engine.points[-1].totals[i]
    since = None
    for point in reversed(engine.points[:-1]):
        if point.totals[i] != last:
            break
        since = point.at
    return since


def started(engine: EngineSnapshot) -> float | None:
    """When its process began, Unix seconds; None where it tells no such time."""
    known = engine.started
    return known if known is not None and _UNIX < known <= (engine.at or 0.0) else None


def by_server(
    engines: Sequence[EngineSnapshot],
) -> list[tuple[str, list[EngineSnapshot]]]:
    """Engines that share a server and a fate, under one name."""
    groups: dict[tuple[str, str | None], list[EngineSnapshot]] = {}
    for engine in engines:
        groups.setdefault((engine.target, engine.reason), []).append(engine)
    return [
        (members[0].name if len(members) == 1 else f"{target.split('://')[-1]}/*", members)
        for (target, _reason), members in groups.items()
    ]


def _recent(engine: EngineSnapshot) -> Increase | None:
    """Growth over the last minute; None where the window is no longer than that anyway."""
    whole, points = engine.increase, engine.points
    if whole is None or whole.since_start or (whole.seconds or 0.0) <= _RECENT_S:
        return None
    end = points[-1]
    start = next((p for p in reversed(points[:-1]) if p.at <= end.at - _RECENT_S + 1e-6), None)
    if start is None:
        return None
    growth = array("d", [max(0.0, b - a) for a, b in zip(start.totals, end.totals, strict=True)])
    return Increase(whole.layout, growth, end.at - start.at)
