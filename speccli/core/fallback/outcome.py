"""How a move went, and what a deployment of it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from speccli.core.deploy import cluster as deploying
from speccli.core.errors import ExitCode
from speccli.core.fallback import pools

Mechanism = Literal["switch", "rolling"]
End = Literal["moved", "undone", "unproven", "stayed"]
"""undone: what came was refuted, and what was before is there again. unproven: it was made, and
whether it drafts is not to be told, or it does not and nobody else would answer. stayed: what
comes has too few servers, or is not ready, and no request has moved."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a move went."""

    name: str
    namespace: str
    mechanism: Mechanism
    source: str
    """What drafted before: `eagle3, K = 3`."""
    target: str
    """What was to draft."""
    end: End
    words: str
    """All of it in a line."""
    seconds: float
    """From the beginning until the requests went where they were to go."""
    last: deploying.Outcome
    """The deployment that it came to."""
    notes: tuple[str, ...] = ()
    """What was not done, and why: a standby that was sick, servers that found no GPU."""
    under_way: bool = False
    """Of one that stayed: whether what comes is starting, and the same call goes on with it."""

    @property
    def exit_code(self) -> ExitCode:
        """The contract's."""
        return {
            "moved": ExitCode.OK,
            "undone": ExitCode.CRITICAL,
            "unproven": ExitCode.UNKNOWN,
            "stayed": ExitCode.UNKNOWN,
        }[self.end]


def refuted(done: deploying.Outcome) -> str | None:
    """Why a deployment is known not to do what it should; None where that is not known."""
    if done.ended is not None and done.ended.end == "failed":
        return done.ended.why
    if done.proof is None or done.proof.verdict != "refuted":
        return None
    worst = next(each for each in done.proof.servers if each.verdict == "refuted")
    return f"{worst.server}: {worst.evidence}"


def without(done: deploying.Outcome) -> str | None:
    """The servers that a rollout is done without."""
    return done.ended.why or None if done.ended is not None and done.ended.end == "done" else None


def doubt(done: deploying.Outcome) -> str | None:
    """What keeps it from being told."""
    if done.ended is not None and done.ended.end == "late":
        return f"not ready in time: {done.ended.why}"
    return None if done.proof is None else pools.doubt(done.proof)
