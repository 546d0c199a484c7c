"""What doctor found, as the `specctl.doctor/v1` object and in the words of its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from speccli.core.doctor.base import Check, State, exit_code
from speccli.core.views.status import rfc3339
from speccli.core.views.text import clean

SCHEMA = "specctl.doctor/v1"
GLYPHS: dict[State, str] = {"ok": "●", "warn": "▲", "fail": "✖", "unknown": "○", "skip": "·"}
_FEW = 4
"""Servers up to which each check of each has its line."""
_VERDICTS = {0: "ok", 1: "warning", 2: "critical", 3: "unknown"}


def doctor(checks: Sequence[Check], at: float) -> dict[str, Any]:
    """The whole object."""
    code = int(exit_code(checks))
    return {
        "schema": SCHEMA,
        "at": rfc3339(at),
        "exit": code,
        "verdict": _VERDICTS[code],
        "checks": [asdict(check) for check in checks],
    }


def shown(checks: Sequence[Check]) -> list[Check]:
    """The checks that people are shown: of many servers, those that are fine have one line each."""
    subjects = {check.subject for check in checks if check.area == "source"}
    if len(subjects) <= _FEW:
        return list(checks)
    lines: list[Check] = []
    for (area, subject), group in groupby(checks, key=lambda c: (c.area, c.subject)):
        members = list(group)
        told = [check for check in members if check.state != "ok"]
        if area == "source" and not told:
            what = f"{len(members)} checks"
            lines.append(Check("source", "all", "ok", what, subject=subject))
        else:
            lines += told if area == "source" else members
    return lines


def sentence(check: Check) -> str:
    """What, and what of it."""
    words = clean(check.what)
    return f"{words}: {clean(check.why)}" if check.why else words


def total(checks: Iterable[Check]) -> str:
    """`1 fail, 2 warn, 14 ok`."""
    states: list[State] = [check.state for check in checks]
    counts = [(states.count(state), state) for state in ("fail", "unknown", "warn", "ok", "skip")]
    return ", ".join(f"{count} {state}" for count, state in counts if count)
