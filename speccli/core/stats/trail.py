"""What the fleet did over wall time: growth of engines, kept with the stretch it happened in.

A round may hold a part of the fleet (a slow answer, a Prometheus that scrapes every engine at its
own second), and a scrape may catch up on several rounds. So a point is the growth of those engines
that were read together, over the time since they were read before; points overlap, and charts cut
them into columns of wall time. Engines that expose different terms never share a point.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from speccli.core.metrics.counters import Layout
from speccli.core.stats.snapshot import TrailPoint
from speccli.core.stats.track import Track

_MOST = 5400
"""Points after which old ones are merged."""
_THIN = 60
"""Merged points are at most age / _THIN long: about a column of a chart that shows them."""
_APART_S = 0.5
_APART = 0.25
"""Engines whose samples lie no further apart, in seconds or in shares of the time between two
samples of one engine, are one point."""
_TERMS = ("draft_tokens", "accepted_tokens", "drafts", "generation_tokens", "ttft", "itl")

Places = tuple["int | None", ...]


@dataclass(slots=True)
class _Group:
    """Engines that were read together."""

    start: float
    end: float
    """Of the first of them; what follows are sums over all."""
    starts: float
    ends: float
    engines: int
    values: list[float]
    """As a point has them: the terms, waiting, running."""

    def point(self) -> TrailPoint:
        """Their growth, over the mean of their times: these meet from round to round."""
        at = self.ends / self.engines
        seconds = at - self.starts / self.engines
        return TrailPoint(at, seconds, *self.values)


class Trail:
    """Growth of a fleet, newest last; old points are merged."""

    def __init__(self) -> None:
        """Nothing happened yet."""
        self._points: list[TrailPoint] = []

    def __bool__(self) -> bool:
        """Whether anything happened."""
        return bool(self._points)

    def add(self, tracks: Iterable[Track], keep_s: float | None) -> None:
        """The newest growth of engines that came in one round; `keep_s`: as far as is kept."""
        groups: dict[tuple[bool, ...], list[_Group]] = {}
        for track in tracks:
            _put(groups, track)
        for group in (each for alike in groups.values() for each in alike):
            point = group.point()
            if point.seconds > 0:
                insort(self._points, point, key=_at)
        if len(self._points) > _MOST:
            self._thin(keep_s)

    def until(self, reach: float) -> tuple[TrailPoint, ...]:
        """All up to `reach`: what lies after it is not known of every engine yet."""
        points, whole = self._points, len(self._points)
        while whole and points[whole - 1].at > reach:
            whole -= 1
        begun = [p for p in points[whole:] if p.at - p.seconds < reach]
        return (*points[:whole], *(_until(point, reach) for point in begun))

    def set_back(self, at: float) -> None:
        """Forget what lies after `at`: the clock was wrong."""
        self._points = [point for point in self._points if point.at <= at]

    def _thin(self, keep_s: float | None) -> None:
        now = self._points[-1].at
        oldest = -math.inf if keep_s is None else now - keep_s
        open_: dict[tuple[bool, ...], TrailPoint] = {}
        kept: list[TrailPoint] = []
        for point in self._points:
            if point.at < oldest:
                continue
            told = _told(point)
            last = open_.get(told)
            if last is not None and _adjoin(last, point, now):
                open_[told] = _merged(last, point)
                continue
            if last is not None:
                kept.append(last)
            open_[told] = point
        self._points = sorted((*kept, *open_.values()), key=_at)[-_MOST // 2 :]


def _put(groups: dict[tuple[bool, ...], list[_Group]], track: Track) -> None:
    """An engine's newest growth, to the engines that it belongs to."""
    step = track.step
    if step is None:
        return
    old, new = step
    places = _places(track.layout)
    before, after = old.totals, new.totals
    grown = [math.nan if i is None else max(0.0, after[i] - before[i]) for i in places]
    if not grown[1] <= grown[0]:  # they contradict each other, or one of them is not exported
        grown[0] = grown[1] = math.nan
    waiting = math.nan if new.waiting is None else new.waiting
    values = [*grown, waiting, new.running or 0.0]
    alike = groups.setdefault(tuple(map(math.isnan, values)), [])
    apart = max(_APART_S, _APART * (new.at - old.at))
    for group in alike:
        if abs(group.start - old.at) <= apart and abs(group.end - new.at) <= apart:
            group.starts += old.at
            group.ends += new.at
            group.engines += 1
            group.values = [a + b for a, b in zip(group.values, values, strict=True)]
            return
    alike.append(_Group(old.at, new.at, old.at, new.at, 1, values))


@lru_cache(maxsize=1024)
def _places(layout: Layout) -> Places:
    """Where the terms lie; None for those that are not exported."""
    places: list[int | None] = []
    for name in _TERMS:
        slots = layout.histograms.get(name)
        count = None if slots is None else slots.start + len(slots.bounds) - 1
        places.append(layout.index.get(name, count))
    return tuple(places)


def _at(point: TrailPoint) -> float:
    return point.at


def _grown(point: TrailPoint) -> list[float]:
    return [
        point.draft_tokens,
        point.accepted_tokens,
        point.drafts,
        point.generation_tokens,
        point.first_tokens,
        point.decode_steps,
    ]


def _told(point: TrailPoint) -> tuple[bool, ...]:
    return (*map(math.isnan, _grown(point)), math.isnan(point.waiting))


def _adjoin(one: TrailPoint, other: TrailPoint, now: float) -> bool:
    """Whether two points are near enough to each other, and old enough, to be one."""
    start = one.at - one.seconds
    meet = other.at - other.seconds <= one.at + _APART_S
    return meet and other.at - start <= (now - other.at) / _THIN


def _merged(one: TrailPoint, other: TrailPoint) -> TrailPoint:
    """The growth of both; gauges so that they add up to the same over the time."""
    start = min(one.at - one.seconds, other.at - other.seconds)
    at = max(one.at, other.at)
    seconds = at - start

    def over_time(a: float, b: float) -> float:
        return (a * one.seconds + b * other.seconds) / seconds

    grown = [a + b for a, b in zip(_grown(one), _grown(other), strict=True)]
    gauges = over_time(one.waiting, other.waiting), over_time(one.running, other.running)
    return TrailPoint(at, seconds, *(*grown, *gauges))


def _until(point: TrailPoint, at: float) -> TrailPoint:
    """The part of a point that lies before `at`."""
    seconds = at - (point.at - point.seconds)
    share = seconds / point.seconds
    grown = [share * value for value in _grown(point)]
    return TrailPoint(at, seconds, *(*grown, point.waiting, point.running))
