"""One answer: read a source for a window, then say what it amounts to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from speccli.core.findings import evaluate, so_far
from speccli.core.findings.base import Finding
from speccli.core.open import Opened
from speccli.core.sources.replay import ReplaySource
from speccli.core.stats.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Answer:
    """A snapshot and what the rules conclude from it."""

    snapshot: Snapshot
    findings: tuple[Finding, ...]
    note: str | None = None
    """What the reader should know of the source."""
    shown: tuple[Finding, ...] = ()
    """For people: the findings, and what waits to be one."""

    @property
    def readable(self) -> bool:
        """Whether at least one engine could be read."""
        return _readable(self.snapshot)


def _readable(snapshot: Snapshot) -> bool:
    if snapshot.pooled_engines:
        return True
    return any(e.engine != "?" and e.increase is not None for e in snapshot.engines)


async def ask(
    opened: Opened,
    *,
    progress: Callable[[float, float], None] = lambda done, whole: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Answer:
    """Scrape for the window (a live source), or read to the end (a recording).

    Raises:
        SourceError: the source as a whole cannot be read.
        RecordingError: the recording cannot be read.
    """
    poller = opened.poller
    try:
        if opened.live and not poller.whole_window_at_once:
            snapshot = await _watch(opened, progress, clock, sleep)
        else:
            await poller.round()
            while not opened.live and await poller.round() is not None:
                pass
            snapshot = poller.snapshot()
    finally:
        await poller.source.aclose()
    note = poller.source.recording.note if isinstance(poller.source, ReplaySource) else None
    if note:
        snapshot = replace(snapshot, note=note)
    elif snapshot.pooled is not None:  # no engine has a state that would tell it
        note = snapshot.note
    found = evaluate(snapshot, opened.thresholds)
    return Answer(snapshot, found, note, so_far(snapshot, opened.thresholds))


async def _watch(
    opened: Opened,
    progress: Callable[[float, float], None],
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> Snapshot:
    """Rounds every interval until the window is full and every target has been heard.

    One round where nothing answers.
    """
    window_s = opened.window_s or 0.0
    poller = opened.poller
    snapshot = await poller.round()
    began = clock()
    rounds = 1
    while (left := began + window_s - clock()) > 0:
        if poller.window.dark and not poller.awaited and not (snapshot and _readable(snapshot)):
            break  # an answer may fail now and then; that there never was one is an answer itself
        progress(window_s - left, window_s)
        await sleep(min(left, max(0.0, began + rounds * opened.interval_s - clock())))
        snapshot = await poller.round()
        rounds += 1
    return await poller.unheard()
