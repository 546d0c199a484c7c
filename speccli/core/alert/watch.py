"""`alert watch`: the check over and over, with a heartbeat; says what changes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from speccli.core.alert.check import Asked, open_checked
from speccli.core.alert.examine import Examiner
from speccli.core.alert.heartbeat import Heartbeat
from speccli.core.alert.look import Kept, serves, usable
from speccli.core.alert.memory import Keeper, Memory
from speccli.core.alert.notify import Notifier
from speccli.core.alert.verdict import Turn, Verdict, failed, turn_line
from speccli.core.errors import DeadlineError, ExitCode, SourceError
from speccli.core.open import Opened
from speccli.core.sources.base import ChangingSource
from speccli.core.stopping import told_to_stop
from speccli.core.views.status import rfc3339

_KEEP_S = 60.0
"""How often what is remembered is written down where nothing changes."""
_GRACE_S = 1.0
_WINDOW_S = 300.0
"""What a number looks back: as much as a usual cron's."""


@dataclass(slots=True)
class Watcher:
    """What one round needs."""

    asked: Asked
    opened: Opened
    examiner: Examiner
    notifier: Notifier
    heartbeat: Heartbeat
    keeper: Keeper
    memory: Memory
    tap: Kept
    say: Callable[[str], None]
    warn: Callable[[str], None]
    deadline_s: float
    last: Verdict | None = None
    kept_at: float = 0.0
    lamented: frozenset[str] = frozenset()
    """The same of the state file."""
    complained: frozenset[str] = frozenset()
    """What was said of notifications at the last round: said once, not at every round."""

    async def round(self) -> Verdict:
        """Look, judge, tell, remember."""
        now = time.time()
        try:
            async with asyncio.timeout(self.deadline_s):
                snapshot = await self.opened.poller.round()
            assert snapshot is not None
            verdict = self.examiner.examine(snapshot)
        except TimeoutError:
            late = DeadlineError(f"no answer within {self.deadline_s:g} s")
            verdict = failed(late, self.asked.terms.thresholds)
        except SourceError as error:
            verdict = failed(error, self.asked.terms.thresholds)
        self._tell_changes(verdict, now)
        untold = await self._notify(verdict, now)
        self.heartbeat.beat(verdict, untold)
        if verdict.changes or self.last is None or now - self.kept_at >= _KEEP_S:
            self.keep(now)
        self.last = verdict
        return verdict

    def _tell_changes(self, verdict: Verdict, now: float) -> None:
        for change in verdict.changes:
            self.say(turn_line(Turn(now, verdict.word, ()), change))
        if self.last is None or (verdict.word != self.last.word and not verdict.changes):
            self.say(f"{rfc3339(now)} {verdict.line.partition(' | ')[0]}")

    async def _notify(self, verdict: Verdict, now: float) -> int:
        try:
            async with asyncio.timeout(self.deadline_s):
                said = await self.notifier.tell(verdict, now)
        except TimeoutError:
            said = [f"notifications took more than {self.deadline_s:g} s"]
        for line in said:
            if line not in self.complained:
                self.warn(line)
        self.complained = frozenset(said)
        return sum("was not told" in line or "took more" in line for line in said)

    def keep(self, now: float) -> None:
        """Write down what is remembered."""
        window, source = self.opened.poller.window, self.opened.poller.source
        if isinstance(source, ChangingSource):  # pages of pods that are gone would pile up
            for gone in self.tap.scrapes.keys() - source.present:
                del self.tap.scrapes[gone]
        self.kept_at = now
        self.memory = dataclasses.replace(
            self.examiner.remembered(self.memory),
            at=now,
            floor=window.settings.floor,
            low=window.low,
            scrapes=list(self.tap.scrapes.values()),
            sent=self.notifier.to_json(),
        )
        self.keeper.save(self.memory)
        for note in self.keeper.notes:
            if note not in self.lamented:
                self.warn(note)
        self.lamented = frozenset(self.keeper.notes)
        self.keeper.notes.clear()


async def watch(
    asked: Asked,
    *,
    every_s: float,
    listen: tuple[str, int] | None,
    notifier_of: Callable[[Memory], Notifier],
    say: Callable[[str], None],
    warn: Callable[[str], None],
    lasting_s: float | None = None,
) -> int:
    """Watch until told to stop or the time is over; the exit code.

    Raises:
        UsageError: what was asked for cannot be.
    """
    keeper = asked.keeper("watch")
    with keeper.locked(min(10.0, asked.deadline_s)):
        watching = watcher(asked, every_s, keeper, notifier_of, say, warn)
        async with _listening(watching.heartbeat, listen, warn):
            return await _until_stopped(watching, every_s, lasting_s)


def watcher(
    asked: Asked,
    every_s: float,
    keeper: Keeper,
    notifier_of: Callable[[Memory], Notifier],
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> Watcher:
    """What rounds need, begun where the last run ended.

    Raises:
        UsageError: no source, or one that cannot be.
    """
    memory = keeper.load()
    opened = open_checked(asked.settings, asked.deadline_s)
    tap = Kept({scrape.target: scrape for scrape in memory.scrapes}, time.time())
    if not opened.poller.whole_window_at_once:  # a Prometheus has its own memory
        opened.poller.tap = tap
    jumped = _go_on(opened, memory, every_s)
    examiner = Examiner(asked.terms, memory)
    for note in (*keeper.notes, jumped, examiner.note):
        if note:
            warn(note)
    keeper.notes.clear()
    base = asked.terms.baseline
    heartbeat = Heartbeat(
        asked.name or "default",
        every_s,
        asked.terms.thresholds.acceptance_floor,
        base.rate if base else None,
    )
    return Watcher(
        asked,
        opened,
        examiner,
        notifier_of(memory),
        heartbeat,
        keeper,
        memory,
        tap,
        say,
        warn,
        min(asked.deadline_s, max(5.0, every_s)),
    )


def _go_on(opened: Opened, memory: Memory, every_s: float) -> str | None:
    """Begin where the last run ended; what is to be said of that."""
    now, window = time.time(), opened.poller.window
    earlier, jumped = usable(memory, now)
    if memory.floor == window.settings.floor:
        window.remember_low(memory.low)
    if opened.poller.whole_window_at_once:
        return None
    window.settings = dataclasses.replace(
        window.settings, window_s=_WINDOW_S, stale_s=max(5.0, 2.5 * every_s)
    )
    source = opened.poller.source
    names = {t.name for t in getattr(source, "targets", ())}
    # Of a source whose targets come and go it is known once it has been read which are gone.
    every = isinstance(source, ChangingSource)
    window.push(s for s in earlier if (every or s.target in names) and serves(s, now))
    return jumped


async def _until_stopped(watcher: Watcher, every_s: float, lasting_s: float | None) -> int:
    try:
        return await until_stopped(watcher.round, every_s, lasting_s)
    finally:
        watcher.keep(time.time())
        await watcher.opened.poller.source.aclose()


async def until_stopped(
    make: Callable[[], Coroutine[Any, Any, object]], every_s: float, lasting_s: float | None
) -> int:
    """Round after round until told to stop or the time is over; the exit code."""
    ends = None if lasting_s is None else time.monotonic() + lasting_s
    with told_to_stop() as stop:
        while not stop.done() and (ends is None or time.monotonic() < ends):
            began = time.monotonic()
            making: asyncio.Future[Any] = asyncio.ensure_future(make())
            await asyncio.wait({making, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not making.done():
                await asyncio.wait({making}, timeout=_GRACE_S)
            if not making.done():
                making.cancel()
                await asyncio.gather(making, return_exceptions=True)
                break
            making.result()
            pause = every_s - (time.monotonic() - began)
            if ends is not None:
                pause = min(pause, ends - time.monotonic())
            await asyncio.wait({stop}, timeout=max(0.0, pause))
        interrupted = stop.done() and stop.result() == signal.SIGINT
    return int(ExitCode.INTERRUPTED) if interrupted else 0


@contextlib.asynccontextmanager
async def _listening(
    heartbeat: Heartbeat, listen: tuple[str, int] | None, warn: Callable[[str], None]
) -> AsyncIterator[None]:
    if listen is not None:
        warn(f"heartbeat at {await heartbeat.listen(*listen)}/metrics")
    try:
        yield
    finally:
        await heartbeat.aclose()
