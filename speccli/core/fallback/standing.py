"""Where a deployment stands, read from its cluster: what serves, what is below, what is warm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from speccli.core.fallback import terms
from speccli.core.fallback.ladder import Ladder, ladder
from speccli.core.fallback.measured import Bench, passed_over
from speccli.core.fallback.refusals import configuration, refusals
from speccli.core.fallback.rungs import standby_draft
from speccli.core.fallback.serving import Serving, serving
from speccli.core.fallback.ways import recorded
from speccli.core.kube.progress import workload_of
from speccli.core.kube.record import Record
from speccli.core.manifests.names import pool_name
from speccli.core.recipes.model import Draft

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

_BUSY_S = 3600.0
"""How long a revision that is not through counts as under way: a run that was killed never is."""


@dataclass(frozen=True, slots=True)
class Label:
    """What windows are labelled by: numbers of one are never held against those of another."""

    pool: str
    method: str
    k: int
    model: str | None
    revision: str | None
    """Of the draft's weights."""
    target: str | None = None
    """Of the target's weights: a draft that was left behind by it is another pair."""

    def __str__(self) -> str:
        """`main-eagle3-k5`."""
        return f"{self.pool}-{self.method}" + (f"-k{self.k}" if self.k else "")


@dataclass(frozen=True, slots=True)
class Standing:
    """What was read of a deployment."""

    found: Ladder
    here: Serving
    label: Label
    own: bool
    """Whether what drafts is the recipe's draft, or that with less of it."""
    situation: terms.Situation
    """Without what was found."""


class Stand:
    """Reads where one deployment stands, again and again; its plans are made once a revision."""

    def __init__(self, namespace: str | None, name: str) -> None:
        """`namespace`: None: the context's."""
        self._place, self._name = namespace, name
        self._known: Ladder | None = None

    def read(self, cluster: Cluster, at: float) -> Standing:
        """Read it; nothing is changed. `at`: Unix seconds.

        Raises:
            UsageError: there is no such deployment, or its recipe is of another version.
            ClusterError: the cluster cannot be asked.
        """
        place = self._place or cluster.namespace
        told = recorded(cluster, place, self._name)
        if self._known is None or self._known.record != told:
            self._known = ladder(told)
        return _standing(cluster, self._known, place, at)


def standing(cluster: Cluster, namespace: str | None, name: str, at: float) -> Standing:
    """The same, once."""
    return Stand(namespace, name).read(cluster, at)


def _standing(cluster: Cluster, found: Ladder, place: str, at: float) -> Standing:
    here = serving(found, place)
    of = configuration(found.top)
    past = refusals(found.record, of)
    steps = (_top(found), *(_step(found, i) for i in range(len(found.rungs))))
    situation = terms.Situation(
        configuration=of,
        revision=here.revision.number,
        ladder=steps,
        at=_at(found),
        busy=_busy(found.record, at),
        standby=_standby(cluster, found, here),
        refused=past.count,
        refused_at=_seconds(past.last),
    )
    draft = found.serving
    return Standing(found, here, _label(here, draft), steps[situation.at].own, situation)


def weighed(now: Standing, bench: Bench) -> terms.Situation:
    """Where it stands, with rungs passed over that a lower one was measured to be faster than.

    As `fallback plan` does it; a warm standby is not passed over.
    """
    here = now.situation
    steps = list(here.ladder)
    able = [i for i in range(here.at + 1, len(steps)) if steps[i].refusal is None]
    drafts = [now.found.rungs[i - 1].recipe.draft for i in able]
    for place, i in enumerate(able):
        passed = passed_over(bench, drafts, place, now.found.serving)
        if passed is not None and i != here.standby:
            steps[i] = replace(steps[i], refusal=passed)
    return replace(here, ladder=tuple(steps))


def top_label(found: Ladder) -> Label:
    """Of the recipe's own draft, when it serves."""
    draft, target = found.top.draft, found.top.target
    return Label("main", draft.method, draft.k, draft.model, draft.revision, target.revision)


def _label(here: Serving, draft: Draft) -> Label:
    target = here.recipe.target.revision
    return Label(here.traffic, draft.method, draft.k, draft.model, draft.revision, target)


def _top(found: Ladder) -> terms.Step:
    draft = found.top.draft
    return terms.Step(
        draft.method, draft.method, draft.k, draft.schedule is not None, own=found.top.speculates
    )


def _step(found: Ladder, i: int) -> terms.Step:
    step = found.rungs[i]
    draft = step.recipe.draft
    refusal = step.refusals[0] if step.refusals else None
    return terms.Step(
        step.name, draft.method, draft.k, draft.schedule is not None, refusal, step.own
    )


def _at(found: Ladder) -> int:
    """0: the recipe's own draft; else one more than the place among the rungs."""
    if not found.down:
        return len(found.rungs)
    return found.rungs.index(found.down[0])


def _seconds(at: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time; None where it is none."""
    try:
        return None if at is None else datetime.fromisoformat(at).timestamp()
    except ValueError:
        return None


def _busy(record: Record, at: float) -> str | None:
    current = record.current
    if current.state not in {"applying", "applied"} and current.trial is None:
        return None
    if at - (_seconds(current.at) or at) > _BUSY_S:
        return None
    what = "is being deployed" if current.trial is None else "is tried in a canary"
    return f"revision {current.number} {what} by {current.by}"


def _standby(cluster: Cluster, found: Ladder, here: Serving) -> int | None:
    """The rung that is kept warm, if a server of it is ready and has not the traffic already."""
    if not here.has_standby or here.traffic == "standby":
        return None
    name = pool_name(here.name, "standby")
    live = cluster.get("apps/v1", "Deployment", name, here.namespace)
    if live is None or not workload_of(live).available:
        return None
    warm = standby_draft(found.recipe)
    drafts = [step.recipe.draft for step in found.rungs]
    return drafts.index(warm) + 1 if warm in drafts else None
