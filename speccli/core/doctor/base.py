"""A check's answer, and what many answers amount to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from speccli.core.errors import ExitCode

State = Literal["ok", "warn", "fail", "unknown", "skip"]
Area = Literal["machine", "terminal", "settings", "source", "tools", "disk"]
AREAS: tuple[Area, ...] = ("machine", "terminal", "settings", "source", "tools", "disk")
"""In the order shown."""

_CODES: tuple[tuple[State, ExitCode], ...] = (
    ("fail", ExitCode.CRITICAL),
    ("unknown", ExitCode.UNKNOWN),
    ("warn", ExitCode.WARNING),
)
"""Worst first: what is known to be wrong, what could not be asked, what merely falls short."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the answer."""

    area: Area
    name: str
    """What was looked at, a word or two."""
    state: State
    """`unknown`: it could not be asked (unreachable, deadline); `skip`: nothing to ask."""
    what: str
    """What was found."""
    why: str = ""
    """What it means for specctl; empty where that is plain."""
    fix: str = ""
    """What to do; empty where nothing is."""
    subject: str = ""
    """The server or file it was found at; empty for this machine."""


def exit_code(checks: Iterable[Check]) -> ExitCode:
    """The worst of them: fail 2, else unknown 3, else warn 1, else 0."""
    states = {check.state for check in checks}
    return next((code for state, code in _CODES if state in states), ExitCode.OK)
