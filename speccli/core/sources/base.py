"""What a source hands over: raw scrapes, so that live, kept and simulated data take one path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

NO_ENGINES = "Prometheus has no series of an engine"
"""How a Prometheus that knows no engine, or none that was asked for, is spoken of."""
Stage = Literal["pending", "loading", "terminating"]
"""What a server that is not there yet, or not any more, is doing; none of it is a fault."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One attempt to read one target's page."""

    at: float
    """When the answer came, Unix seconds."""
    target: str
    """The server's URL without credentials, path `/metrics` or query.

    Where one address stands for several servers (two clusters behind one Thanos), `#` and the
    labels that tell them apart follow.
    """
    status: int | None = None
    """HTTP status of the answer; None when there was none."""
    body: bytes = b""
    error: str | None = None
    """Why there was no answer (`connect refused`); None when there was one."""
    truncated: bool = False
    """The transport lost the end of the body."""
    note: str | None = None
    """What else the reader should know, e.g. that an oversized body was cut down."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """What the server said of itself besides its metrics: `version`, `method`, `k`, `draft`; and
    `meant`, the method that it was deployed with, as who deployed it wrote down."""
    stage: Stage | None = None
    """Where there was no answer and none is due yet, or any more: what the server is doing."""
    fix: str | None = None
    """What to do about the error, where the source knows."""
    pool: str | None = None
    """The pool of its deployment that the server belongs to, where the source knows."""


def facts(told: Mapping[str, Any]) -> dict[str, Any]:
    """`version`, `method`, `k`, `draft`, `meant` as a server or a file tells them; no other."""
    known: dict[str, Any] = {}
    for name in ("version", "method", "draft", "meant"):
        text = told.get(name)
        if isinstance(text, str) and text.strip():
            known[name] = text.encode("utf-8", "replace").decode()[:_LONGEST]
    k = told.get("k")
    if isinstance(k, int) and not isinstance(k, bool) and 0 < k <= _LARGEST_K:
        known["k"] = k
    return known


_LONGEST = 400
_LARGEST_K = 4096


class Source(Protocol):
    """Where scrapes come from. Failures of a target are scrapes with an error, never exceptions."""

    interval_s: float
    """Seconds from one round to the next."""
    simulated: bool

    async def scrapes(self) -> list[Scrape] | None:
        """One round over every target; None when the source has ended (a replay).

        Raises:
            SourceError: the source as a whole cannot be read (a Prometheus that is down).
        """

    async def aclose(self) -> None:
        """Give connections and files back."""


@runtime_checkable
class ChangingSource(Protocol):
    """A source whose targets come and go."""

    @property
    def present(self) -> frozenset[str]:
        """Targets that exist as of the last round."""


@runtime_checkable
class PromptSource(Protocol):
    """A source whose rounds need not wait for the slowest target."""

    @property
    def awaited(self) -> tuple[str, ...]:
        """Targets that were asked and of which nothing was handed over yet."""

    async def soon(self) -> list[Scrape]:
        """A round that ends in time for the next; what is late comes with a later one."""

    async def unheard(self) -> list[Scrape]:
        """What has come in, once every target has been heard."""
