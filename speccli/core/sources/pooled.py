"""A fleet too large to fetch: pooled by Prometheus, its outliers read one by one.

How many queries a refresh takes does not depend on how many engines there are. Counters and gauges
come first, since they are what the screen is for; latency buckets, most of a fleet's series, are
fetched beside them and arrive when they do, or at once where recording rules keep them summed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from speccli.core.engines.base import Adapter, Histogram
from speccli.core.engines.registry import adapter_named
from speccli.core.errors import SourceError
from speccli.core.sources import promql
from speccli.core.sources.census import Census
from speccli.core.sources.naming import address_of
from speccli.core.sources.past import MOST_ENGINES, past
from speccli.core.sources.promapi import Answer
from speccli.core.sources.prometheus import PrometheusSource, rounds_of
from speccli.core.sources.recorded import complete, recorded, recorded_window
from speccli.core.sources.tables import (
    FleetPool,
    Table,
    buckets_of,
    grown,
    increases_of,
    outliers_of,
    table_of,
)
from speccli.core.stats.increase import Buckets, Increase, Pool, merge_buckets
from speccli.core.stats.snapshot import Event, Snapshot, TrailPoint
from speccli.core.stats.window import Window

PAGE = 16
"""Engines fetched one by one."""
_OUTLIERS = 6
_TRAIL = 3600
_EVENTS = 200
_UNBINNED = "latency by batch size needs every engine's own samples; this fleet is pooled"
_PENDING = "the buckets are still being fetched"
_NO_RULES = "install manifests/monitoring/recording-rules.yaml in Prometheus"


@dataclass(slots=True)
class _Kind:
    """What is known of the engines of one kind."""

    adapter: Adapter
    incomplete: list[tuple[str, ...]] = field(default_factory=list)
    """Groups of counters that some engines have only in part."""
    buckets: dict[str, Buckets] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Why a histogram could not be fetched."""

    def keep(self, name: str, table: Table) -> None:
        """Remember a histogram; one without series is forgotten."""
        self.failed.pop(name, None)
        buckets = buckets_of(table, name)
        if buckets is None:
            self.buckets.pop(name, None)
        else:
            self.buckets[name] = buckets


@dataclass(frozen=True, slots=True)
class _Round:
    """What the queries of one refresh gave."""

    at: float
    window_s: float
    rules: bool
    """Whether recording rules were read."""
    engines: Mapping[str, int]
    tables: Mapping[str, Table]
    up: int | None = None
    down: int | None = None
    notes: tuple[str, ...] = ()


class PooledFleet:
    """Refreshes a pooled snapshot."""

    def __init__(self, source: PrometheusSource, window: Window, census: Census) -> None:
        """`source`: whose connection and selector are used; `window`: for engines in view."""
        self.window = window
        self.view: tuple[str, ...] = ()
        """Instances that somebody looks at: fetched before the outliers."""
        self.window_s = window.settings.window_s
        """The window asked for, seconds; None: a minute."""
        self.last: Snapshot | None = None
        self._source = source
        self._api = source.api
        self._census = census
        self._page = PrometheusSource(
            source.api,
            window_s=self.window_s or 60.0,
            selector=source.selector,
            most_engines=None,
        )
        self._kinds = {kind: _Kind(adapter_named(kind)) for kind in census.engines or ("vllm",)}
        self._present_at = -math.inf
        self._buckets_task: asyncio.Task[None] | None = None
        self._buckets_due = 0.0
        self._outliers: tuple[str, ...] = ()
        self._page_failed: str | None = None
        self._trail: deque[TrailPoint] = deque(maxlen=_TRAIL)
        self._events: deque[Event] = deque(maxlen=_EVENTS)

    async def refresh(self, *, quick: bool = False) -> Snapshot:
        """Ask anew. `quick`: show what there is before latencies and single engines are read.

        Raises:
            SourceError: Prometheus gives no usable answer.
        """
        self._census = await self._source.count()
        for kind in self._census.engines:
            self._kinds.setdefault(kind, _Kind(adapter_named(kind)))
        found = await self._ask(*await self._moment())
        first = self.last is None
        self._fetch_buckets(found)
        if not quick and self._buckets_task is not None:
            await self._buckets_task
        self._page_failed = None
        if not (quick and first):
            try:
                await self._read_page()
            except SourceError as error:  # the fleet's own numbers are there all the same
                self._page_failed = f"single engines: {error.message}"
        if quick and first:
            self._look_back(found)
        self.last = self._snapshot(found)
        return self.last

    # Questions ----------------------------------------------------------------------------------

    async def _moment(self) -> tuple[float, float, bool]:
        """The instant to ask about, Unix seconds, the window, and whether rules answer for it.

        The instant is the newest sample's, or the rules': the server's present would lie beyond
        what a slow scrape or a lagging store has delivered, and `increase()` takes the missing
        samples for missing growth.
        """
        window_s = max(self.window_s or 60.0, 4 * self._census.interval_s)
        if self._census.rules:
            wide_s = recorded_window(window_s)
            recorded_at = await self._time(complete(wide_s))
            if recorded_at is not None:
                return recorded_at + 0.001, wide_s, True
        newest = await self._time(promql.newest(self._source.selector))
        return self._api.now() if newest is None else newest + 0.001, window_s, False

    async def _time(self, expression: str) -> float | None:
        answer = await self._api.query(expression)
        return next((series.value for series in answer.series), None)

    async def _ask(self, at: float, window_s: float, rules: bool) -> _Round:
        presence = time.monotonic() - self._present_at > 30.0
        answers = await asyncio.gather(
            self._beside(at, window_s),
            *(self._table(kind, at, window_s, rules=rules) for kind in self._kinds.values()),
            *(self._presence(kind, at) for kind in self._kinds.values() if presence),
        )
        beside: Answer = answers[0]  # type: ignore[assignment]
        tables: dict[str, Table] = dict(zip(self._kinds, answers[1:], strict=False))  # type: ignore[arg-type]
        if presence:
            self._present_at = time.monotonic()
        for name, kind in self._kinds.items():
            for group in kind.incomplete:
                fleet = promql.Fleet(kind.adapter, self._source.selector, window_s)
                answer = await self._api.query(promql.joined(fleet.joined(group)), at=at)
                tables[name] = {**tables[name], **table_of(answer)}
        counts = table_of(beside)
        up, down = counts.get(("up", "")), counts.get(("down", ""))
        self._outliers = outliers_of(beside)
        return _Round(
            at,
            window_s,
            rules,
            self._census.engines,
            tables,
            None if up is None and down is None else round(up or 0),
            None if up is None and down is None else round(down or 0),
            tuple(filter(None, (beside.note, self._census.note, self._census.rules_note))),
        )

    async def _beside(self, at: float, window_s: float) -> Answer:
        """How many targets are up, and which engines stand out."""
        parts = [*promql.targets_down(self._source.selector, self._census.jobs, 4)]
        for kind in self._kinds.values():
            fleet = promql.Fleet(kind.adapter, self._source.selector, window_s)
            parts += fleet.outliers(_OUTLIERS)
        return await self._api.query(promql.joined(parts), at=at)

    async def _table(self, kind: _Kind, at: float, window_s: float, *, rules: bool) -> Table:
        if rules:
            name = kind.adapter.kind
            expression = recorded(self._source.selector, name, window_s)
            return grown(table_of(await self._api.query(expression, at=at)), window_s)
        fleet = promql.Fleet(kind.adapter, self._source.selector, window_s)
        speculation, work = await asyncio.gather(
            self._api.query(promql.joined(fleet.speculation()), at=at),
            self._api.query(promql.joined(fleet.work()), at=at),
        )
        return {**table_of(speculation), **table_of(work)}

    async def _presence(self, kind: _Kind, at: float) -> None:
        """Which counters some engines lack: then their ratios need a query of their own."""
        fleet = promql.Fleet(kind.adapter, self._source.selector)
        counts = table_of(await self._api.query(promql.joined(fleet.presence()), at=at))
        engines = self._census.engines.get(kind.adapter.kind, 0)
        kind.incomplete = []
        for group in fleet.groups():
            present = {slot: n for slot in group if (n := counts.get((f"with.{slot}", "")))}
            # Several API servers multiply an engine's series, each of them alike.
            if present and min(present.values()) < max(engines, *present.values()):
                kind.incomplete.append(tuple(present))

    def _fetch_buckets(self, found: _Round) -> None:
        """Latency buckets: from the rules' answer, or asked for beside everything else."""
        if found.rules:
            if self._buckets_task is not None:  # of a round before these rules could be read
                self._buckets_task.cancel()
                self._buckets_task = None
            for name, kind in self._kinds.items():
                for histogram in kind.adapter.histograms:
                    kind.keep(histogram.field, found.tables[name])
            return
        running = self._buckets_task is not None and not self._buckets_task.done()
        if running or time.monotonic() < self._buckets_due:
            return
        task = asyncio.create_task(self._ask_buckets(found.at, found.window_s))
        self._buckets_task = task
        self._beside_all(task)

    async def _ask_buckets(self, at: float, window_s: float) -> None:
        began = time.monotonic()
        two = asyncio.Semaphore(2)

        async def ask(kind: _Kind, histogram: Histogram) -> None:
            fleet = promql.Fleet(kind.adapter, self._source.selector, window_s)
            expression = promql.joined(fleet.buckets(histogram))
            try:
                async with two:
                    answer = await self._api.query(expression, at=at)
            except SourceError as error:
                kind.buckets.pop(histogram.field, None)
                kind.failed[histogram.field] = f"{error.message} ({_NO_RULES})"
            else:
                kind.keep(histogram.field, table_of(answer))

        await asyncio.gather(
            *(ask(kind, h) for kind in self._kinds.values() for h in kind.adapter.histograms)
        )
        # A quarter of the time at most, so that a busy Prometheus is not kept busier.
        self._buckets_due = time.monotonic() + 3 * (time.monotonic() - began)

    def _look_back(self, found: _Round) -> None:
        """Fill the charts with what was before, beside everything else."""
        few = found.rules or sum(found.engines.values()) <= MOST_ENGINES
        related = not any(kind.incomplete for kind in self._kinds.values())
        if few and related:  # sums over engines of which some lack a term relate nothing
            self._beside_all(asyncio.create_task(self._ask_past(found)))

    def _beside_all(self, task: asyncio.Task[None]) -> None:
        self._source.background.add(task)
        task.add_done_callback(self._source.background.discard)

    async def _ask_past(self, found: _Round) -> None:
        kinds = [kind.adapter for kind in self._kinds.values()]
        selector, end = self._source.selector, found.at - found.window_s
        with contextlib.suppress(SourceError):  # charts that begin empty fill as time goes
            before = await past(self._api, selector, kinds, end=end, rules=found.rules)
            self._trail.extendleft(reversed(before))

    async def _read_page(self) -> None:
        wanted = tuple(dict.fromkeys((*self.view, *self._outliers)))[:PAGE]
        if not wanted:
            self.window.keep(())
            return
        self._page.restrict(wanted)
        self._page.assume(self._census)
        self._page.window_s = self.window_s or 60.0
        for scrapes in rounds_of(await self._page.scrapes()):
            self.window.push(scrapes)
        shown = {f"http://{instance}" for instance in wanted} | set(wanted)
        self.window.keep(t for t in self._page.targets if address_of(t) in shown)

    # Answers ------------------------------------------------------------------------------------

    def _snapshot(self, found: _Round) -> Snapshot:
        pool = self._pool(found)
        engines = sum(found.engines.values())
        gauges = [
            {
                name: table[name, ""]
                for name in ("running", "waiting", "kv_cache_usage")
                if (name, "") in table
            }
            for table in found.tables.values()
        ]
        self._remember(pool, gauges, found, engines)
        now = self._page.now() if self._page.newest else None
        page = self.window.snapshot(now, self.window_s)
        words = [*dict.fromkeys(filter(None, (*found.notes, self._page_failed)))]
        if found.down:
            words.insert(0, f"{found.down} of {found.down + (found.up or 0)} targets down")
        if engines == 0:
            words.append("Prometheus has no series of an engine now")
        told = [e for e in page.events if e.severity != "info"]
        return replace(
            page,
            at=found.at,
            window_s=found.window_s,
            trail=tuple(self._trail),
            events=tuple(sorted((*self._events, *told), key=lambda event: event.at)),
            simulated=page.simulated or self._census.simulated,
            source="prometheus",
            note="; ".join(words) or None,
            pooled=pool,
            pooled_gauges=gauges,
            pooled_engines=engines,
            unbinned=_UNBINNED,
        )

    def _pool(self, found: _Round) -> FleetPool:
        members: list[Increase] = []
        merged: dict[str, list[Buckets]] = {}
        absent: dict[str, str] = {}
        for name, kind in self._kinds.items():
            table = found.tables.get(name, {})
            members += increases_of(table, found.window_s, kind.incomplete)
            for histogram in kind.adapter.histograms:
                count = table.get((f"{histogram.field}.count", ""))
                buckets = kind.buckets.get(histogram.field)
                if count is None:
                    continue
                if buckets is None:
                    absent[histogram.field] = kind.failed.get(histogram.field, _PENDING)
                    continue
                total = table.get((f"{histogram.field}.sum", ""))
                if total is not None and count > 0:  # of another instant: the mean is kept
                    buckets = replace(buckets, sum=total * buckets.n / count)
                merged.setdefault(histogram.field, []).append(buckets)
        pooled = {name: merge_buckets(parts) for name, parts in merged.items()}
        return FleetPool(members, {n: b for n, b in pooled.items() if b is not None}, absent)

    def _remember(
        self, pool: Pool, gauges: Sequence[Mapping[str, float]], found: _Round, engines: int
    ) -> None:
        """The trail's point of this refresh, and an event where the fleet's size changed."""
        before = self.last
        seconds = found.at - before.at if before is not None else found.window_s
        share = min(1.0, seconds / found.window_s)

        def per_round(*slots: str) -> tuple[float, ...]:
            """Growth of terms that a chart relates, over the engines that have all of them."""
            sums = pool.sums(*slots)
            return tuple(x * share for x in sums) if sums else (math.nan,) * len(slots)

        def now(name: str) -> float:
            return sum(each.get(name, 0.0) for each in gauges)

        drafted, accepted, drafts = per_round("draft_tokens", "accepted_tokens", "drafts")
        generated, first, steps = per_round("generation_tokens", "ttft.count", "itl.count")
        if math.isnan(generated):
            (generated,) = per_round("generation_tokens")
        self._trail.append(
            TrailPoint(
                at=found.at,
                seconds=seconds,
                draft_tokens=drafted,
                accepted_tokens=accepted,
                drafts=drafts,
                generation_tokens=generated,
                first_tokens=first,
                decode_steps=steps,
                waiting=now("waiting"),
                running=now("running"),
            )
        )
        if before is not None and before.pooled_engines not in (None, engines):
            text = f"{engines} engines, {before.pooled_engines} before"
            fewer = engines < (before.pooled_engines or 0)
            self._events.append(Event(found.at, "fleet", text, "warning" if fewer else "info"))
