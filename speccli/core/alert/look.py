"""One look at a fleet for a check: what grew since the last one, or over a few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from speccli.core.alert.memory import Memory, boot
from speccli.core.findings._text import duration
from speccli.core.open import Opened
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Snapshot

PAIR_S = 5.0
"""Between the two scrapes of a check that remembers none."""
_OLDEST_S = 3900.0
"""Growth since longer ago says nothing of now; an hourly cron may be late."""
_SHORTEST_S = 2.0
"""Growth over less is too little."""
_FORGET_S = 7 * 86_400.0
_SET_S = 5.0
"""Seconds by which a clock that runs may go wrong between two checks."""


@dataclass(slots=True)
class Kept:
    """A tap: the last page of every server, for the next check."""

    scrapes: dict[str, Scrape]
    since: float
    """When this run began: what a server said of itself before may be another process's."""

    def write(self, scrapes: Iterable[Scrape]) -> None:
        """Keep what was answered; a server that fails keeps its last page."""
        for scrape in scrapes:
            if scrape.error is None and scrape.status == 200 and scrape.body:
                before = self.scrapes.get(scrape.target)
                if not scrape.info and before is not None and before.at >= self.since:
                    scrape = replace(scrape, info=before.info)
                self.scrapes[scrape.target] = scrape


def clock_was_set(memory: Memory, now: float) -> float | None:
    """Seconds by which the clock was set since the last check; None where it was not."""
    name, uptime = boot()
    if memory.at is None:
        return None
    if name is not None and name == memory.boot and memory.uptime and uptime is not None:
        jump = (now - memory.at) - (uptime - memory.uptime)
        return jump if abs(jump) > _SET_S else None
    return now - memory.at if now < memory.at - _SET_S else None


def usable(memory: Memory, now: float) -> tuple[list[Scrape], str | None]:
    """Scrapes of the last check to tell growth from, and what is to be said of them."""
    jump = clock_was_set(memory, now)
    if jump is not None:
        way = "back" if jump < 0 else "forward"
        said = f"the clock was set {way} by {duration(abs(jump))} since the last check"
        return [], f"{said}: growth since then is not used"
    return [s for s in memory.scrapes if -_SET_S <= now - s.at <= _FORGET_S], None


async def look(
    opened: Opened,
    memory: Memory,
    earlier: Iterable[Scrape],
    *,
    now: float,
    pair_s: float | None = None,
    first_s: float = PAIR_S,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float],
) -> Snapshot:
    """The fleet as it is, with what grew.

    Args:
        opened: The source.
        memory: For how long engines have been under the floor.
        earlier: Scrapes of the last check.
        now: Unix seconds.
        pair_s: Time between two fresh scrapes; None: growth since `earlier` where that serves.
        first_s: Time between two where nothing is remembered.
        sleep: How to pause.
        clock: Monotonic seconds.

    Raises:
        SourceError: the source as a whole cannot be read.
    """
    poller = opened.poller
    window = poller.window
    if memory.floor == window.settings.floor:
        window.remember_low(memory.low)
    try:
        if poller.whole_window_at_once:
            await poller.round()
            return poller.snapshot()
        first = await poller.source.scrapes() or []
        names = {t.name for t in getattr(poller.source, "targets", ())}
        known = [s for s in earlier if s.target in names]
        began = clock()
        failing = {s.target for s in first if s.error is not None or s.status != 200}
        window.push(s for s in known if pair_s is None and serves(s, now) or s.target in failing)
        snapshot = poller.take(first)
        if failing or _single(snapshot):  # what fails once may have been unlucky
            await sleep(max(0.0, (pair_s or first_s) - (clock() - began)))
            snapshot = poller.take(await poller.source.scrapes() or [])
        return snapshot
    finally:
        await poller.source.aclose()


def serves(scrape: Scrape, now: float) -> bool:
    """Whether growth may be told from it."""
    return _SHORTEST_S <= now - scrape.at <= _OLDEST_S


def _single(snapshot: Snapshot) -> bool:
    """Whether an engine has shown one sample only: its growth is not known yet."""
    return any(e.increase is not None and e.increase.since_start for e in snapshot.fresh)
