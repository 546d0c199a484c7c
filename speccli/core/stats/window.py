"""Rounds of scrapes in, a frozen snapshot out. One owner, no locks, no I/O, no clock of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speccli.core.cost import Pricing
from speccli.core.metrics.counters import Counters
from speccli.core.metrics.reader import Reader, Reading
from speccli.core.sources.base import Scrape, Stage
from speccli.core.stats.floor import Floor
from speccli.core.stats.snapshot import EngineSnapshot, EngineState, Event, Snapshot
from speccli.core.stats.states import NOT_ALONE, both, idle, processes_of, refused
from speccli.core.stats.track import CLOCK_BACK_SAMPLES, Track
from speccli.core.stats.trail import Trail

_EVENTS = 500


@dataclass(slots=True)
class _Target:
    """What is known of one server."""

    failure: str | None = None
    """Why its last scrape gave nothing; None when it did."""
    answered: bool = False
    """Whether the failing scrape was answered at all."""
    stage: Stage | None = None
    """Where no answer is due: what the server is doing instead."""
    fix: str | None = None
    """What to do about the failure, where the source knows."""
    asked_at: float | None = None
    """The newest time of its answers, and of its failures."""
    read_at: float | None = None
    """When it last gave an engine."""
    note: str | None = None
    pool: str | None = None
    """The pool it was last read as a server of."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """What its process said of itself, as it said it last."""
    unidentified: bool = False
    """Whether another process answers than the one that said so."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a window is asked to do."""

    window_s: float | None = 60.0
    """Seconds a number looks back; None: everything there is (a replay)."""
    span_s: float | None = 3600.0
    """Seconds remembered at most, or the window where that is longer; None: everything."""
    stale_s: float = 5.0
    """Age at which an engine's last sample no longer stands for now."""
    floor: float = 0.4
    """Acceptance rate under which an engine is called low."""
    pricing: Pricing = field(default_factory=Pricing)
    method: str | None = None
    """The method, where the operator says it and no server tells it."""


class Window:
    """Accumulates a fleet."""

    def __init__(self, settings: Settings, *, simulated: bool = False, source: str = "scrape"):
        """`simulated`: the source says so; a simulator's page says so by itself."""
        self.settings = settings
        self.simulated = simulated
        self.source = source
        self.events: deque[Event] = deque(maxlen=_EVENTS)
        self._reader = Reader()
        self._targets: dict[str, _Target] = {}
        self._tracks: dict[tuple[str, str], Track] = {}
        self._floor = Floor()
        self._span_s = settings.span_s
        self._look_back(settings.window_s)
        self._trail = Trail()
        self._behind: list[float] = []
        """Times of late rounds that came one after another."""
        self._at = 0.0

    def push(self, scrapes: Iterable[Scrape]) -> None:
        """Take one round in."""
        scrapes, grown = list(scrapes), list[Track]()
        self._tell_time(scrapes)
        for scrape in scrapes:
            grown.extend(self._take(scrape))
        self._trail.add(grown, None if self._span_s is None else 2 * self._span_s)
        self._watch_floor()

    def _tell_time(self, scrapes: Sequence[Scrape]) -> None:
        """Time goes on; back only where round after round says that the clock was set back.

        A round that is late for the fleet and not for its own targets is from a slow store.
        """
        at = max((scrape.at for scrape in scrapes), default=self._at)
        before = [
            scrape.at <= target.asked_at
            for scrape in scrapes
            if (target := self._targets.get(scrape.target)) and target.asked_at is not None
        ]
        if at >= self._at or not before or not all(before):
            self._behind.clear()
        else:
            self._behind = [each for each in self._behind if each < at] + [at]
        if len(self._behind) >= CLOCK_BACK_SAMPLES:
            self._behind.clear()
            self._at = at
            self._trail.set_back(at)
            self._floor.set_back(at)
            for target in self._targets.values():
                target.asked_at = None
        self._at = max(self._at, at)

    @property
    def low(self) -> dict[tuple[str, str], float]:
        """Since when which engine (target, label) is under the floor, Unix seconds."""
        return dict(self._floor.since)

    def remember_low(self, low: Mapping[tuple[str, str], float]) -> None:
        """Go on from what another run of specctl saw; before the first round."""
        self._floor.since.update(low)

    @property
    def dark(self) -> bool:
        """Whether no target could be read when last asked."""
        return all(target.failure is not None for target in self._targets.values())

    @property
    def unidentified(self) -> frozenset[str]:
        """Targets whose process was replaced and has not said what it is: to be asked again."""
        return frozenset(name for name, target in self._targets.items() if target.unidentified)

    def keep(self, targets: Iterable[str]) -> None:
        """Only these targets exist any more; what is known of others is forgotten."""
        wanted = set(targets)
        for gone in [t for t in self._targets if t not in wanted]:
            del self._targets[gone]
            self._reader.forget(gone)
            for key in [k for k in self._tracks if k[0] == gone]:
                self._forget(key)
                self._say(_name(*key), "gone from the source")

    def snapshot(self, now: float | None = None, window_s: float | None = -1.0) -> Snapshot:
        """The fleet as of `now` (default: the newest sample), over `window_s` (default: set)."""
        now = self._at if now is None else now
        window = self.settings.window_s if window_s == -1.0 else window_s
        self._look_back(window)
        self._drop_vanished(now)
        engines = [self._engine(key, track, now, window) for key, track in self._tracks.items()]
        shown = {key[0] for key in self._tracks}
        engines += [self._bare(name) for name in self._targets if name not in shown]
        engines.sort(key=lambda e: (e.target, len(e.engine), e.engine))
        simulated = self.simulated or any(t.last.simulated for t in self._tracks.values())
        return Snapshot(
            at=self._at,
            window_s=window or 0.0,
            engines=tuple(engines),
            trail=self._trail.until(self._reach()),
            events=tuple(self.events),
            pricing=self.settings.pricing,
            simulated=simulated,
            source=self.source,
        )

    def _take(self, scrape: Scrape) -> list[Track]:
        target = self._targets.setdefault(scrape.target, _Target())
        target.asked_at = max(target.asked_at or scrape.at, scrape.at)
        if scrape.info:
            target.info, target.unidentified = dict(scrape.info), False
        if scrape.error is not None or scrape.status is None:
            self._failed(scrape, target, scrape.error or "no answer", answered=False)
            return []
        kinds = (t.last.kind for (name, _), t in self._tracks.items() if name == scrape.target)
        why_not = refused(scrape, next(kinds, None)) if scrape.status != 200 else None
        reading = (
            Reading((), *why_not)
            if why_not
            else self._reader.read(
                scrape.target, scrape.body, scrape.at, truncated=scrape.truncated
            )
        )
        if not reading.engines:
            word, why = reading.word or "MISSING", reading.reason or "no metrics"
            if scrape.note:
                why = f"{why} ({scrape.note})" if scrape.body or why_not else scrape.note
            self._failed(scrape, target, f"{word}: {why}", answered=True)
            return []
        if target.failure is not None:
            self._say(_host(scrape.target), "answers again", at=scrape.at)
        target.failure, target.read_at, target.note = None, scrape.at, scrape.note
        target.pool = scrape.pool or target.pool
        target.stage = target.fix = None
        told = bool(scrape.info)
        return [track for c in reading.engines if (track := self._count(c, told=told)) is not None]

    def _count(self, new: Counters, *, told: bool) -> Track | None:
        key = (new.target, new.engine)
        track = self._tracks.get(key)
        if track is None:
            self._tracks[key] = Track(new, self._span_s)
            if self._trail:
                self._say(_name(*key), "appeared", at=new.at)
            return None
        before = processes_of(track, new.at)
        event = track.push(new)
        if event in {"restart", "other"} and not told:
            target = self._targets[new.target]
            target.info, target.unidentified = {}, True
        if event == "restart":
            self._floor.forget(key)
            self._say(_name(*key), "restarted: its counters began again", "warning", at=new.at)
        elif event == "mixed":
            self._floor.forget(key)
            if before != "several":
                text = "answers for several processes (a load balancer?)"
                self._say(_name(*key), text, "warning", at=new.at)
        elif event == "other":
            self._floor.forget(key)
        alone = processes_of(track, new.at) == "one"
        return track if alone else None

    def _failed(self, scrape: Scrape, target: _Target, why: str, *, answered: bool) -> None:
        host = _host(scrape.target)
        if scrape.stage is not None:
            if scrape.stage != target.stage:
                self._say(host, f"{scrape.stage}: {why}", at=scrape.at)
        elif (target.failure is None and target.read_at is not None) or target.stage is not None:
            self._say(host, f"cannot be read: {why}", "warning", at=scrape.at)
        target.failure, target.answered = why, answered
        target.stage, target.fix = scrape.stage, scrape.fix

    def _engine(
        self, key: tuple[str, str], track: Track, now: float, window: float | None
    ) -> EngineSnapshot:
        last, target = track.last, self._targets[key[0]]
        increase = track.increase(window)
        processes = processes_of(track, last.at)
        alone = processes == "one"
        state, reason = self._state(track, target, now)
        k = last.layout.positions or None
        return EngineSnapshot(
            target=key[0],
            engine=key[1],
            state=state,
            reason=reason,
            fix=target.fix,
            kind=last.kind,
            model=last.model,
            version=target.info.get("version") or last.version,
            method=self._method(last, target),
            method_told=bool(target.info.get("method") or self.settings.method),
            meant=target.info.get("meant"),
            k=target.info.get("k") or k,
            draft=target.info.get("draft"),
            pool=target.pool,
            at=last.at,
            started=last.started,
            resets=track.resets,
            increase=increase if alone else None,
            gauges=last.gauges if alone else {},
            points=tuple(track.points),
            offset=track.offset,
            bins=track.by_batch(window),
            several_api_servers=last.several_api_servers,
            processes=processes,
            discarded=track.discarded,
            low_since=self._floor.since.get(key),
            sources=last.sources,
            pricing=self.settings.pricing,
        )

    def _method(self, last: Counters, target: _Target) -> str:
        told: str | None = target.info.get("method") or self.settings.method
        if told:
            return told
        if last.kind == "vllm" and not last.layout.spec:
            return "none"
        return "unknown"

    def _state(self, track: Track, target: _Target, now: float) -> tuple[EngineState, str | None]:
        age = now - track.last.at
        if target.stage is not None:
            return target.stage, target.failure
        if target.failure is not None:
            if age <= self.settings.stale_s and track.last.at > 0:
                return "stale", f"{target.failure} ({age:.0f} s ago it answered)"
            return ("missing" if target.answered else "down"), target.failure
        if target.read_at is not None and track.last.at < target.read_at:
            return "missing", "no longer on its server's page"
        if age > self.settings.stale_s:
            return "stale", f"last sample {age:.0f} s ago"
        if why := NOT_ALONE[processes_of(track, track.last.at)]:
            return "partial", why
        if track.last.partial or target.note:
            return "partial", both(track.last.partial, target.note)
        if idle(track, self.settings.window_s):
            return "no-traffic", "no tokens in the window"
        return "ok", None

    def _bare(self, name: str) -> EngineSnapshot:
        """A target that has shown no engine."""
        target = self._targets[name]
        return EngineSnapshot(
            target=name,
            engine="?",
            state=target.stage or ("missing" if target.answered else "down"),
            reason=target.failure or "not read yet",
            fix=target.fix,
            kind="vllm",
            version=target.info.get("version"),
            method=target.info.get("method", "unknown"),
        )

    def _reach(self) -> float:
        """Up to when all engines have been read of which the next sample may still be awaited."""
        ends = [track.points[-1].at for track in self._tracks.values()]
        newest = max(ends, default=self._at)
        return min((at for at in ends if newest - at <= self.settings.stale_s), default=newest)

    def _look_back(self, window_s: float | None) -> None:
        """Remember at least as much as is looked at."""
        if self._span_s is not None and window_s is not None and window_s > self._span_s:
            self._span_s = window_s
            for track in self._tracks.values():
                track.span_s = window_s

    def _drop_vanished(self, now: float) -> None:
        """An engine that its server no longer shows is kept for a window, then forgotten.

        Where the window is everything there is (a replay), so is the engine that was lost.
        """
        if self.settings.window_s is None:
            return
        keep_s = max(60.0, self.settings.window_s)
        for key, track in list(self._tracks.items()):
            read_at = self._targets[key[0]].read_at
            if read_at is not None and read_at - track.last.at > keep_s:
                self._forget(key)
                self._say(_name(*key), "gone from its server's page", at=now)

    def _forget(self, key: tuple[str, str]) -> None:
        del self._tracks[key]
        self._floor.forget(key)

    def _watch_floor(self) -> None:
        floor, window_s = self.settings.floor, self.settings.window_s
        for key, track in self._tracks.items():
            if processes_of(track, track.last.at) == "one":
                for text in self._floor.judge(key, track, floor, window_s):
                    low = key in self._floor.since
                    at = track.last.at if low else None
                    self._say(_name(*key), text, "warning" if low else "info", at=at)

    def _say(
        self, subject: str, text: str, severity: Any = "info", at: float | None = None
    ) -> None:
        self.events.append(Event(self._at if at is None else at, subject, text, severity))


def _host(target: str) -> str:
    return target.split("://")[-1]


def _name(target: str, engine: str) -> str:
    return f"{_host(target)}/{engine}"
