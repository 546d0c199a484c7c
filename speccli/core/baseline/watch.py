"""Watching a source until there is a baseline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from speccli.core.baseline.record import Profile
from speccli.core.errors import SourceError
from speccli.core.open import Opened
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stopping import told_to_stop


@dataclass(frozen=True, slots=True)
class Watched:
    """What watching came to."""

    last: Snapshot | None
    """All that is remembered; None where nothing was seen."""
    seconds: float
    stopped: bool
    """Whether a signal ended it before its time."""


async def watch(
    opened: Opened,
    profile: Profile,
    *,
    lasting_s: float,
    tell: Callable[[float, float], None] = lambda seconds, drafts: None,
    clock: Callable[[], float] = time.monotonic,
) -> Watched:
    """Feed a profile for so long, to a recording's end, or until told to stop.

    Raises:
        SourceError: the source as a whole cannot be read, not even once.
    """
    began, seen, stopped = clock(), 0, False
    poller = opened.poller
    rounds = poller.snapshots()
    try:
        with told_to_stop() as stop:
            while (snapshot := await _next(rounds, stop)) is not None:
                profile.observe(snapshot)
                seen += 1
                tell(clock() - began, profile.drafts)
                if opened.live and clock() - began >= lasting_s:
                    break
            stopped = stop.done()
    except SourceError:
        if not seen:
            raise
    finally:
        await poller.source.aclose()
    last = poller.snapshot(None) if seen else None
    return Watched(last, clock() - began, stopped)


async def _next(rounds: AsyncIterator[Snapshot], stop: asyncio.Future[int]) -> Snapshot | None:
    """The next snapshot; None at the end, or once told to stop."""
    coming = asyncio.ensure_future(anext(rounds, None))
    either: set[asyncio.Future[Any]] = {coming, stop}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not coming.done():
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        return None
    return coming.result()
