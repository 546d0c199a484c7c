"""`alert check`: one look, judged with what is remembered, within a deadline."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from speccli.core.alert.examine import Examiner, Terms
from speccli.core.alert.look import PAIR_S, Kept, look, usable
from speccli.core.alert.memory import Keeper, Memory, file_name
from speccli.core.alert.verdict import Turn, Verdict, failed
from speccli.core.baseline import Baseline
from speccli.core.baseline.store import Store
from speccli.core.config import Settings
from speccli.core.deadline import Clock, run
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.open import Opened, open_source
from speccli.core.sources.replay import ReplaySource
from speccli.core.state import state_folder
from speccli.core.units import seconds

_WINDOW_S = 300.0
"""What a Prometheus is asked for: as much as lies between two usual crons."""
_REMEMBERED_S = 3900.0
_REPLAY_S = 60.0
_ONE_ANSWER_S = 5.0
_PARTS = 5
"""Two rounds of pages and what servers say of themselves, and time to say it."""
DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a check was asked to do."""

    settings: Settings
    terms: Terms
    name: str | None = None
    """What the deployment is called; None: known by its source."""
    state: Path | None = None
    """The state folder; None: by the environment."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def deadline_s(self) -> float:
        """Wall clock for all of it."""
        text = self.settings.deadline
        return seconds(text, what="--deadline", least=1) if text else DEADLINE_S

    def keeper(self, command: str) -> Keeper:
        """Where this deployment's memory is."""
        source = [*sorted(self.settings.endpoint or ()), str(self.settings.prometheus)]
        source += [str(self.settings.selector)]
        if self.settings.deployment:
            where = (self.settings.kubeconfig, self.settings.context, self.settings.namespace)
            source += [self.settings.deployment, *map(str, where)]
        file = file_name(command, self.name, "\n".join(source))
        try:
            return Keeper(state_folder(self.state, self.environment), file)
        except UsageError as error:
            keeper = Keeper(None, file)
            keeper.notes.append(f"nothing is remembered: {error.message} ({error.hint})")
            return keeper
        except RuntimeError as error:  # ~ without a home
            keeper = Keeper(None, file)
            keeper.notes.append(f"nothing is remembered: {error} (give --state DIR)")
            return keeper


def stored(name: str, state: Path | None, environment: Mapping[str, str]) -> Baseline:
    """A baseline by its name, or by its file where there is no state folder.

    Raises:
        UsageError: there is none.
    """
    try:
        folder = state_folder(state, environment)
    except (UsageError, RuntimeError):
        folder = Path("no-state-folder")
    return Store(folder).get(name)


@dataclass(frozen=True, slots=True)
class Checked:
    """A verdict, and what is still to be done and said."""

    verdict: Verdict
    notes: tuple[str, ...] = ()
    memory: Memory = field(default_factory=Memory)
    keeper: Keeper | None = None
    """None where nothing was examined."""


def check(
    asked: Asked,
    clock: Clock,
    *,
    after: Callable[[Checked], Memory] = lambda checked: checked.memory,
    now: Callable[[], float] = time.time,
) -> Checked:
    """Look, judge, remember.

    `after` is given the verdict while the memory is still held (to say it, to tell others), and
    returns what is to be remembered.

    Raises:
        UsageError: what was asked for cannot be.
    """
    deadline_s = asked.deadline_s
    keeper = asked.keeper("check")
    opened = open_checked(asked.settings, deadline_s)
    try:
        with keeper.locked(0.8 * clock.left):
            memory = keeper.load()
            try:
                checked = _checked(asked, clock, keeper, opened, memory, now())
            except UsageError:
                raise
            except SpecctlError as error:
                untold = Checked(failed(error, asked.terms.thresholds), (), memory, keeper)
                sent = after(untold).sent
                if sent != memory.sent:
                    keeper.save(dataclasses.replace(memory, at=now(), sent=sent))
                return dataclasses.replace(untold, notes=tuple(keeper.notes))
            keeper.save(dataclasses.replace(after(checked), at=now()))
            return dataclasses.replace(checked, notes=tuple(keeper.notes))
    except UsageError:
        raise
    except SpecctlError as error:
        return Checked(failed(error, asked.terms.thresholds), tuple(keeper.notes))


def open_checked(settings: Settings, deadline_s: float) -> Opened:
    """The source of a check, each answer of it within its share of the deadline."""
    share = deadline_s * 0.8 if settings.prometheus else min(_ONE_ANSWER_S, deadline_s / _PARTS)
    window = settings.window if settings.prometheus else None
    within = dataclasses.replace(settings, deadline=f"{max(0.2, share):.3f}s", window=window)
    usual = _WINDOW_S if settings.prometheus else _REMEMBERED_S
    return open_source(within, replay=None, default_window_s=usual)


def _checked(
    asked: Asked, clock: Clock, keeper: Keeper, opened: Opened, memory: Memory, now: float
) -> Checked:
    earlier, said = usable(memory, now)
    if said:
        keeper.notes.append(said)
    tap = Kept({scrape.target: scrape for scrape in memory.scrapes}, now)
    if not opened.poller.whole_window_at_once:  # a Prometheus has its own memory
        opened.poller.tap = tap
    pair = asked.settings.window
    pair_s = seconds(pair, what="--window") if pair and not asked.settings.prometheus else None
    if pair_s is not None and pair_s > clock.left:
        raise UsageError(
            f"--window {pair} is longer than --deadline allows",
            hint="growth since the last check needs no --window; else raise --deadline",
        )
    snapshot = run(
        clock,
        look(
            opened,
            memory,
            earlier,
            now=now,
            pair_s=pair_s,
            first_s=min(PAIR_S, 0.3 * asked.deadline_s),
            clock=time.monotonic,
        ),
    )
    remembers = keeper.path is not None and (keeper.kept or keeper.writable())
    examiner = Examiner(asked.terms, memory, remembers=remembers)
    if examiner.note:
        keeper.notes.append(examiner.note)
    verdict = examiner.examine(snapshot)
    window = opened.poller.window
    names = {engine.target for engine in snapshot.engines}
    memory = dataclasses.replace(
        examiner.remembered(memory),
        floor=window.settings.floor,
        low=window.low,
        scrapes=[s for s in tap.scrapes.values() if s.target in names],
    )
    return Checked(verdict, (), memory, keeper)


def replay(settings: Settings, path: Path, terms: Terms) -> Verdict:
    """Judge a recording at each of its scrapes, as a cron run there would have.

    Raises:
        RecordingError: it cannot be read.
    """
    usual = dataclasses.replace(settings, window=settings.window or f"{_REPLAY_S:g}s")
    opened = open_source(usual, replay=path, default_window_s=_REPLAY_S)
    examiner = Examiner(terms, Memory())
    turns: list[Turn] = []
    last: Verdict | None = None
    source = opened.poller.source
    assert isinstance(source, ReplaySource)
    try:
        while (scrapes := source.next_round()) is not None:
            verdict = examiner.examine(opened.poller.take(scrapes))
            if last is None or verdict.changes or verdict.word != last.word:
                assert verdict.snapshot is not None
                turns.append(Turn(verdict.snapshot.at, verdict.word, verdict.changes))
            last = verdict
    finally:
        source.recording.close()
    note = source.recording.note
    if last is None:
        return Verdict("unknown", f"no scrapes in {path}", history=())
    if note and last.snapshot is not None:
        last = dataclasses.replace(last, snapshot=dataclasses.replace(last.snapshot, note=note))
    return dataclasses.replace(last, history=tuple(turns))
