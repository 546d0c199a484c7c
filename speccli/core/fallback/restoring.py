"""Brings a draft back through a canary: tried in the traffic of what serves, then for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from speccli.core.deploy.asked import Reporter
from speccli.core.errors import ExitCode
from speccli.core.fallback.moving import Connect, Outcome

Verdict = Literal["passed", "refused", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Restored:
    """How a restore went."""

    name: str
    namespace: str
    verdict: Verdict
    words: str
    """All of it in a line."""
    refusals: int = 0
    """How often this configuration has been refused, this time included."""
    moved: Outcome | None = None
    """The move that a canary which passed came to."""

    @property
    def exit_code(self) -> ExitCode:
        """The contract's."""
        if self.moved is not None:
            return self.moved.exit_code
        codes = {"refused": ExitCode.CRITICAL, "inconclusive": ExitCode.UNKNOWN}
        return codes.get(self.verdict, ExitCode.OK)


def restore(
    connect: Connect,
    namespace: str | None,
    name: str,
    reporter: Reporter,
    *,
    force: bool = False,
    accept: Sequence[str] = (),
    timeout_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Restored:
    """Bring back what fallbacks led away from, once a canary of it has passed."""
    raise NotImplementedError
