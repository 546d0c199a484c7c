"""One engine's history: reset-aware totals, thinned with age.

Counters that go down do not tell all: a restart can hide behind counts that have grown past the old
ones. So the process's start time decides where it is known: another one is another process (a new
one, or one of several behind one URL: then start times come back), and in the same one a counter
that fell is an older page (a cache, a proxy). Where it is not known, a restart is believed of
counters that all fell together. Any other fall is a puzzle, and its interval contributes nothing
at all: a ratio of counters that cover different times is wrong even where it is possible.
For the same reason a scrape that lacks some counters adds no point: the next whole one catches up.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from speccli.core.metrics.counters import Counters, Layout
from speccli.core.stats import batch
from speccli.core.stats.increase import Increase

_THIN = 16
"""Points lie at most age / _THIN apart: a window is exact to about 6 % of its length."""
_TEAR_SAMPLES = 3
"""Samples for which contradictory speculation counters are waited out before they are dropped."""
_OLDER_SAMPLES = 3
"""Fallen samples of one process in a row, taken for older pages, before they are believed."""
_LACKING_SAMPLES = 3
"""Samples without counters that were there, before history begins anew with those that are left."""
_MUCH = 100
"""A count that a new process does not reach in the time between two samples."""
_ALIVE_BEFORE_S = 10.0
"""A process that began this long before the last sample of another one may not have replaced it.

Not zero: the two times come from different clocks, which may also lie further apart."""
_SURE_SAMPLES = 3
"""More samples of such a process, after which it has replaced the other one all the same."""
CLOCK_BACK_SAMPLES = 4
"""Late samples in ascending order after which the wall clock is believed to have been set back."""
_OFTEN, _OFTEN_S = 3, 60.0
"""Restarts in so many seconds that no engine, which loads for longer, can make by itself."""
_LATELY_S = 15.0
"""How far back the mean of the waiting gauge looks."""
_EPOCH = 1e9
"""Start times under this are not Unix times (a test's or an uptime), and prove nothing."""


@dataclass(frozen=True, slots=True)
class Point:
    """Totals of one engine at one instant, resets taken out."""

    at: float
    totals: array[float]
    bins: batch.Bins
    running: float | None
    waiting: float | None


class Track:
    """Follows one engine from sample to sample."""

    def __init__(self, first: Counters, span_s: float | None) -> None:
        """`span_s`: how far back to remember; None keeps everything (a replay)."""
        self.span_s = span_s
        self.resets = 0
        self.late = 0
        self._behind: list[float] = []
        """Times of late samples that came one after another."""
        self._left_out_at: float | None = None
        self._began_again: list[float] = []
        """When counters of a process without a start time lately began again."""
        self.discarded = 0
        """Intervals whose speculation counters contradicted each other."""
        self.several_processes_at: float | None = None
        """When the URL was last seen to answer for more than one process."""
        self.growth: array[float] | None = None
        """Growth per slot over the newest interval; None when it could not be told."""
        self.points: list[Point] = []
        self.last: Counters = first
        self.layout: Layout = first.layout
        self.offset: array[float] | None = None
        """By how much totals go beyond the counters, by slot; None where they do not."""
        self._places: tuple[int, ...] = ()
        self._torn = 0
        self._lacking = 0
        self._older = 0
        self._doubt = 0
        """Samples that must come from this process before it is known to have replaced another."""
        self._whole = False
        """Whether the newest point's growth is known in all slots."""
        self._unattributable = False
        self._earlier: set[float] = set()
        self._begin(first)

    def push(self, new: Counters) -> str | None:
        """Take a sample in; returns what happened to it, None when it was simply counted.

        `late`, `older` (a page from before the last one), `restart`, `other` (another process
        answered, which may have replaced this one or not), `mixed` (several processes answer by
        turns), `lacking` (a part of a page), `reset` (counters fell one by one) or `changed`
        (another set of counters).
        """
        self.growth = None
        self._whole = False
        if new.at <= self.last.at:
            return self._late(new)
        self._behind.clear()
        if new.started is None and new.partial:
            new = replace(new, started=self.last.started)
        same = new.started is not None and new.started == self.last.started
        event = self._identity(new)
        if event in {"mixed", "other"}:
            self._doubt = _SURE_SAMPLES if event == "other" else 0
            self.several_processes_at = new.at if event == "mixed" else self.several_processes_at
            self._begin(new)
            return event
        if new.layout is not self.layout:
            if not new.layout.same_as(self.layout):
                return self._other_layout(new, event)
            new = replace(new, layout=self.layout)
        values = new.values
        self._lacking = 0
        self._whole = True
        if event == "restart":
            self.resets += 1
            self._shift(self.last.values, range(self.layout.size))
        elif any(map(operator.gt, self.last.values, values)):
            if same and self._older < _OLDER_SAMPLES:
                self._older += 1
                self.last = replace(self.last, at=new.at, partial=new.partial)
                self._whole = False
                return "older"
            event = self._stays_fallen(values) if same else self._fell(values)
        self._older = 0
        if event == "restart" and new.started is None and self._too_often(new.at):
            self.several_processes_at = new.at
            self._begin(new)
            return "mixed"
        values = self._untorn(values, event)
        self._append(new, values, counted=event is None)
        return self._sure() if same and self._doubt else event

    def _too_often(self, at: float) -> bool:
        """Whether counters begin again more often than a process can: then they are several's."""
        self._began_again = [t for t in self._began_again if at - t < _OFTEN_S] + [at]
        return len(self._began_again) >= _OFTEN

    @property
    def step(self) -> tuple[Point, Point] | None:
        """The two points between which the newest sample's growth lies, over restarts too.

        None where the sample added no point, or a growth that is not known.
        """
        return (self.points[-2], self.points[-1]) if self._whole else None

    @property
    def doubtful(self) -> bool:
        """Whether it cannot be told yet if the process was replaced or is one of several."""
        return self._doubt > 0

    def _sure(self) -> str | None:
        """No other process answered any more: it was a restart, on a clock that lags."""
        self._doubt -= 1
        if self._doubt:
            return None
        self.resets += 1
        return "restart"

    def _late(self, new: Counters) -> str:
        """A sample from before the last one: left out, unless it is the clock that went back."""
        self.late += 1
        self._behind = [at for at in self._behind if at < new.at] + [new.at]
        if len(self._behind) >= CLOCK_BACK_SAMPLES:
            self._behind.clear()
            if self.several_processes_at is not None:
                self.several_processes_at = min(self.several_processes_at, new.at)
            self._begin(new)
        return "late"

    def increase(self, window_s: float | None, *, pooled_start: bool = True) -> Increase | None:
        """Growth over the last `window_s` seconds (None: over everything remembered).

        With one sample only, growth since the process began (if `pooled_start`), else None.
        """
        end = self.points[-1]
        if len(self.points) == 1:
            if not pooled_start:
                return None
            started = self.last.started
            age = end.at - started if started and _EPOCH < started < end.at else None
            return Increase(self.layout, end.totals, age, since_start=True)
        start = self._start_of(window_s)
        growth = array("d", map(operator.sub, end.totals, start.totals))
        if self.offset is not None:  # sums of seconds may have lost their last bit
            growth = array("d", [x if x > 0 else 0.0 for x in growth])
        return Increase(
            self.layout,
            growth,
            end.at - start.at,
            torn=self._torn > 0 or (self._left_out_at is not None and self._left_out_at > start.at),
            waiting=self._lately_waiting(start.at),
        )

    def _lately_waiting(self, since: float) -> float | None:
        """Mean of the waiting gauge: one sample of it says little of a queue that breathes."""
        since = max(since, self.points[-1].at - _LATELY_S)
        seen: list[float] = []
        for point in reversed(self.points):
            if point.at < since and seen:
                break
            if point.waiting is not None:
                seen.append(point.waiting)
        return sum(seen) / len(seen) if seen else None

    def by_batch(self, window_s: float | None) -> batch.Bins:
        """Growth of each batch bin over the window."""
        return batch.growth_between(self._start_of(window_s).bins, self.points[-1].bins)

    def _start_of(self, window_s: float | None) -> Point:
        if window_s is None:
            return self.points[0]
        wanted = self.points[-1].at - window_s + 1e-6
        start = self.points[0]
        for point in self.points[:-1]:
            if point.at > wanted:
                break
            start = point
        return start

    def _identity(self, new: Counters) -> str | None:
        old = self.last.started
        if old is None or new.started is None or new.started == old:
            return None
        overlaps = _EPOCH < new.started < self.last.at - _ALIVE_BEFORE_S
        known = new.started in self._earlier
        self._earlier.add(old)
        return "mixed" if known else "other" if overlaps else "restart"

    def _other_layout(self, new: Counters, event: str | None) -> str:
        """A sample with other counters: a page with holes, or an engine that is not as it was."""
        if event == "restart":
            self.resets += 1
            self._begin(new, zero_at=self.last.at)
            return event
        lacks = new.layout.names < self.layout.names
        if lacks and self._lacking < _LACKING_SAMPLES:
            self._lacking += 1
            self._unattributable = True
            self.last = replace(
                new,
                layout=self.layout,
                values=self.last.values,
                several_api_servers=new.several_api_servers or self.last.several_api_servers,
                sources=self.last.sources,
            )
            return "lacking"
        self._begin(new)
        return "changed"

    def _stays_fallen(self, values: array[float]) -> str:
        """Counters of one process fell for good: counting goes on from where they are."""
        self._forget(values, range(self.layout.size))
        return "reset"

    def _fell(self, values: array[float]) -> str:
        """Counters fell in a process that did not say it restarted."""
        last, layout = self.last.values, self.layout
        counted = [i for i in layout.heads if last[i] > 0]
        fell = {i for i in counted if values[i] < last[i]}
        if fell and len(fell) == len(counted):
            self.resets += 1
            self._shift(last, range(layout.size))
            return "restart"
        began_again = bool(fell) and all(last[i] < _MUCH for i in counted if i not in fell)
        for family in layout.families:
            heads = set(family).intersection(counted)
            if heads and heads <= fell:
                self._shift(last, family)
                began_again = True
            else:
                self._forget(values, family)
        self._forget(values, layout.rest)
        self.resets += began_again
        return "restart" if began_again else "reset"

    def _untorn(self, values: array[float], event: str | None) -> array[float]:
        """Speculation counters that contradict each other are waited out, then left out."""
        layout, last = self.layout, self.last.values
        if not layout.spec or event is not None or self._agree(values):
            self._torn = 0
            return values
        self._torn += 1
        if self._torn > _TEAR_SAMPLES:
            self._torn = 0
            self.discarded += 1
            self._left_out_at = self.last.at
            self._forget(values, layout.spec)
            forgotten = array("d", last)
            for i in layout.spec:
                forgotten[i] = values[i]
            self.last = replace(self.last, values=forgotten)  # growth is told from there on
            return values
        held = array("d", values)
        for i in layout.spec:
            held[i] = last[i]
        return held

    def _agree(self, values: array[float]) -> bool:
        index, last = self.layout.index, self.last.values

        def grew(name: str) -> float | None:
            i = index.get(name)
            return None if i is None else values[i] - last[i]

        drafts, drafted, accepted = grew("drafts"), grew("draft_tokens"), grew("accepted_tokens")
        if drafted is not None and accepted is not None and accepted > drafted:
            return False
        if drafts is None:
            return True
        if drafts == 0 and (accepted or drafted):
            return False
        return all(
            (grew(f"accepted_at:{i}") or 0.0) <= drafts for i in range(self.layout.positions)
        )

    def _append(self, new: Counters, values: array[float], *, counted: bool) -> None:
        bins = self.points[-1].bins
        if counted:
            growth = array("d", map(operator.sub, values, self.last.values))
            self.growth = growth
            if self._places and not self._unattributable and self._binnable(new):
                size = batch.mean_batch(self.layout, growth)
                if size is not None:
                    bins = batch.add(bins, batch.bin_of(size), growth, self._places)
        self._unattributable = False
        self.last = replace(new, values=values) if values is not new.values else new
        self.points.append(self._point(new, values, bins))
        if len(self.points) % 4 == 0:
            self._thin()

    def _binnable(self, new: Counters) -> bool:
        return {"itl", "ttft", "steps"} <= new.layout.names and not new.several_api_servers

    def _begin(self, new: Counters, zero_at: float | None = None) -> None:
        """A new history: from zero where the process is known to have begun, else from here."""
        self.last, self.layout, self.offset = new, new.layout, None
        self._torn = self._lacking = self._older = 0
        self._unattributable = False
        self._places = batch.slots(new.layout) if self._binnable(new) else ()
        self.points = [self._point(new, new.values, batch.EMPTY)]
        if zero_at is not None:
            zero = array("d", bytes(8 * new.layout.size))
            self.points.insert(0, Point(zero_at, zero, batch.EMPTY, None, None))
            self._whole = True

    def _shift(self, by: array[float], places: Iterable[int]) -> None:
        """Counting goes on from zero: what was reached so far stays in the totals."""
        offset = array("d", self.offset or bytes(8 * self.layout.size))
        for i in places:
            offset[i] += by[i]
        self.offset = offset

    def _forget(self, values: array[float], places: Iterable[int]) -> None:
        """Counting goes on from `values`: the interval contributes nothing."""
        self._whole = False
        offset = array("d", self.offset or bytes(8 * self.layout.size))
        for i in places:
            offset[i] += self.last.values[i] - values[i]
        self.offset = offset

    def _point(self, sample: Counters, values: array[float], bins: batch.Bins) -> Point:
        totals = values
        if self.offset is not None:
            totals = array("d", map(operator.add, values, self.offset))
        gauges: Mapping[str, float] = sample.gauges
        return Point(sample.at, totals, bins, gauges.get("running"), gauges.get("waiting"))

    def _thin(self) -> None:
        now = self.points[-1].at
        kept = [self.points[0]]
        for i in range(1, len(self.points) - 1):
            if self.points[i + 1].at - kept[-1].at > (now - self.points[i].at) / _THIN:
                kept.append(self.points[i])
        kept.append(self.points[-1])
        if self.span_s is not None:
            while len(kept) > 2 and kept[1].at <= now - self.span_s:
                del kept[0]
        self.points = kept
