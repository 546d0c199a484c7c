"""Watching a source until there is a baseline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from speccli.core.baseline.record import Profile
from speccli.core.errors import SourceError, SpecctlError
from speccli.core.open import Opened
from speccli.core.poll import Poller
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stopping import told_twice
from speccli.core.views.unread import unread

_LAST_LOOK_S = 10.0
"""How long the last look may take when told to stop; told again, it is not waited for."""
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Watched:
    """What watching came to."""

    last: Snapshot | None
    """All that is remembered; None where nothing was seen."""
    seconds: float
    stopped: bool
    """Whether a signal ended it before its time."""
    unheard: tuple[str, ...] = ()
    """Targets that had neither answered nor failed by then."""
    recorded: bool = False
    """Whether it was a recording."""


async def watch(
    opened: Opened,
    profile: Profile,
    *,
    lasting_s: float,
    tell: Callable[[float, float | None], None] = lambda seconds, drafts: None,
    clock: Callable[[], float] = time.monotonic,
    last_look_s: float = _LAST_LOOK_S,
) -> Watched:
    """Feed a profile for so long, to a recording's end, or until told to stop.

    The time counts from the first round. Told to stop, it looks once more: what was made by then
    is on that page.

    Args:
        opened: What is watched.
        profile: What it is counted into.
        lasting_s: For how long.
        tell: Hears, each round, of the seconds gone by and `profile.drafts`.
        clock: Seconds that only go on.
        last_look_s: How long the last look may take.

    Raises:
        SourceError: the source as a whole cannot be read, not even once.
    """
    began, ends = clock(), None
    poller = opened.poller
    rounds = poller.snapshots()
    with told_twice() as (stop, at_once):
        try:
            while not stop.done():
                snapshot = await _next(rounds, poller, stop, at_once, last_look_s)
                if snapshot is None:
                    break
                profile.observe(snapshot)
                ends = clock() + lasting_s if ends is None else ends
                tell(clock() - began, profile.drafts)
                if opened.live and clock() >= ends:
                    break
        except SourceError:
            if ends is None:
                raise
        finally:
            unheard, stopped = poller.awaited, stop.done()
            await poller.source.aclose()
    last = None if ends is None else poller.snapshot(None)
    return Watched(last, clock() - began, stopped, unheard, not opened.live)


def ensure_counted(profile: Profile, watched: Watched) -> None:
    """Whether anything could be counted: else it is not known how much was drafted.

    Raises:
        SpecctlError: nothing could, and why.
    """
    if profile.drafts is None:
        message, hint = _uncounted(watched)
        raise SpecctlError(message, hint=hint)


async def _next(
    rounds: AsyncIterator[Snapshot],
    poller: Poller,
    stop: asyncio.Future[int],
    at_once: asyncio.Future[int],
    last_look_s: float,
) -> Snapshot | None:
    """The next snapshot; None at the end, or where the last one takes too long."""
    coming = asyncio.ensure_future(anext(rounds, None))
    try:
        await _either(coming, stop)
        if not coming.done():
            poller.wake.set()
            await _either(coming, at_once, timeout_s=last_look_s)
        return coming.result() if coming.done() else None
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


async def _either(*them: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    await asyncio.wait(them, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


def _uncounted(watched: Watched) -> tuple[str, str]:
    """Why no draft could be counted, and what to do."""
    longer = "record for longer (--for)"
    last = watched.last
    if last is None and not watched.recorded:
        named = ", ".join(watched.unheard[:_NAMED]) or "the source"
        more = len(watched.unheard) - _NAMED
        return f"no answer yet from {named}" + (f" and {more} more" if more > 0 else ""), longer
    read = [e for e in last.engines if e.engine != "?"] if last is not None else []
    if last is not None and last.pooled is not None:
        return (
            "drafts are counted between two scrapes of Prometheus, and none has grown yet",
            longer,
        )
    if not read:
        return unread(last.engines if last else (), recorded=watched.recorded)
    if all(len(engine.points) < 2 for engine in read):
        return "drafts are counted between two answers, and each engine gave one", longer
    why = "; ".join(f"{e.name}: {e.reason or 'its counters contradict'}" for e in read[:_NAMED])
    return f"no draft could be counted ({why})", "`specctl doctor` looks closer"
