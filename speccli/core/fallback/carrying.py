"""A move of the watch, from its beginning to its end: carried by a thread, fenced by the lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from speccli.core.bench.results import Result
from speccli.core.deploy.asked import Reporter
from speccli.core.deploy.gate import GateError
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.fallback import carry
from speccli.core.fallback.begun import through
from speccli.core.fallback.standing import Standing, standing
from speccli.core.fallback.terms import Move, Moved, Outcome
from speccli.core.kube.errors import ClusterError

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

Connect = Callable[[float | None], "Cluster"]


class NotLeadingError(ClusterError):
    """Another process leads by now, or this one is told to stop: it changes nothing more."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a move came to."""

    outcome: Outcome | None
    """None: it is not through, and the same call goes on with it."""
    words: str
    seconds: float
    lost: bool = False
    """Whether this process was no longer the one to carry it."""


def fenced(connect: Connect, may: Callable[[], bool]) -> Connect:
    """The same connections, which change nothing once this process may not."""

    def check() -> None:
        if not may():
            raise NotLeadingError("another watch leads by now: what was begun is completed by it")

    def connected(deadline_s: float | None = None) -> Cluster:
        check()
        cluster = connect(deadline_s)
        cluster.fence = check
        return cluster

    return connected


def carried(
    connect: Connect,
    namespace: str,
    name: str,
    move: Move,
    reporter: Reporter,
    *,
    baseline: float | None = None,
    bench: Result | None = None,
    continued: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Ended:
    """Carry a move to its end.

    Args:
        connect: A cluster, each of whose calls may take so many seconds.
        namespace: Where the deployment is.
        name: What it is called.
        move: What to do.
        reporter: Who is told.
        baseline: Acceptance rate of the recipe's draft when it was well; None: not known.
        bench: Of the rungs, by which a standby's servers are counted.
        continued: Whether it was begun before, perhaps by another process.
        clock: Seconds.
    """
    began = clock()
    try:
        if continued and _is_done(connect, namespace, name, move):
            return Ended("done", "it was through already", clock() - began)
        outcome, words = _carry(connect, namespace, name, move, reporter, baseline, bench)
    except NotLeadingError as error:
        return Ended(None, error.message, clock() - began, lost=True)
    except (UsageError, GateError) as error:
        return Ended("failed", _words(error), clock() - began)
    except SpecctlError as error:
        return Ended(None, _words(error), clock() - began)
    return Ended(outcome, words, clock() - began)


def _carry(
    connect: Connect,
    namespace: str,
    name: str,
    move: Move,
    reporter: Reporter,
    baseline: float | None,
    bench: Result | None,
) -> tuple[Outcome | None, str]:
    if move.kind == "down":
        moved = carry.go(connect, namespace, name, move.target, reporter, bench=bench)
        words = "; ".join((moved.words, *moved.notes))
        return _came_to(moved), words
    back = carry.restore(connect, namespace, name, reporter, baseline=baseline)
    if back.verdict != "passed":
        return back.verdict, back.words
    return ("done" if back.moved is None else _came_to(back.moved)), back.words


def _came_to(moved: carry.Outcome) -> Outcome | None:
    """What it is told as; None: it was not ready in time, and is gone on with."""
    if moved.end == "stayed":
        # Nothing was tried: the rung is none that failed.
        return None if moved.under_way else "unproven"
    if moved.end != "unproven":
        return "done" if moved.end == "moved" else "failed"
    ended = moved.last.ended
    return "unproven" if ended is not None and ended.end == "done" else None


def came_to(move: Move, ended: Ended, now: Standing, at: float, by: str = "watch") -> Moved:
    """What is remembered of a move that ended, or is gone on with no more."""
    serves = now.situation.ladder[now.situation.at].name
    outcome = ended.outcome
    if outcome is None:  # tried often enough
        outcome = "unproven" if serves == move.target else "failed"
    there = outcome == "done" or (outcome == "unproven" and serves != move.source)
    return Moved(at, move.kind, move.source, serves if there else move.target, outcome, by)


def _is_done(connect: Connect, namespace: str, name: str, move: Move) -> bool:
    return through(standing(connect(None), namespace, name, time.time()), move)


def _words(error: SpecctlError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


class Carrying:
    """A move under way. Its thread ends with the process, or at its next call once fenced."""

    def __init__(self, move: Move, work: Callable[[], Ended]) -> None:
        """Begins at once."""
        self.move = move
        self.ended: Ended | None = None
        """How it ended; None while it has not."""
        self.bug: BaseException | None = None
        """A fault of specctl's own that it ended by."""
        self._thread = threading.Thread(
            target=self._run, args=(work,), name="specctl-move", daemon=True
        )
        self._thread.start()

    def _run(self, work: Callable[[], Ended]) -> None:
        began = time.monotonic()
        try:
            self.ended = work()
        except BaseException as bug:  # noqa: BLE001 - it is a try that came to nothing, and told
            words = f"a bug in specctl: {type(bug).__name__}: {bug}"
            self.bug, self.ended = bug, Ended(None, words, time.monotonic() - began)

    def wait(self, seconds: float) -> None:
        """Wait for its end, so long at most."""
        self._thread.join(seconds)
