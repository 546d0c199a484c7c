"""What the policy is told and what it answers, frozen; times are Unix seconds throughout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from speccli.core.fallback.quiet import Quiet
from speccli.core.fallback.reactions import Way
from speccli.core.recipes.model import Fallback
from speccli.core.units import seconds

Kind = Literal["down", "restore"]
Outcome = Literal["done", "unproven", "failed", "refused", "inconclusive"]
"""unproven: it was made, and whether it serves or drafts is not to be told. failed: it was undone,
or could not be done. refused: the canary was worse than its siblings. inconclusive: the canary
could not be told from them, and nothing moved."""

_LEAST_CLEAR_S = 60.0
_CLEAR_SHARE = 0.2
_LOOKS = 2.5


@dataclass(frozen=True, slots=True)
class Terms:
    """When a deployment may move by itself."""

    hold_s: float = 300.0
    """How long a finding lasts before it moves anything."""
    cool_down_s: float = 1800.0
    restore_after_s: float = 3600.0
    moves_per_hour: int = 2
    quiet: Quiet = field(default_factory=Quiet)
    auto: bool = False
    """Whether it moves; else it proposes."""
    every_s: float = 15.0
    """Time between two looks."""

    @classmethod
    def of(cls, told: Fallback, *, auto: bool, every_s: float) -> Terms:
        """Those of a recipe.

        Raises:
            UsageError: a duration, a span of a day or a time zone that is none.
        """
        return cls(
            hold_s=seconds(told.hold, what="fallback.hold"),
            cool_down_s=seconds(told.cool_down, what="fallback.cool_down"),
            restore_after_s=seconds(told.restore_after, what="fallback.restore_after"),
            moves_per_hour=told.moves_per_hour,
            quiet=Quiet.of(told.quiet, told.time_zone),
            auto=auto,
            every_s=every_s,
        )

    @property
    def clear_s(self) -> float:
        """How long a finding is gone before its hold begins anew."""
        return max(_LEAST_CLEAR_S, _CLEAR_SHARE * self.hold_s, _LOOKS * self.every_s)


@dataclass(frozen=True, slots=True)
class Step:
    """A rung, as far as choosing one goes."""

    name: str
    method: str
    k: int = 0
    scheduled: bool = False
    """Whether its K goes by batch size."""
    refusal: str | None = None
    """Why it would not run, or is known to go wrong."""
    own: bool = False
    """Whether it is the recipe's own draft, or that with less of it."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A finding about what serves, as far as moving goes."""

    code: str
    severity: str
    evidence: str
    share: float = 1.0
    """Of the engines that serve, 0..1."""
    sure: bool = True
    """Whether the draft is known to be the cause; else a person decides."""
    way: Way | None = None
    """The way that helps here; None: that of its code."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a deployment stands, as it was seen at one time."""

    configuration: str
    """Of the draft that is to be served: refusals hold for it."""
    revision: int
    ladder: tuple[Step, ...]
    """The recipe's own draft first."""
    at: int
    """Which of them serves."""
    signs: tuple[Sign, ...] = ()
    blind: str | None = None
    """Why nothing can be judged; None where it can."""
    busy: str | None = None
    """What is under way; None: nothing."""
    traffic: bool = True
    standby: int | None = None
    """Rung of the pool that is warm; None: there is none, or it is not ready."""
    refused: int = 0
    """How often canaries of this configuration were refused, by whomever they were tried."""
    refused_at: float | None = None
    """When the last one was."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A code that was found."""

    since: float
    last: float


@dataclass(frozen=True, slots=True)
class Moved:
    """A move that was made or tried."""

    at: float
    kind: Kind
    source: str
    target: str
    outcome: Outcome
    by: str = "watch"
    """`watch`, or whoever moved it."""


@dataclass(frozen=True, slots=True)
class Move:
    """What is to be done, or proposed."""

    id: str
    kind: Kind
    source: str
    """The rung that serves."""
    target: str
    """The rung that is to; for a restore the recipe's own draft, through a canary."""
    code: str
    """The finding that leads to it; empty for a restore."""
    why: str
    revision: int
    """The revision that it is meant for: at another one it is outdated."""
    at: float
    """When it was decided or first proposed."""
    configuration: str = ""
    """That it is meant for; empty: not known, of a former version."""
    until: float | None = None
    """Once begun, after which it is not gone on with; None: not begun."""
    well: float | None = None
    """Acceptance rate of the draft when it was well, which a canary is held to; None: not known."""

    def begun(self, at: float) -> Move:
        """The same, begun now."""
        return replace(self, until=at + LASTS_S)

    def is_over(self, at: float) -> bool:
        """Whether too long has passed since it was begun for it to be gone on with."""
        return at > (self.at + LASTS_S if self.until is None else self.until)


@dataclass(frozen=True, slots=True)
class State:
    """What outlives a process: it lies in the cluster."""

    configuration: str = ""
    rung: str = ""
    """What served when last looked."""
    since: float | None = None
    """Since when, or when it was first seen to."""
    moves: tuple[Moved, ...] = ()
    """Newest last; those of a day, and the last one."""
    refusals: int = 0
    """Of this configuration: canaries that the watch had refused, returns that did not last."""
    refused_at: float | None = None
    failed: tuple[str, ...] = ()
    """Rungs that could not be reached since the configuration last changed or came back."""
    seen: Mapping[str, Seen] = field(default_factory=dict)
    proposal: Move | None = None
    under_way: Move | None = None
    """A move that was begun and of which no end is known."""
    accepted_at: float | None = None
    """When a person took it up, who carries it; None: the watch does."""
    tries: int = 0
    """At the move under way, that came to nothing."""
    inconclusive: int = 0
    """Canaries in a row that showed nothing."""

    def with_move(self, made: Moved) -> State:
        """The same with one more move."""
        young = tuple(m for m in self.moves if made.at - m.at < _KEPT_S)
        return replace(self, moves=(*young, made)[-_MOST:])


_KEPT_S = 86400.0
LASTS_S = 3600.0
"""How long a move that was begun may be gone on with: what it was decided on is old by then."""
_MOST = 100

Why = Literal[
    "well",
    "blind",
    "busy",
    "holding",
    "cool_down",
    "budget",
    "quiet",
    "unsure",
    "bottom",
    "exhausted",
    "waiting",
    "stays_down",
    "idle",
    "approval",
]
"""Why nothing moves; `approval`: because a person is to say yes."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Nothing is done."""

    why: Why
    words: str


@dataclass(frozen=True, slots=True)
class Propose:
    """It is put to a person."""

    move: Move
    why: Why
    words: str
    """What keeps it from being done without one."""


@dataclass(frozen=True, slots=True)
class Go:
    """It is done: a move down, or a canary."""

    move: Move


Decision = Stay | Propose | Go
