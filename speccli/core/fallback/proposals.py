"""Saying yes to a proposal: the same move as the watch would make, by a person."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from speccli.core.errors import UsageError
from speccli.core.fallback.audit import emit, entry
from speccli.core.fallback.carrying import Ended, came_to
from speccli.core.fallback.kept import Kept, KeptError, load, save
from speccli.core.fallback.policy import after
from speccli.core.fallback.standing import Standing, standing
from speccli.core.fallback.terms import Move

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

_AGAIN = 3
"""Times that something is written, where a watch writes at the same moment."""


def accept(
    cluster: Cluster, given: str | None, name: str, proposal: str, by: str, at: float
) -> Move:
    """Take a proposal up; from then on it stands no more. One that was cut short is gone on with.

    Args:
        cluster: Where the deployment is.
        given: Its namespace; None: the context's.
        name: The deployment.
        proposal: Its id.
        by: `user@host`.
        at: Unix seconds.

    Raises:
        UsageError: there is no such proposal, or it is outdated.
        KeptError: somebody else was faster.
    """
    namespace = given or cluster.namespace
    refused: KeptError | None = None
    for _ in range(_AGAIN):
        kept, now = load(cluster, namespace, name), standing(cluster, namespace, name, at)
        begun, taken = kept.state.under_way, kept.state.accepted_at
        if begun is not None and begun.id == proposal and taken is not None:
            if refused is None or taken == at:  # its answer did not come
                return begun
            raise refused  # another person was faster
        move = _still_stands(kept, now, name, proposal)
        told = entry("accepted", name, by, at, f"accepted: {move.why}", move)
        state = replace(kept.state, proposal=None, under_way=move, accepted_at=at)
        try:
            save(cluster, namespace, name, kept.after(state, told))
        except KeptError as error:
            refused = error
        else:
            return move
    assert refused is not None
    raise refused


def _still_stands(kept: Kept, now: Standing, name: str, proposal: str) -> Move:
    """The proposal, which was made for what is deployed now."""
    move, here = _named(kept.state.proposal, name, proposal), now.situation
    if here.busy is not None:
        raise UsageError(f"proposal {proposal}: {here.busy}", hint="wait until it is through")
    if here.revision != move.revision or here.ladder[here.at].name != move.source:
        raise UsageError(
            f"proposal {proposal} is outdated: it was made for {move.source} at revision "
            f"{move.revision}, and {here.ladder[here.at].name} at revision {here.revision} serves",
            hint=f"specctl fallback plan {name}",
        )
    return move


def standing_proposal(cluster: Cluster, given: str | None, name: str, proposal: str) -> Move:
    """A proposal as it stands; nothing is taken up.

    Raises:
        UsageError: there is no such proposal.
    """
    move = load(cluster, given or cluster.namespace, name).state.proposal
    return _named(move, name, proposal)


def _named(move: Move | None, name: str, proposal: str) -> Move:
    if move is not None and move.id == proposal:
        return move
    stands = f"the one that stands is {move.id}" if move else "none stands"
    raise UsageError(
        f"no proposal {proposal} for {name}: {stands}",
        hint="it was withdrawn or accepted since; specctl fallback plan shows what is so now",
    )


def concluded(
    cluster: Cluster, given: str | None, name: str, move: Move, ended: Ended, by: str, at: float
) -> None:
    """Write down how a move ended that a person carried.

    Raises:
        SpecctlError: it could not be written down; the move itself is as it is.
    """
    if ended.outcome is None:
        return
    namespace = given or cluster.namespace
    for left in reversed(range(_AGAIN)):
        kept, now = load(cluster, namespace, name), standing(cluster, namespace, name, at)
        made = came_to(move, ended, now, at, by)
        told = entry(made.outcome, name, by, at, ended.words, move, ended.seconds)
        under_way = kept.state.under_way
        mine = under_way is not None and under_way.id == move.id
        # What was begun since is another's: its end is not this one's to write.
        state = after(kept.state, made) if mine else kept.state.with_move(made)
        try:
            save(cluster, namespace, name, kept.after(state, told))
            break
        except KeptError:
            if not left:
                raise
    emit(cluster, told, namespace)
