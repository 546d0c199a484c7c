"""Carries a move down: to the warm standby, or to a rung by a rolling change; undone if refuted.

Each part of a move is a deployment with a revision of its own, and finds out by itself what is
left to do. So a move that was cut short anywhere is completed by the same call, and an API server
that is away for a while is waited for: a part is done again as it was, what is asked between parts
is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from speccli.core.bench.results import Result
from speccli.core.deploy.asked import Reporter
from speccli.core.errors import UsageError
from speccli.core.fallback import pools
from speccli.core.fallback.ladder import Ladder, choose, is_less
from speccli.core.fallback.moving import Connect, Mover, Terms
from speccli.core.fallback.ours import Ours
from speccli.core.fallback.outcome import Outcome
from speccli.core.fallback.pools import Warm
from speccli.core.fallback.restoring import Restored, restore
from speccli.core.fallback.retry import persistently
from speccli.core.fallback.rungs import standby_draft
from speccli.core.fallback.serving import Serving, pinned, serving
from speccli.core.fallback.ways import on_cluster

__all__ = ["Connect", "Outcome", "Restored", "go", "restore"]


def go(
    connect: Connect,
    namespace: str | None,
    name: str,
    rung: str | None,
    reporter: Reporter,
    *,
    accept: Sequence[str] = (),
    wait: bool = True,
    timeout_s: float | None = None,
    bench: Result | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Move a deployment down its ladder; the one under way again, where it was cut short.

    Args:
        connect: A cluster, each of whose calls may take so many seconds; None: the usual.
        namespace: None: the context's.
        name: The deployment.
        rung: Its name or method; None: the standby where there is one, else the smallest retreat.
        reporter: Who is told.
        accept: Critical findings of the cluster that keep nothing out.
        wait: Whether a rolling change is waited for and proven; a switch always is.
        timeout_s: For each rollout; None: by the pods' own budgets.
        bench: Of the rungs: the standby gets the servers for the speed that clients have now.
        clock: Seconds, for how long it took.
        sleep: Between looks.

    Raises:
        UsageError: there is no such deployment, or no such step.
        SpecctlError: the cluster refuses, does not answer within the deadline, or somebody else
            deploys meanwhile. The same call completes what was begun.
    """
    connect(None)  # who is not to be reached at all is not waited for
    terms = Terms(tuple(accept), wait, timeout_s, bench)
    ours = Ours(clock())
    chosen: list[Chosen] = []

    def once() -> Outcome:
        found, place = on_cluster(connect(None), namespace, name)
        ours.sees(found.record)
        mover = Mover(connect, serving(found, place), reporter, terms, ours, clock, sleep)
        way = _through(mover.here, chosen) or choose_way(found, mover, rung)
        chosen.append(way)
        return _carried(mover, way)

    return persistently(once, reporter, clock=clock, sleep=sleep)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which way down there is."""

    kind: Literal["complete", "switch", "behind", "roll"]
    """complete: a switch that was begun. behind: the main pool, while the standby serves."""
    to: Serving
    """What is to serve."""
    former: Serving
    seen: Warm | None = None
    """The standby, where it is to take the traffic."""


def choose_way(found: Ladder, mover: Mover, rung: str | None) -> Chosen:
    """The way that there is now. The standby is asked; nothing is changed.

    Raises:
        UsageError: there is no such step.
    """
    here, before = mover.here, _begun_from(found, mover.here, rung)
    if before is not None and before.traffic != here.traffic:
        return Chosen("complete", here, before)
    if before is not None:
        return Chosen("behind" if here.traffic == "standby" else "roll", here, before)
    if _may_switch(found, here, rung):
        seen = mover.warm("standby")
        if seen.sick and seen.answers and not pools.serves(mover.cluster, here):
            mover.note(f"the standby is taken, as no other server answers: {seen.sick}")
            seen = replace(seen, sick=None)
        if seen.sick is None:
            options = replace(here.options, traffic="standby")
            return Chosen("switch", replace(here, options=options), here, seen)
        mover.note(f"the standby is not taken: {seen.sick}")
        rung = _below_standby(found, here, seen.sick)
    recipe = choose(found, rung).recipe
    if here.has_standby:
        recipe = pinned(recipe, here)
    to = replace(here, recipe=recipe)
    return Chosen("behind" if here.traffic == "standby" else "roll", to, here)


def _through(here: Serving, chosen: Sequence[Chosen]) -> Chosen | None:
    """The move that this call has made, where what it asked afterwards was not answered.

    To choose again would be another step.
    """
    for way in reversed(chosen):
        traffic = "main" if way.kind == "behind" else way.to.traffic
        if (here.recipe, here.traffic) == (way.to.recipe, traffic):
            moved = here.traffic != way.former.traffic
            return Chosen("complete" if moved else "roll", here, way.former)
    return None


def _carried(mover: Mover, way: Chosen) -> Outcome:
    if way.kind == "complete":
        return mover.completed(way.former)
    if way.seen is not None:
        return mover.switch("standby", way.seen)
    return mover.behind(way.to.recipe) if way.kind == "behind" else mover.roll(way.to, way.former)


def _begun_from(found: Ladder, here: Serving, rung: str | None) -> Serving | None:
    """What served before a move that is not through, and is to be completed before another.

    None: there is none, or another step is asked for.
    """
    current, before = found.record.current, found.record.previous
    begun = current.state in {"applying", "applied"} and current.restores is None
    if not begun or current.trial is not None or found.back is None:
        return None
    names = {step.name for step in found.rungs if step.recipe.draft == here.draft}
    former = next((each for each in before if each.trial is None), None)
    if former is None or rung not in {None, here.draft.method, *names}:
        return None
    told = serving(found, here.namespace, former)
    if told.recipe == here.recipe and told.traffic == here.traffic:
        return None  # servers were raised, and nothing else was begun
    return replace(told, options=replace(told.options, raised={}))


def _may_switch(found: Ladder, here: Serving, rung: str | None) -> bool:
    """Whether the standby is what is asked for, and a step down."""
    if not here.has_standby or here.traffic == "standby":
        return False
    draft = standby_draft(here.recipe)
    if rung is None:
        return is_less(draft, here.draft)
    step = found.step(rung)
    # By its kind: K of a standby may be that of another rung.
    kind = None if step is None else (step.method, step.recipe.draft.model)
    return kind == (draft.method, draft.model)


def _below_standby(found: Ladder, here: Serving, sick: str) -> str:
    """The next rung that is not what the standby does.

    Raises:
        UsageError: there is none.
    """
    drafts = standby_draft(here.recipe)
    at = next((i for i, s in enumerate(found.down) if s.recipe.draft == drafts), -1)
    below = [s for s in found.down[at + 1 :] if not s.refusals and not s.own]
    if not below:
        raise UsageError(
            f"the standby of {here.name} is not well ({sick}), and there is no lower rung",
            hint=f"see why: specctl status {here.name}",
        )
    return below[0].name
