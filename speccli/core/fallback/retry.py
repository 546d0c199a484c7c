"""Beginning again where an API server is away for a while: every part of a move can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from speccli.core.deploy.asked import Reporter
from speccli.core.errors import SpecctlError
from speccli.core.kube.client import DEADLINE_S
from speccli.core.kube.errors import Busy, TimedOut, Unreachable

AWAY_S = 300.0
"""How long an API server may be away in the middle of a move."""
_ANSWERED_S = 3 * DEADLINE_S
"""A try that lasted for longer was answered: its first call would have ended it."""
ABSENCES = 10
"""Of one part of a move. A late call that nobody ever answers, after others that were answered,
looks like a new absence each time."""
_FIRST_S, _LONGEST_S = 1.0, 15.0
_AWAY = (Unreachable, TimedOut, Busy)

Made = TypeVar("Made")


def persistently(
    once: Callable[[], Made],
    reporter: Reporter,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    away_s: float = AWAY_S,
) -> Made:
    """Do it, and again from the start while nobody answers.

    Each absence has its own time: one at the beginning of a long move says nothing of the next.

    Raises:
        SpecctlError: what is no matter of waiting; or nobody answered for so long, or so often.
    """
    began: float | None = None
    absences = 0
    pause = _FIRST_S
    while True:
        tried = clock()
        try:
            return once()
        except _AWAY as error:
            now = clock()
            if began is None or now - tried > _ANSWERED_S:
                began, pause = now, _FIRST_S
                absences += 1
            if absences > ABSENCES:
                raise _given_up(error, f"{ABSENCES} times") from error
            if now - began + pause > away_s:
                raise _given_up(error, f"for {now - began:.0f} s") from error
            reporter.warn(f"{error.message}; it is done again in {pause:.0f} s")
        sleep(pause)
        pause = min(2 * pause, _LONGEST_S)


def _given_up(error: SpecctlError, how: str) -> SpecctlError:
    told = SpecctlError(
        f"{error.message}, {how} in the middle of a move",
        hint="what serves goes on; the same command completes what was begun",
    )
    told.exit_code = error.exit_code
    return told
