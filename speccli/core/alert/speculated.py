"""Which engines are known to speculate: one that does so no more is told from one that never did.

What was seen is kept until an engine speculates again or the operator says that none should.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speccli.core.baseline.model import Baseline
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot

_FORGET_S = 30 * 86_400.0
"""How long an engine that is gone is remembered: names of pods never come back."""
_NO_METHOD = frozenset({"none", "unknown"})


@dataclass(frozen=True, slots=True)
class _Way:
    """How an engine was last seen to draft."""

    group: str
    """Its model and pool: engines that stand for one another."""
    method: str
    drafted_at: float
    """When it was last seen with drafts, Unix seconds."""
    seen_at: float
    """When it was last there at all."""


@dataclass(slots=True)
class Speculated:
    """Remembers by the engine's name; one owner, called once a check."""

    engines: dict[str, _Way] = field(default_factory=dict)
    plain: dict[str, float] = field(default_factory=dict)
    """Engines that ran without a draft before any of their group had one, and when last seen."""

    def take(
        self, snapshot: Snapshot, baseline: Baseline | None, *, expected: bool | None
    ) -> Mapping[str, str]:
        """Learn from a snapshot; why engines should speculate, by name, where something says so.

        `expected`: what the operator says; False forgets everything that was seen.
        """
        if expected is False:
            self.engines.clear()
            self.plain.clear()
            return {}
        fresh = [engine for engine in snapshot.fresh if engine.processes == "one"]
        drafting = {engine.name for engine in fresh if _drafts(engine)}
        known = {way.group for way in self.engines.values()}
        for engine in fresh:
            if engine.name in drafting:
                self.plain.pop(engine.name, None)
                self.engines[engine.name] = self._drafted(engine, snapshot.at)
            elif engine.name in self.engines:
                way = self.engines[engine.name]
                self.engines[engine.name] = _Way(way.group, way.method, way.drafted_at, snapshot.at)
            elif engine.name in self.plain or (_told_none(engine) and _group(engine) not in known):
                self.plain[engine.name] = snapshot.at
        told = {
            engine.name: why
            for engine in fresh
            if engine.name not in drafting
            and (why := self._why(engine, snapshot, baseline)) is not None
        }
        self._forget(snapshot.at)
        return told

    def _drafted(self, engine: EngineSnapshot, at: float) -> _Way:
        before = self.engines.get(engine.name)
        method = engine.method
        if method in _NO_METHOD:
            method = before.method if before is not None else "unknown"
        return _Way(_group(engine), method, at, at)

    def _why(
        self, engine: EngineSnapshot, snapshot: Snapshot, baseline: Baseline | None
    ) -> str | None:
        """What says that it should speculate."""
        way = self.engines.get(engine.name)
        if way is not None:
            return f"it drafted{_with(way.method)} before"
        if (way := self._succeeded(engine, snapshot)) is not None:
            # From now on it is known by its own name, whatever becomes of the others.
            self.engines[engine.name] = _Way(way.group, way.method, way.drafted_at, snapshot.at)
            return f"the engine it stands for drafted{_with(way.method)}"
        if baseline is not None and baseline.key.target in {None, engine.model}:
            method = baseline.key.method
            if method != "none":
                return f"baseline {baseline.name} was recorded with {method or 'a draft'}"
        return None

    def _succeeded(self, engine: EngineSnapshot, snapshot: Snapshot) -> _Way | None:
        """How the engine drafted that this one has replaced; None where it replaced none.

        A name that is new took the place of one that is gone, or is one more pod of its pool. Not
        to be told where its group had engines without a draft from the start.
        """
        if not _told_none(engine) or engine.name in self.plain:
            return None
        group = _group(engine)
        present = {each.name for each in snapshot.engines}
        beside = {each.name for each in snapshot.fresh if _group(each) == group}
        if beside & self.plain.keys():
            return None
        ways = {name: way for name, way in self.engines.items() if way.group == group}
        gone = [way for name, way in ways.items() if name not in present]
        found = gone or (list(ways.values()) if engine.pool is not None else [])
        return max(found, key=lambda way: way.drafted_at, default=None)

    def _forget(self, now: float) -> None:
        limit = now - _FORGET_S
        self.engines = {n: way for n, way in self.engines.items() if way.seen_at >= limit}
        self.plain = {name: at for name, at in self.plain.items() if at >= limit}

    def to_json(self) -> dict[str, Any]:
        """Its whole state."""
        engines = [
            [name, way.group, way.method, way.drafted_at, way.seen_at]
            for name, way in self.engines.items()
        ]
        return {"engines": engines, "plain": [[name, at] for name, at in self.plain.items()]}

    @classmethod
    def from_json(cls, value: Any) -> Speculated:
        """What `to_json` gave; ValueError, TypeError or KeyError where it is none of it."""
        engines = {
            str(name): _Way(str(group), str(method), float(drafted_at), float(seen_at))
            for name, group, method, drafted_at, seen_at in value["engines"]
        }
        return cls(engines, {str(name): float(at) for name, at in value["plain"]})


def _drafts(engine: EngineSnapshot) -> bool:
    """Whether it shows that it speculates: series of drafts, or a length that only a draft makes.

    What the operator calls it proves nothing.
    """
    if _told_none(engine):
        return False
    if engine.increase is not None and engine.increase.layout.spec:
        return True
    return engine.gauges.get("acceptance_length", 0.0) >= 1


def _told_none(engine: EngineSnapshot) -> bool:
    return engine.method == "none" and engine.method_told


def _group(engine: EngineSnapshot) -> str:
    return f"{engine.pool or ''}/{engine.model or ''}"


def _with(method: str) -> str:
    return "" if method in _NO_METHOD else f" with {method}"
