"""What people are told of moves, through the channels of `alert`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speccli.core.alert.verdict import Verdict, Word
from speccli.core.fallback.terms import Decision, Propose, Situation, State, Stay
from speccli.core.findings.base import Finding, Severity

PROPOSED = "FALLBACK_PROPOSED"
BELOW = "FALLEN_BACK"
STUCK = "FALLBACK_STUCK"
_STUCK = frozenset({"bottom", "exhausted", "stays_down"})


def accept_command(name: str, namespace: str, move_id: str) -> str:
    """The one command that says yes."""
    return f"specctl fallback apply {name} --proposal {move_id} -n {namespace}"


def notices(
    decision: Decision, state: State, now_is: Situation, name: str, namespace: str
) -> tuple[Finding, ...]:
    """What is to be known now; each goes when it is over."""
    found: list[Finding] = []
    move = state.proposal
    if move is not None:
        words = decision.words if isinstance(decision, Propose) else "it waits for a yes"
        found.append(
            Finding(
                PROPOSED,
                "warning",
                name,
                f"proposal {move.id}: {move.source} → {move.target}; {move.why}",
                words,
                accept_command(name, namespace, move.id),
                move.at,
            )
        )
    if now_is.at > 0:
        rung, top = now_is.ladder[now_is.at].name, now_is.ladder[0].name
        words = decision.words if isinstance(decision, Stay) else "see the last moves"
        found.append(
            Finding(
                BELOW,
                "warning",
                name,
                f"{rung} serves in place of {top}",
                words,
                f"mend the draft, then specctl fallback restore {name} -n {namespace}",
                state.since,
            )
        )
    if isinstance(decision, Stay) and decision.why in _STUCK:
        severity: Severity = "warning" if decision.why == "stays_down" else "critical"
        found.append(
            Finding(
                STUCK,
                severity,
                name,
                decision.words,
                "nothing more is done without a person",
                f"specctl fallback plan {name} -n {namespace}",
            )
        )
    return tuple(found)


def as_verdict(looked: Verdict, found: Sequence[Finding]) -> Verdict:
    """The look with what is to be told in place of its findings."""
    word: Word = "critical" if any(f.severity == "critical" for f in found) else "warning"
    if not found:
        word = "ok"
    message = found[0].evidence if found else "nothing to tell"
    return replace(looked, word=word, message=message, findings=tuple(found), changes=())
