"""What engines counted between one observation and the next, also across runs of specctl.

A window remembers an hour of one process; a cron job remembers nothing. So the totals of the last
observation are kept, and their growth is counted as a window would count it: never across a
change of the set of counters, never where a counter fell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from speccli.core.metrics.counters import Layout
from speccli.core.stats.drift import Look
from speccli.core.stats.increase import Pool
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot

_COUNTERS = (
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "prompt_tokens",
    "generation_tokens",
    "steps",
)
_COUNTS = ("ttft", "itl")
_EPOCH = 1e9
_SAME_START_S = 1.0


@dataclass(frozen=True, slots=True)
class Growth:
    """One engine, or a fleet that a Prometheus summed, since it was last observed."""

    name: str
    engine: EngineSnapshot | None
    """None for the fleet."""
    look: Look | None
    """None where nothing can be told: the first time, or counters that fell."""
    cut: bool
    """Another process or another way of drafting: what was known before is not about this one."""


@dataclass(slots=True)
class _Base:
    """An engine as it was last observed."""

    at: float
    started: float | None
    what: str
    """Model, method and K: when one changes, history is cut."""
    totals: dict[str, float]
    """As this object counts, on through an engine's restarts."""
    own: dict[str, float]
    """The engine's own counters: what another run of specctl can go on from."""


class Meter:
    """Remembers totals; owns no clock."""

    def __init__(self, state: Any = None) -> None:
        """`state`: what `to_json` gave; ValueError, TypeError or KeyError where it is none."""
        self._bases: dict[str, _Base] = {}
        self._here: dict[str, int] = {}
        """Restarts of the engines this object has seen itself: their totals go on through them."""
        self._pooled_at: float | None = None
        if state:
            self._pooled_at = _number(state["pooled_at"])
            for name, base in state["engines"].items():
                totals = {str(k): float(v) for k, v in base["totals"].items()}
                if not all(map(math.isfinite, totals.values())):
                    raise ValueError("totals that are not finite")
                at, started = float(base["at"]), _number(base["started"])
                self._bases[str(name)] = _Base(at, started, str(base["what"]), totals, totals)

    def to_json(self) -> dict[str, Any]:
        """Its whole state."""
        bases = {
            name: {"at": b.at, "started": b.started, "what": b.what, "totals": b.own}
            for name, b in self._bases.items()
        }
        return {"pooled_at": self._pooled_at, "engines": bases}

    def take(self, snapshot: Snapshot) -> list[Growth]:
        """Growth of every engine that is up to date; of the fleet where it was only summed."""
        if snapshot.pooled is not None:
            return self._pooled(snapshot, snapshot.pooled)
        self._bases = {
            name: base for name, base in self._bases.items() if snapshot.at - base.at < _FORGET_S
        }
        fresh = [e for e in snapshot.fresh if e.points and e.processes == "one"]
        return [growth for engine in fresh if (growth := self._one(engine)) is not None]

    def _pooled(self, snapshot: Snapshot, pool: Pool) -> list[Growth]:
        seconds = pool.seconds
        if seconds is None or pool.since_start:
            return []
        if self._pooled_at is not None and 0 <= snapshot.at - self._pooled_at < 0.9 * seconds:
            return []
        self._pooled_at = snapshot.at

        def sums(slot: str) -> float | None:
            found = pool.sums(slot)
            return None if found is None else found[0]

        look = _look(sums, pool.positions, snapshot.at, seconds)
        return [Growth("fleet", None, look, cut=False)]

    def _one(self, engine: EngineSnapshot) -> Growth | None:
        point, increase = engine.points[-1], engine.increase
        if increase is None:
            return None
        totals = own = _totals(increase.layout, point.totals)
        if engine.offset is not None:
            beyond = _totals(increase.layout, engine.offset)
            own = {slot: total - beyond[slot] for slot, total in totals.items()}
        what = f"{engine.model}|{engine.method}|{engine.k}"
        old = self._bases.get(engine.name)
        new = _Base(point.at, engine.started, what, totals, own)
        known_here = engine.name in self._here
        restarted_here = engine.resets > self._here.get(engine.name, engine.resets)
        if old is not None and new.at <= old.at:
            if new.at < old.at - _CLOCK_S:  # the clock was set back: count on from here
                self._keep(engine, new)
                return Growth(engine.name, engine, None, cut=False)
            return None
        self._keep(engine, new)
        if old is None:
            return Growth(engine.name, engine, _first(engine), cut=False)
        restarted = _other_process(old, new) or (not known_here and engine.resets > 0)
        cut = restarted_here or restarted or old.what != new.what
        if (
            known_here and engine.points[0].at > old.at
        ):  # its history began anew, from what was then
            return Growth(engine.name, engine, None, cut=cut)
        if old.what != new.what or old.totals.keys() != totals.keys():
            return Growth(engine.name, engine, None, cut=True)
        grown, seconds = _grown(old, new, known_here=known_here, restarted=restarted)
        if any(value < -1e-6 for value in grown.values()):
            return Growth(engine.name, engine, None, cut=cut)
        return Growth(engine.name, engine, _of(grown, new.at, seconds), cut)

    def _keep(self, engine: EngineSnapshot, base: _Base) -> None:
        self._bases[engine.name] = base
        self._here[engine.name] = engine.resets


def together(looks: Iterable[Look]) -> Look | None:
    """Looks of several engines over the same time, as the fleet's; None of none."""
    looks = list(looks)
    if not looks:
        return None
    return replace(sum(looks[1:], looks[0]), seconds=max(look.seconds for look in looks))


@dataclass(slots=True)
class Pending:
    """Growth that is not yet a look: too short, or too few drafts."""

    look: Look | None = None

    def take(self, grown: Look, every_s: float, least_drafts: float) -> Look | None:
        """Growth; returns the look once it is one."""
        self.look = grown if self.look is None else self.look + grown
        if self.look.seconds < _NEARLY * every_s or self.look.drafts < max(1.0, least_drafts):
            return None
        whole, self.look = self.look, None
        return whole


_NEARLY = 0.9
"""Cron is not a metronome: five minutes less a little are five minutes."""
_FORGET_S = 7 * 86_400.0
_CLOCK_S = 5.0
"""Clocks of several processes differ by no more."""


def _grown(
    old: _Base, new: _Base, *, known_here: bool, restarted: bool
) -> tuple[dict[str, float], float]:
    """Growth from one to the other, and the time it took: a new process's is all it counted."""
    seconds = new.at - old.at
    if known_here:
        return {slot: total - old.totals[slot] for slot, total in new.totals.items()}, seconds
    if not restarted:
        return {slot: total - old.own[slot] for slot, total in new.own.items()}, seconds
    alive = seconds if new.started is None else new.at - new.started
    return dict(new.own), max(1.0, min(seconds, alive))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _other_process(old: _Base, new: _Base) -> bool:
    if old.started is None or new.started is None:
        return False
    return abs(new.started - old.started) > _SAME_START_S


def _totals(layout: Layout, values: Any) -> dict[str, float]:
    totals = {name: float(values[i]) for name, i in layout.index.items() if _wanted(name)}
    for name in _COUNTS:
        slots = layout.histograms.get(name)
        if slots is not None:
            totals[name] = float(values[slots.start + len(slots.bounds) - 1])
    return totals


def _wanted(name: str) -> bool:
    return name in _COUNTERS or name.startswith("accepted_at:")


def _first(engine: EngineSnapshot) -> Look | None:
    """What its window holds, the first time it is seen."""
    increase = engine.increase
    if increase is None or increase.since_start or not increase.seconds:
        return None
    return _of(_totals(increase.layout, increase.values), engine.at or 0.0, increase.seconds)


def _of(grown: Mapping[str, float], at: float, seconds: float) -> Look | None:
    def get(slot: str) -> float | None:
        return grown.get(slot.removesuffix(".count"))

    positions = sum(name.startswith("accepted_at:") for name in grown)
    return _look(get, positions, at, seconds)


def _look(
    get: Callable[[str], float | None], positions: int, at: float, seconds: float
) -> Look | None:
    """A look from growths by slot; None where they are impossible."""
    drafts, drafted, accepted = get("drafts"), get("draft_tokens"), get("accepted_tokens")
    if drafted is None or accepted is None:
        drafts = drafted = accepted = 0.0
    if accepted > drafted or not all(map(math.isfinite, (drafted, accepted, drafts or 0.0))):
        return None
    by_position = tuple(get(f"accepted_at:{i}") or 0.0 for i in range(positions))
    prompts, requests = get("prompt_tokens"), get("ttft.count")
    itl, steps = get("itl.count"), get("steps")
    told = prompts is not None and requests is not None
    look = Look(
        at=at,
        seconds=seconds,
        drafts=drafted if drafts is None else drafts,
        draft_tokens=drafted,
        accepted=accepted,
        positions=by_position,
        prompt_tokens=prompts or 0.0 if told else 0.0,
        requests=requests or 0.0 if told else 0.0,
        output_tokens=get("generation_tokens") or 0.0,
    )
    if itl is None or steps is None or requests is None:
        return look
    return replace(look, steps=steps, served=itl + requests)
