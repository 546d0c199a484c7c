"""Recording: the poller's rounds, kept as they come in."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from speccli.core.open import Opened
from speccli.core.sources.recording import Recorder


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a recording came to."""

    scrapes: int
    answered: int
    """Scrapes that were answered."""


async def record(
    opened: Opened,
    path: Path,
    *,
    lasting_s: float | None,
    full: bool = False,
    tell: Callable[[int, int], None] = lambda scrapes, failing: None,
    clock: Callable[[], float] = time.monotonic,
) -> Recorded:
    """Write every round to `path` until the time is over, the source ends, or SIGINT / SIGTERM.

    Raises:
        RecordingError: the file cannot be written.
        SourceError: the source as a whole cannot be read.
    """
    source = opened.poller.source
    recorder = Recorder(
        path,
        interval_s=opened.interval_s,
        source=opened.poller.window.source,
        simulated=source.simulated,
        full=full,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    answered = 0
    ends = None if lasting_s is None else clock() + lasting_s
    try:
        while not stop.is_set():
            began = clock()
            scrapes = await source.scrapes()
            if scrapes is None:
                break
            recorder.write(scrapes)
            good = sum(scrape.error is None for scrape in scrapes)
            answered += good
            tell(recorder.scrapes, len(scrapes) - good)
            pause = source.interval_s - (clock() - began)
            if ends is not None:
                pause = min(pause, ends - clock())
                if ends - clock() <= 0:
                    break
            try:
                async with asyncio.timeout(max(0.0, pause)):
                    await stop.wait()
            except TimeoutError:
                continue
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        recorder.close()
        await source.aclose()
    return Recorded(recorder.scrapes, answered)
