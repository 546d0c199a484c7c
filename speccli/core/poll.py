"""The poller: fetch, count, publish. It alone touches the source; what it yields is frozen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from speccli.core.errors import SourceError
from speccli.core.sources.base import ChangingSource, PromptSource, Scrape, Source
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Window

_MAX_BACKOFF_S = 15.0
FIRST_PAUSE_S = 0.3
"""The second round follows the first at once: until then there is no rate to show."""


def stale_of_scraped(interval_s: float) -> float:
    """Age at which a sample no longer stands for now where a Prometheus scrapes, seconds.

    Until two scrapes after it have not come.
    """
    return max(5.0, 2.5 * interval_s + 1.0)


class Tap(Protocol):
    """Sees every round as it comes in (a recorder)."""

    def write(self, scrapes: list[Scrape]) -> None:
        """Keep a round."""


async def pause_or_wake(seconds: float, wake: asyncio.Event) -> None:
    """Sleep, cut short by `wake`."""
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        return
    wake.clear()


class Poller:
    """Rounds of one source through one window."""

    def __init__(
        self,
        source: Source,
        window: Window,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float, asyncio.Event], Awaitable[None]] = pause_or_wake,
        tap: Tap | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`now`: the time against which age is told; None: the newest sample's (a replay)."""
        self.source = source
        self.window = window
        self.wake = asyncio.Event()
        """Set it to poll at once."""
        self._clock = clock
        self._sleep = sleep
        self.tap = tap
        """Sees every round as it comes in."""
        self._now = now
        self._failures = 0

    @property
    def whole_window_at_once(self) -> bool:
        """Whether one round already brings the whole window (a Prometheus's range)."""
        return bool(getattr(self.source, "whole_window_at_once", False))

    async def round(self) -> Snapshot | None:
        """One round, which does not wait for the slowest; None when the source has ended.

        Raises:
            SourceError: the source as a whole cannot be read.
        """
        source = self.source
        scrapes = await (source.soon() if isinstance(source, PromptSource) else source.scrapes())
        return None if scrapes is None else self.take(scrapes)

    @property
    def awaited(self) -> tuple[str, ...]:
        """Targets of which nothing is known yet, not even that they do not answer."""
        return self.source.awaited if isinstance(self.source, PromptSource) else ()

    async def unheard(self) -> Snapshot:
        """The fleet once every target has answered or failed."""
        if isinstance(self.source, PromptSource) and self.source.awaited:
            return self.take(await self.source.unheard())
        return self.snapshot()

    def take(self, scrapes: list[Scrape]) -> Snapshot:
        """Take a round in that was fetched."""
        if self.tap is not None:
            self.tap.write(scrapes)
        self.window.push(scrapes)
        if isinstance(self.source, ChangingSource):
            self.window.keep(self.source.present)
        dark = bool(scrapes) and all(s.error is not None and s.stage is None for s in scrapes)
        self._failures = self._failures + 1 if dark else 0
        return self.snapshot()

    def snapshot(self, window_s: float | None = -1.0) -> Snapshot:
        """The fleet as it is known now, over another window if one is given."""
        return self.window.snapshot(self._now() if self._now else None, window_s)

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """Round after round, never overlapping, each `interval_s` after the last one began.

        While everything is down the pause doubles, up to 15 s, and says so through the snapshots.
        """
        rounds = 0
        while True:
            began = self._clock()
            try:
                snapshot = await self.round()
            except SourceError:
                self._failures += 1
                raise
            if snapshot is None:
                return
            yield snapshot
            rounds += 1
            interval = self.source.interval_s
            if rounds == 1:
                interval = min(interval, FIRST_PAUSE_S)
            pause = min(interval * 2.0 ** min(self._failures, 6), max(interval, _MAX_BACKOFF_S))
            took = max(0.0, self._clock() - began)  # the wall clock may be set back
            await self._sleep(max(0.0, pause - took), self.wake)
