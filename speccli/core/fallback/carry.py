"""Carries a move down: to the warm standby, or to a rung by a rolling change; undone if refuted.

Each part of a move is a deployment with a revision of its own, and finds out by itself what is
left to do. So a move that was cut short anywhere is completed by the same call, and an API server
that is away for a while is waited for by beginning again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from speccli.core.deploy.asked import Reporter
from speccli.core.errors import UsageError
from speccli.core.fallback.ladder import Ladder, choose, unfinished
from speccli.core.fallback.moving import Connect, Mover, Outcome, Terms
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
        clock: Seconds, for how long it took.
        sleep: Between looks.

    Raises:
        UsageError: there is no such deployment, or no such step.
        SpecctlError: the cluster refuses, does not answer within the deadline, or somebody else
            deploys meanwhile. The same call completes what was begun.
    """
    connect(None)  # who is not to be reached at all is not waited for
    terms = Terms(tuple(accept), wait, timeout_s)
    began = clock()

    def once() -> Outcome:
        found, place = on_cluster(connect(None), namespace, name)
        mover = Mover(connect, serving(found, place), reporter, terms, began, clock, sleep)
        return _down(found, mover, rung)

    return persistently(once, reporter, clock=clock, sleep=sleep)


def _down(found: Ladder, mover: Mover, rung: str | None) -> Outcome:
    """By whichever way there is."""
    here = mover.here
    if former := _before_switch(found, here, rung):
        return mover.completed(former)
    if _may_switch(found, here, rung):
        seen = mover.warm("standby")
        if seen.sick is None:
            return mover.switch("standby", seen)
        mover.note(f"the standby is not taken: {seen.sick}")
        rung = _below_standby(found, here, seen.sick)
    again = unfinished(found, rung)
    former = _previous(found, here) if again else here
    recipe = here.recipe if again else choose(found, rung).recipe
    if here.traffic == "standby":
        return mover.behind(pinned(recipe, here))
    return mover.roll(recipe, former)


def _before_switch(found: Ladder, here: Serving, rung: str | None) -> Serving | None:
    """What served before a switch to the standby that is not through; None: there is none."""
    current = found.record.current
    begun = current.state in {"applying", "applied"} and current.restores is None
    before = _previous(found, here)
    if here.traffic != "standby" or not begun or before is None or current.trial is not None:
        return None
    lesser = before.traffic == "main" and before.recipe == here.recipe
    return before if lesser and rung in {None, standby_draft(here.recipe).method} else None


def _previous(found: Ladder, here: Serving) -> Serving | None:
    """The revision before the one that serves, without servers that were raised for a move."""
    before = next((r for r in found.record.previous if r.trial is None), None)
    if before is None:
        return None
    told = serving(found, here.namespace, before)
    return replace(told, options=replace(told.options, raised={}))


def _may_switch(found: Ladder, here: Serving, rung: str | None) -> bool:
    """Whether the standby is what is asked for."""
    if not here.has_standby or here.traffic == "standby":
        return False
    if rung is None:
        return True
    step = found.step(rung)
    return step is not None and step.recipe.draft == standby_draft(here.recipe)


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
