"""Watching a source until there is a baseline."""

from __future__ import annotations

import time
from collections.abc import Callable

from speccli.core.baseline.record import Profile
from speccli.core.errors import SourceError
from speccli.core.open import Opened
from speccli.core.stats.snapshot import Snapshot


async def watch(
    opened: Opened,
    profile: Profile,
    *,
    lasting_s: float,
    tell: Callable[[float, float], None] = lambda seconds, drafts: None,
    clock: Callable[[], float] = time.monotonic,
) -> Snapshot | None:
    """Feed a profile for so long, or to a recording's end; returns all that is remembered.

    Raises:
        SourceError: the source as a whole cannot be read, not even once.
    """
    began, seen = clock(), 0
    poller = opened.poller
    try:
        async for snapshot in poller.snapshots():
            profile.observe(snapshot)
            seen += 1
            tell(clock() - began, profile.drafts)
            if opened.live and clock() - began >= lasting_s:
                break
    except SourceError:
        if not seen:
            raise
    finally:
        await poller.source.aclose()
    return poller.snapshot(None) if seen else None
