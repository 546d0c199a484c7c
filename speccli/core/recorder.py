"""Recording: the poller's rounds, kept as they come in."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccli.core.errors import RecordingError, SourceError, UsageError
from speccli.core.open import Opened
from speccli.core.sources.base import PromptSource, Scrape, Source
from speccli.core.sources.recording import Recorder
from speccli.core.stopping import told_to_stop

_GRACE_S = 1.0
"""How long the round under way may still take when told to stop."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a recording came to."""

    scrapes: int
    answered: int
    """Scrapes that were answered."""


def refuse_to_lose(path: Path, *, force: bool, replay: Path | None) -> None:
    """Refuse to write where something is already, or where nothing can be; nothing is touched.

    Raises:
        UsageError: the file exists and `force` is not given, or it is the one that is read.
        RecordingError: there can be no such file.
    """
    try:
        there = path.exists()
        same = there and replay is not None and replay.exists() and path.samefile(replay)
    except OSError as error:
        raise RecordingError(f"cannot write {path}: {error.strerror}") from error
    if same:
        raise UsageError(f"{path} is the recording that is read", hint="write to another file")
    if there and not force:
        raise UsageError(f"{path} exists", hint="--force overwrites it")
    if path.is_dir():
        raise RecordingError(f"cannot write {path}: {os.strerror(errno.EISDIR)}")
    if not path.parent.is_dir():
        raise RecordingError(f"cannot write {path}: {os.strerror(errno.ENOENT)}")
    if "\0" in str(path):
        raise RecordingError("cannot write a file with a NUL in its name")
    if not os.access(path if there else path.parent, os.W_OK):
        raise RecordingError(f"cannot write {path}: {os.strerror(errno.EACCES)}")


async def record(
    opened: Opened,
    path: Path,
    *,
    lasting_s: float | None,
    full: bool = False,
    tell: Callable[[int, int], None] = lambda scrapes, failing: None,
    clock: Callable[[], float] = time.monotonic,
) -> Recorded:
    """Write every round to `path` until the time is over, the source ends, or a signal says stop.

    Raises:
        RecordingError: the file cannot be written; what it took before stays.
        SourceError: the source as a whole could not be read even once.
    """
    source = opened.poller.source
    file = _File(opened, path, full=full)
    answered = 0
    ends: float | None = None
    try:
        with told_to_stop() as stop:
            while not stop.done():
                began = clock()
                scrapes = await _round(source, stop, may_fail=answered > 0)
                if scrapes is None:
                    break
                await file.write(scrapes)
                good = sum(scrape.error is None for scrape in scrapes)
                answered += good
                tell(file.scrapes, len(scrapes) - good)
                pause = source.interval_s - (clock() - began)
                if lasting_s is not None:
                    ends = clock() + lasting_s if ends is None else ends  # from the first answers
                    if clock() >= ends:
                        break
                    pause = min(pause, ends - clock())
                await asyncio.wait({stop}, timeout=max(0.0, pause))
        file.close()
    finally:
        with contextlib.suppress(RecordingError):  # said already, if anything is wrong
            file.close()
        await source.aclose()
    return Recorded(file.scrapes, answered)


class _File:
    """The recording; opened for its first round, so that a source that fails leaves nothing."""

    def __init__(self, opened: Opened, path: Path, *, full: bool) -> None:
        self._opened, self._path, self._full = opened, path, full
        self._recorder: Recorder | None = None

    @property
    def scrapes(self) -> int:
        """Scrapes in it."""
        return self._recorder.scrapes if self._recorder else 0

    async def write(self, scrapes: list[Scrape]) -> None:
        """Keep a round, beside what else goes on."""
        await asyncio.to_thread(self._write, scrapes)

    def _write(self, scrapes: list[Scrape]) -> None:
        if self._recorder is None:
            source = self._opened.poller.source
            every = getattr(source, "scraped_every_s", None)  # a Prometheus's own interval
            self._recorder = Recorder(
                self._path,
                interval_s=every or self._opened.interval_s,
                source=self._opened.poller.window.source,
                simulated=source.simulated,
                full=self._full,
            )
        self._recorder.write(scrapes)

    def close(self) -> None:
        """Finish it."""
        if self._recorder is not None:
            self._recorder.close()


async def _round(
    source: Source, stop: asyncio.Future[int], *, may_fail: bool
) -> list[Scrape] | None:
    """One round; None when the source has ended, or when told to stop and no answer comes."""
    # The first round is whole, so that every target is in the recording, whenever it ends.
    prompt = may_fail and isinstance(source, PromptSource)
    asking = asyncio.ensure_future(_scrapes(source, prompt=prompt))
    try:
        either: set[asyncio.Future[Any]] = {asking, stop}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            await asyncio.wait({asking}, timeout=_GRACE_S)
        if not asking.done():
            return None
        return asking.result()
    except SourceError:
        if not may_fail:
            raise
        return []
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def _scrapes(source: Source, *, prompt: bool) -> list[Scrape] | None:
    if prompt and isinstance(source, PromptSource):
        return await source.soon()
    return await source.scrapes()
