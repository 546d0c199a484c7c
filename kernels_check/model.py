"""What a check is, what it is given, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    """It ran, and what it looked at is wrong."""
    CRASHED = "crashed"
    """Its process died, or CUDA reported an error that a context does not survive."""
    HUNG = "hung"
    """It did not end within its deadline and was killed."""
    SKIPPED = "skipped"
    """What it looks at is not in this image or not on this chip."""
    BROKEN = "broken"
    """The check itself could not be carried out, so it says nothing about the kernel."""


class Level(StrEnum):
    """When a check runs."""

    GRID = "grid"
    """Always."""
    SPEED = "speed"
    """With --speed."""
    COST = "cost"
    """With --cost."""
    SOAK = "soak"
    """With --soak MINUTES."""
    MUTANTS = "mutants"
    """With --mutants."""
    SANITIZE = "sanitize"
    """With --sanitize."""
    HIDDEN = "hidden"
    """Only by name."""


@dataclass(frozen=True)
class Check:
    """One line of the manifest."""

    name: str
    target: str
    """`module:function` below `kernels_check.checks`, or a full module path."""
    title: str
    """What is claimed when it passes."""
    level: Level = Level.GRID
    deadline_s: float = 60.0
    alone: bool = False
    """It measures time or provokes faults: nothing else may use the GPU meanwhile."""
    code: str = "KERNEL_WRONG"
    """The finding it raises when it fails."""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What a check is given."""

    seed: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """How one check ended, with its evidence."""

    name: str
    status: Status
    seconds: float
    evidence: str
    """One line: counts when it passed, the first wrong thing when not."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Measurements, JSON."""
    log: str = ""
    """The end of what its process wrote, when it did not pass."""

    def as_json(self) -> dict[str, Any]:
        """The line in the log of a run."""
        made: dict[str, Any] = {
            "name": self.name,
            "status": str(self.status),
            "seconds": round(self.seconds, 3),
            "evidence": self.evidence,
        }
        if self.data:
            made["data"] = dict(self.data)
        if self.log:
            made["log"] = self.log
        return made


class Wrong(Exception):
    """What was looked at is wrong; the message is the evidence."""

    def __init__(self, evidence: str, data: Mapping[str, Any] | None = None) -> None:
        """`evidence`: one line. `data`: measurements that stand all the same."""
        super().__init__(evidence)
        self.evidence = evidence
        self.data = dict(data or {})


class NotHere(Exception):
    """What was to be looked at is not in this image or not on this chip; the message says what."""


class Unfamiliar(Exception):
    """The package is here, and what we know of it is not: this version was not checked."""


def missing(what: str, error: ImportError) -> Exception:
    """What to raise for an import that failed: a skip only where a whole package is not installed.

    An engine that renamed what is checked must not pass as one that does not have it.
    """
    name = error.name or ""
    if isinstance(error, ModuleNotFoundError) and "." not in name:
        return NotHere(f"{what}: {error}")
    return Unfamiliar(f"{what} is not where this check knows it: {error}")


@dataclass
class Passed:
    """What a check returns: its evidence and its measurements."""

    evidence: str
    data: dict[str, Any] = field(default_factory=dict)
