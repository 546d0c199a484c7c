"""Whether a move that was begun, here or by another leader, is still the one to be completed."""

from __future__ import annotations

from speccli.core.fallback.kept import Kept
from speccli.core.fallback.refusals import is_held
from speccli.core.fallback.standing import Standing
from speccli.core.fallback.terms import LASTS_S, Move

_BEGUN = frozenset({"begun", "continued", "accepted"})


def outdated(kept: Kept, now: Standing, move: Move, at: float) -> str | None:
    """Why it is not gone on with; None: it is. What is through already always is.

    Args:
        kept: What is remembered: who has carried it is in the audit.
        now: What stands.
        move: What was begun.
        at: Unix seconds.
    """
    if now.situation.configuration != (move.configuration or kept.state.configuration):
        return "its draft or the recipe has changed since"
    own = {_host(told.by) for told in kept.audit if told.id == move.id and told.what in _BEGUN}
    record = now.found.record
    for revision in (record.current, *record.previous):
        if revision.number > move.revision and _host(revision.by) not in own:
            return f"revision {revision.number} was made by {revision.by} since"
    if not through(now, move) and move.is_over(at):
        return f"it is more than {LASTS_S / 60:g} min old"
    return None


def through(now: Standing, move: Move) -> bool:
    """Whether nothing is left of it to do but to say so."""
    here, current = now.situation, now.found.record.current
    if here.busy is not None:
        return False
    if move.kind == "restore":
        made = current.restores is not None and current.state == "ready"
        return here.at == 0 and made and not is_held(current)
    names = [step.name for step in here.ladder]
    return move.target in names and here.at >= names.index(move.target)


def _host(by: str) -> str:
    """Of `user@host`, or of a watch's `host_id`."""
    return by.rpartition("@")[2] if "@" in by else by.rpartition("_")[0]
