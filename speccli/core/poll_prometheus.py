"""Polling a Prometheus: every engine's samples while they are few, pooled growth when they are not.

Both run behind the interface of `Poller`, and the choice is made by counting the engines first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, Literal

from speccli.core.poll import Poller, Tap, stale_of_scraped
from speccli.core.sources.access import Access
from speccli.core.sources.pooled import PooledFleet
from speccli.core.sources.promapi import PrometheusApi
from speccli.core.sources.prometheus import RAW_ENGINES, PrometheusSource, rounds_of
from speccli.core.sources.promql import Selector
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings, Window

Mode = Literal["auto", "raw", "pooled"]


class PrometheusPoller(Poller):
    """Rounds of a Prometheus."""

    source: PrometheusSource

    def __init__(
        self,
        source: PrometheusSource,
        window: Window,
        *,
        mode: Mode = "auto",
        raw_engines: int = RAW_ENGINES,
        tap: Tap | None = None,
        **rest: Any,
    ) -> None:
        """`raw_engines`: engines up to which `auto` reads every sample; `rest`: as `Poller`."""
        super().__init__(source, window, tap=tap, now=source.now, **rest)
        self.pooled: PooledFleet | None = None
        """Set once the fleet is pooled; its `view` is what somebody looks at."""
        self._mode = mode
        self._raw_engines = raw_engines
        self._quick = False

    async def round(self) -> Snapshot | None:
        """One round. The first brings the whole window.

        Raises:
            SourceError: Prometheus gives no usable answer.
        """
        census = await self.source.count()
        if self.pooled is None and (
            self._mode == "pooled" or (self._mode == "auto" and census.total > self._raw_engines)
        ):
            self.pooled = PooledFleet(self.source, self.window, census)
        if self.pooled is not None:
            self._fit(census.interval_s)
            return await self.pooled.refresh(quick=self._quick)
        scrapes = await self.source.scrapes()
        if self.source.began_anew:  # older samples than those counted: they are counted anew
            self.window = Window(self.window.settings, source=self.window.source)
        self._fit(census.interval_s)
        if self.tap is not None:
            self.tap.write(scrapes)
        for part in rounds_of(scrapes):
            self.window.push(part)
        self.window.keep(self.source.targets)
        return self.snapshot()

    def snapshot(self, window_s: float | None = -1.0) -> Snapshot:
        """The fleet as it is known now.

        Over another window if one is given: at once where samples are raw and go back as far, from
        the next round on (which is not waited for) else; the snapshot says what it covers.
        """
        if self.pooled is None or self.pooled.last is None:
            if window_s is not None and window_s > 0 and self.source.widen(window_s):
                self.wake.set()
            taken = super().snapshot(window_s)
            return replace(taken, note=self.source.note or taken.note)
        if window_s != -1.0 and window_s != self.pooled.window_s:
            self.pooled.window_s = window_s
            self.wake.set()
        return self.pooled.last

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """Round after round; the first of a large fleet before its latencies have come in."""
        self._quick = True
        try:
            async for snapshot in super().snapshots():
                yield snapshot
        finally:
            self._quick = False

    def _fit(self, interval_s: float) -> None:
        settings = self.window.settings
        self.window.simulated = self.source.simulated
        stale_s = stale_of_scraped(interval_s)
        if stale_s != settings.stale_s:
            self.window.settings = replace(settings, stale_s=stale_s)


def open_prometheus(
    url: str,
    settings: Settings,
    *,
    selector: str | None = None,
    access: Access | None = None,
    deadline_s: float = 10.0,
    interval_s: float | None = None,
    mode: Mode = "auto",
    tap: Tap | None = None,
    now: Callable[[], float] | None = None,
    sleep: Callable[..., Awaitable[None]] | None = None,
) -> PrometheusPoller:
    """A poller for `--prometheus URL`; nothing is asked before its first round.

    Args:
        url: The base URL, credentials in it allowed.
        settings: What the window is asked to do.
        selector: Label matchers that pick the pool.
        access: Token, certificates.
        deadline_s: Wall clock for one answer.
        interval_s: Seconds between rounds; None: by the scrape interval.
        mode: `raw`, `pooled`, or `auto` by the number of engines.
        tap: Sees raw rounds as they come in.
        now: The poller's clock; None: the system's.
        sleep: How the poller pauses; None: really.

    Raises:
        UsageError: a URL, selector or certificate that cannot be used.
    """
    source = PrometheusSource(
        PrometheusApi(url, access=access, deadline_s=deadline_s),
        window_s=settings.window_s or 60.0,
        selector=Selector.parse(selector),
        interval_s=interval_s,
    )
    rest: dict[str, Any] = {"clock": now, "sleep": sleep}
    return PrometheusPoller(
        source,
        Window(settings, source="prometheus"),
        mode=mode,
        tap=tap,
        **{name: given for name, given in rest.items() if given is not None},
    )
