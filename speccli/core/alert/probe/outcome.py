"""What a probe finds: one outcome a rule, and the verdict they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from speccli.core.alert.verdict import EXITS, Word

SCHEMA = "specctl.probe/v1"
State = Literal["pass", "warning", "critical", "unknown", "skipped"]
_WORST: tuple[Word, ...] = ("critical", "warning", "unknown")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one rule says of one server."""

    rule: str
    """`F-JSON`, `F-MIN-P`, …; `ENGINE_DOWN` for a death."""
    state: State
    subject: str
    evidence: str
    cause: str = ""
    action: str = ""

    @property
    def line(self) -> str:
        """One line for people."""
        told = f"{self.state.upper()} {self.rule} {self.subject}: {self.evidence}"
        if self.cause:
            told += f". {self.cause}"
        if self.action:
            told += f". Do: {self.action}"
        flat = " ".join(told.split()).replace("|", "/")
        return "".join(char if char.isprintable() else "?" for char in flat)

    def to_json(self) -> dict[str, Any]:
        """The contract's form."""
        return {
            "rule": self.rule,
            "state": self.state,
            "subject": self.subject,
            "evidence": self.evidence,
            "cause": self.cause,
            "action": self.action,
        }


@dataclass(frozen=True, slots=True)
class Probed:
    """Every outcome."""

    outcomes: tuple[Outcome, ...]
    simulated: bool = False

    @property
    def word(self) -> Word:
        """The worst of them."""
        states = {outcome.state for outcome in self.outcomes}
        return next((word for word in _WORST if word in states), "ok")

    @property
    def exit(self) -> int:
        """0 to 3."""
        return int(EXITS[self.word])

    @property
    def lines(self) -> list[str]:
        """The plug-in line, then one an outcome, the worst first."""
        wrong = [o for o in ordered(self.outcomes) if o.state in _WORST]
        passed = sum(o.state == "pass" for o in self.outcomes)
        head = "SIMULATED, " if self.simulated else ""
        if wrong:
            said = f"{head}{wrong[0].rule} {wrong[0].subject}: {wrong[0].evidence}"
        else:
            said = f"{head}{passed} of {len(self.outcomes)} checks passed"
        flat = " ".join(said.split()).replace("|", "/")
        first = f"SPECCTL {self.word.upper()} - {flat} | passed={passed};; failed={len(wrong)};;"
        return [first, *(o.line for o in ordered(self.outcomes))]

    def to_json(self) -> dict[str, Any]:
        """The contract's `specctl.probe/v1` object."""
        return {
            "schema": SCHEMA,
            "exit": self.exit,
            "verdict": self.word,
            "simulated": self.simulated,
            "checks": [outcome.to_json() for outcome in ordered(self.outcomes)],
        }


def ordered(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The worst first."""
    order = ("critical", "warning", "unknown", "skipped", "pass")
    return sorted(outcomes, key=lambda outcome: order.index(outcome.state))
