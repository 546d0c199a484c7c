"""`fallback watch`: looks, decides, moves or proposes, tells; over and over, one leader.

Every process looks, so that whoever leads next knows what it has seen. The leader alone decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from speccli.core.alert.notify import Notifier
from speccli.core.alert.verdict import Verdict
from speccli.core.deploy.asked import Reporter
from speccli.core.errors import SpecctlError
from speccli.core.fallback.audit import Entry, emit, entry
from speccli.core.fallback.begun import outdated
from speccli.core.fallback.carrying import Carrying, Connect, Ended, came_to, carried, fenced
from speccli.core.fallback.gauges import Gauges
from speccli.core.fallback.kept import Kept, KeptError, load, save, telling
from speccli.core.fallback.leading import Leading
from speccli.core.fallback.lease import Lease
from speccli.core.fallback.measured import Bench
from speccli.core.fallback.news import Teller
from speccli.core.fallback.notices import as_verdict, notices
from speccli.core.fallback.policy import after, decide
from speccli.core.fallback.sight import Looking, Seen, Sight, baseline_of
from speccli.core.fallback.signs import DOWN, Crashes
from speccli.core.fallback.standing import Stand, Standing, standing, top_label, weighed
from speccli.core.fallback.terms import (
    Decision,
    Go,
    Move,
    Moved,
    Sign,
    Situation,
    Terms,
)

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

_KEEP_S = 30.0
"""How often a hold that goes on is written down."""
_TRIES = 3
"""Times that a move which was cut short is gone on with before it has failed."""
_TELLING_S = 10.0
_LEAVE_S = 8.0
"""How long a move may take to notice that it is to stop."""
ACCEPTED_S = 3600.0
"""How long who accepted a proposal may take to carry it out before others are decided on."""


@dataclass(slots=True)
class Watch:
    """One deployment under watch."""

    connect: Connect
    lease: Lease
    looking: Looking
    auto: bool
    gauges: Gauges
    notifier: Notifier
    line: Callable[[str], None]
    """Takes the audit's lines of JSON."""
    reporter: Reporter
    clock: Callable[[], float] = time.time
    carry: Callable[..., Ended] = carried
    bug: Callable[[BaseException], None] = lambda _: None
    """Is given what ends a move that should not have: a report of it is written."""
    see: Callable[[Looking, Standing, Callable[[str], None]], Sight] = Sight
    _crashes: Crashes = field(default_factory=Crashes)
    _stand: Stand | None = None
    _sight: Sight | None = None
    _moving: Carrying | None = None
    _why: str | None = None
    _leading: Leading = field(init=False)
    _remembers: bool = False
    """Whether the notifier knows what former leaders told."""
    _away: str | None = None
    _untold: frozenset[str] = frozenset()
    _saved_at: float = 0.0
    _begun: str | None = None
    """The move that this process last set about."""
    _stopping: bool = False

    def __post_init__(self) -> None:
        """Nothing is asked yet."""
        self._leading = Leading(self.lease, self.reporter)

    @property
    def _name(self) -> str:
        return self.looking.name

    @property
    def _place(self) -> str:
        return self.looking.namespace

    async def round(self) -> None:
        """Look, decide, act, remember."""
        at = self.clock()
        self._leading.say()
        if self._moving is not None and not await self._moved(at):
            self.gauges.looked(leads=self.lease.leads, blind=False, led=self.lease.known)
            return
        try:
            now, kept, crash = await asyncio.to_thread(self._read, at)
        except SpecctlError as error:
            await self._without_cluster(error)
            return
        self._back()
        seen = await self._look(now)
        bench = Bench(self.looking.bench, now.found.top, seen.batch)
        situation = _with(weighed(now, bench), seen, crash)
        untold = 0
        if self.lease.leads:
            try:
                untold = await self._decide(now, kept, seen, situation, at)
            except SpecctlError as error:
                self._warn(f"{error.message}; it is tried again at the next look")
        else:
            self._remembers = False
            self.gauges.stands(kept.state, situation, "follows")
        leads, blind = self.lease.leads, situation.blind is not None
        self.gauges.looked(leads=leads, blind=blind, led=self.lease.known, untold=untold)

    async def aclose(self) -> None:
        """Leave in good order: a move that is under way is completed by whoever leads next."""
        moving = self._moving
        if moving is not None:
            self._stopping = moving.ended is None
            await asyncio.to_thread(moving.wait, _LEAVE_S)
            if moving.ended is not None and moving.ended.outcome is not None:
                self._stopping = False  # what has ended is written down, or the next begins anew
                await self._moved(self.clock())
        self._stopping = True
        if self._sight is not None:
            await self._sight.aclose(self.clock())

    # ---- reading ----

    def _read(self, at: float) -> tuple[Standing, Kept, Sign | None]:
        cluster = self.connect(None)
        self._stand = self._stand or Stand(self._place, self._name)
        now = self._stand.read(cluster, at)
        kept = load(cluster, self._place, self._name)
        crash = None
        if now.label.method != "none":
            crash = self._crashes.sign(cluster, self._place, self._name, now.label.pool)
        return now, kept, crash

    async def _look(self, now: Standing) -> Seen:
        """Look at what serves; a label of its own for each way of drafting."""
        if self._sight is None or self._sight.label != now.label:
            if self._sight is not None:
                await self._sight.leave()
            self._sight = self.see(self.looking, now, self.reporter.say)
        return await self._sight.look()

    async def _without_cluster(self, error: SpecctlError) -> None:
        if self._away is None:
            what = f"; {error.hint}" if isinstance(error, KeptError) else ""
            self._warn(f"{error.message}: nothing moves until it can be read{what}")
        self._away = error.message
        if self._sight is not None:
            await self._sight.look()  # a Prometheus may know more than the API server
        self.gauges.looked(leads=self.lease.leads, blind=True, led=None)

    def _back(self) -> None:
        if self._away is not None:
            self.reporter.say("the cluster answers again")
            self._away = None

    def _warn(self, text: str) -> None:
        self.reporter.warn(text)

    # ---- deciding ----

    async def _decide(
        self, now: Standing, kept: Kept, seen: Seen, situation: Situation, at: float
    ) -> int:
        """What follows from it; how many could not be told of it."""
        begun, taken = kept.state.under_way, kept.state.accepted_at
        if begun is not None and taken is None:
            why = outdated(kept, now, begun, at)
            if why is None:
                await self._go_on(now, kept, begun, situation, at)
                return 0
            kept = await self._closed(kept, begun, why, at)
        elif begun is not None and taken is not None:
            if at - taken < ACCEPTED_S:
                busy = f"proposal {begun.id} was accepted, and is being carried out"
                situation = replace(situation, busy=busy)
            else:
                state = replace(kept.state, under_way=None, accepted_at=None)
                kept = replace(kept, state=state)
        terms = Terms.of(now.found.top.fallback, auto=self.auto, every_s=self.looking.every_s)
        decision, state = decide(kept.state, situation, terms, at)
        if state.proposal is not None:
            state = replace(state, proposal=replace(state.proposal, well=self._well(now)))
        teller = Teller(self._name, self._place, self.lease.who)
        entries = teller.news(kept.state, state, decision, self._why, at)
        if any(each.what == "proposed" for each in entries):
            self.gauges.proposed()
        if isinstance(decision, Go):
            decision = Go(decision.move.begun(at))
            state = replace(state, under_way=decision.move)
        due = bool(state.seen) and at - self._saved_at >= _KEEP_S
        if entries or due or telling(state) != telling(kept.state) or kept.version is None:
            kept = await asyncio.to_thread(self._save, kept.after(state, *entries))
        await self._tell(entries)
        self._say_why(decision)
        if isinstance(decision, Go):
            self._begin(decision.move, now, continued=False)
        why = "moving" if isinstance(decision, Go) else decision.why
        self.gauges.stands(state, situation, why)
        found = notices(decision, state, situation, self._name, self._place)
        return await self._notify(kept, as_verdict(seen.verdict, found), at)

    async def _notify(self, kept: Kept, verdict: Verdict, at: float) -> int:
        """Tell people what former leaders have not; how many channels could not be told."""
        if not self._remembers:
            self.notifier.load(kept.told)
            self._remembers = True
        try:
            async with asyncio.timeout(_TELLING_S):
                said = await self.notifier.tell(verdict, at)
        except TimeoutError:
            said = [f"notifications took more than {_TELLING_S:g} s"]
        for text in (each for each in said if each not in self._untold):
            self._warn(text)
        self._untold = frozenset(said)
        told = self.notifier.to_json() or None
        if told != kept.told:
            await asyncio.to_thread(self._save, replace(kept, told=told))
        return sum("was not told" in text or "took more" in text for text in said)

    def _save(self, kept: Kept) -> Kept:
        saved = save(self._fenced(None), self._place, self._name, kept)
        self._saved_at = self.clock()
        return saved

    def _fenced(self, deadline_s: float | None) -> Cluster:
        return fenced(self.connect, lambda: self.lease.leads and not self._stopping)(deadline_s)

    def _say_why(self, decision: Decision) -> None:
        why = decision.why if not isinstance(decision, Go) else "moving"
        if why != self._why and not isinstance(decision, Go):
            self.reporter.say(decision.words)
        self._why = why

    # ---- moving ----

    async def _go_on(
        self, now: Standing, kept: Kept, move: Move, situation: Situation, at: float
    ) -> None:
        """A move that was begun, here or by another leader, is completed before all else."""
        words = f"{move.source} → {move.target} was begun and is gone on with"
        told = entry("continued", self._name, self.lease.who, at, words, move)
        if self._begun != move.id:
            await asyncio.to_thread(self._save, kept.after(kept.state, told))
            await self._tell((told,))
        self.gauges.stands(kept.state, situation, "moving")
        self._begin(move, now, continued=True)

    async def _closed(self, kept: Kept, move: Move, why: str, at: float) -> Kept:
        """Without a move that was begun and is not the one to make by now."""
        words = f"{move.source} → {move.target} was begun and is not gone on with: {why}"
        told = entry("withdrawn", self._name, self.lease.who, at, words, move)
        state = replace(kept.state, under_way=None, tries=0)
        kept = await asyncio.to_thread(self._save, kept.after(state, told))
        self._warn(words)
        await self._tell((told,))
        return kept

    def _well(self, now: Standing) -> float | None:
        """Acceptance rate of the recipe's own draft in a baseline of it."""
        base = baseline_of(self.looking.baselines, top_label(now.found), own=True)
        return None if base is None else base.rate

    def _begin(self, move: Move, now: Standing, *, continued: bool) -> None:
        well = self._well(now)

        def work() -> Ended:
            return self.carry(
                self._fenced,
                self._place,
                self._name,
                move,
                self.reporter,
                baseline=well,
                bench=self.looking.bench,
                continued=continued,
            )

        self._begun, self._moving = move.id, Carrying(move, work)

    async def _moved(self, at: float) -> bool:
        """Whether the move that was under way has ended; what follows is written down."""
        assert self._moving is not None
        ended, move = self._moving.ended, self._moving.move
        if ended is None:
            return False
        if (bug := self._moving.bug) is not None:
            self._moving.bug = None
            self.bug(bug)
        try:
            if not self.lease.leads:
                self._warn(f"{move.source} → {move.target}: whoever leads now completes it")
            elif ended.lost or not await self._concluded(move, ended, at):
                self._warn(f"{move.source} → {move.target} is not through: {ended.words}")
        except SpecctlError as error:
            self._warn(f"{error.message}: how the move ended is written down at the next look")
            return False
        self._moving = None
        return True

    async def _concluded(self, move: Move, ended: Ended, at: float) -> bool:
        """Write its end down; or the try, where it is to be gone on with: False."""

        def write() -> tuple[Entry, Moved] | bool:
            cluster = self._fenced(None)
            kept = load(cluster, self._place, self._name)
            if kept.state.under_way is None or kept.state.under_way.id != move.id:
                return True  # another leader has written it down
            tries = kept.state.tries + 1
            if ended.outcome is None and tries < _TRIES:
                tried = kept.after(replace(kept.state, tries=tries))
                save(cluster, self._place, self._name, tried)
                return False
            made = came_to(move, ended, standing(cluster, self._place, self._name, at), at)
            by = self.lease.who
            told = entry(made.outcome, self._name, by, at, ended.words, move, ended.seconds)
            save(cluster, self._place, self._name, kept.after(after(kept.state, made), told))
            return told, made

        written = await asyncio.to_thread(write)
        if isinstance(written, bool):
            return written
        told, made = written
        self.gauges.moved(made)
        await self._tell((told,))
        return True

    async def _tell(self, entries: Sequence[Entry]) -> None:
        """A line each, and an Event on the Deployment."""
        for told in entries:
            self.line(told.line)
            try:
                await asyncio.to_thread(emit, self._fenced(None), told, self._place)
            except SpecctlError as error:
                self._warn(f"no Event of it: {error.message}")


def _with(situation: Situation, seen: Seen, crash: Sign | None) -> Situation:
    """The situation with what was seen: crashes are the cluster's word, whatever can be read."""
    signs = (*seen.signs, crash) if crash is not None else seen.signs
    crashed = crash is not None and crash.code == DOWN and crash.share > 0.5
    return replace(
        situation, signs=signs, blind=None if crashed else seen.blind, traffic=seen.traffic
    )
