"""Where a deployment may stand: short forms for the policy's tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from speccli.core.fallback.policy import decide
from speccli.core.fallback.quiet import Quiet
from speccli.core.fallback.terms import Decision, Sign, Situation, State, Step, Terms

NOON = 1_795_953_600.0
"""2026-11-29 12:00 UTC, a Sunday."""
LADDER = (
    Step("eagle3", "eagle3", 5, own=True),
    Step("eagle3-k2", "eagle3", 2, own=True),
    Step("ngram", "ngram", 3),
    Step("off", "none"),
)
AUTO = Terms(auto=True)


def standing(at: int = 0, *signs: Sign, **more: Any) -> Situation:
    told = Situation("c1", 7, LADDER, at, signs)
    return replace(told, **more)


def sign(code: str = "LOW_ACCEPTANCE", severity: str = "warning", **more: Any) -> Sign:
    return Sign(code, severity, "acceptance 0.21", **more)


def held(
    situation: Situation,
    terms: Terms = AUTO,
    state: State | None = None,
    *,
    at: float = NOON,
    lasting: float = 301.0,
    every: float = 30.0,
) -> tuple[Decision, State, float]:
    """The same situation, looked at for so long; the last decision."""
    state, ends = State() if state is None else state, at + lasting
    while True:
        decision, state = decide(state, situation, terms, at)
        if at >= ends:
            return decision, state, at
        at = min(at + every, ends)


def nights() -> Quiet:
    return Quiet.of(("22:00-06:00",), "Europe/Berlin")
