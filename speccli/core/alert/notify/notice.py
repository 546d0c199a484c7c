"""What is told: the state of every finding, and what of it is news."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from speccli.core.findings.base import Finding

Key = tuple[str, str]
"""Code and subject."""


@dataclass(frozen=True, slots=True)
class Told:
    """A finding as it was told."""

    finding: Finding
    since: float
    """When it was first told, or since when it is so; Unix seconds."""

    def to_json(self) -> dict[str, Any]:
        """Its form in the state file."""
        return {"finding": asdict(self.finding), "since": self.since}

    @classmethod
    def from_json(cls, value: Any) -> Told:
        """That of such a form; ValueError, TypeError or KeyError where it is none."""
        return cls(Finding(**value["finding"]), float(value["since"]))


@dataclass(frozen=True, slots=True)
class News:
    """What there is to tell one channel."""

    deployment: str
    at: float
    active: Mapping[Key, Told]
    """All that is so."""
    begun: Mapping[Key, Told]
    """What the channel does not know of, or not of its severity."""
    over: Mapping[Key, Told]
    """What the channel believes and is not so any more, as it was told."""
    simulated: bool = False

    @property
    def ended(self) -> dict[Key, Told]:
        """What is over for people: a finding of another severity is not."""
        return {key: told for key, told in self.over.items() if key not in self.active}

    @property
    def lines(self) -> list[str]:
        """One a begun or ended finding."""
        lines = []
        for word, found in (("FIRING", self.begun), ("RESOLVED", self.ended)):
            for told in found.values():
                f = told.finding
                lines.append(f"{word} {f.severity} {f.code} {f.subject}: {f.evidence}")
        return lines


class NotTold(Exception):  # noqa: N818 - no error of the check
    """A channel could not be told; the message says why, without secrets."""


class Channel(Protocol):
    """Somewhere to tell things."""

    name: str
    """How it is called in messages: no secrets in it."""
    mark: str
    """What it is remembered by."""
    repeats: bool
    """Whether it must hear of what is so at every check."""

    async def unusable(self) -> str | None:
        """Why nothing could be told as it is configured, whatever there were; nothing is sent."""

    async def tell(self, news: News) -> None:
        """Tell it.

        Raises:
            NotTold: it could not be told.
        """
