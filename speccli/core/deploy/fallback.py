"""Falling back: the same target with a lesser draft, or none; and back again.

No engine changes its method at run time, so a step is a rolling restart: a deployment like any
other, with its own revision, trial, rollout and proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from speccli.core.deploy.asked import Asked, options_again
from speccli.core.deploy.local import restored as restored_here
from speccli.core.deploy.prepare import read_record, verdicts_of
from speccli.core.deploy.remove import restored
from speccli.core.errors import UsageError
from speccli.core.kube.record import Record, Revision, recipe_of
from speccli.core.manifests.options import RenderOptions
from speccli.core.plan import Plan, plan
from speccli.core.recipes.model import Draft, Method, Pool, PoolName, Recipe

if TYPE_CHECKING:
    from speccli.core.deploy.place import Here
    from speccli.core.kube.client import Cluster

STEPS: tuple[Method, ...] = ("ngram", "none")
"""What there is to fall back to, the smaller retreat first."""
_NGRAM_K = 3
_LOOKUP = (2, 4)
"""prompt_lookup_min and _max: a match of one token proposes too much (vllm#27379)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One way down."""

    method: Method
    recipe: Recipe
    plan: Plan
    gained_tokens: int | None
    """KV-cache tokens of a server that the draft gives back; None: not to be told."""
    refusals: tuple[str, ...]
    """Why this engine would not take it."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """Where a deployment stands, and where it can go."""

    record: Record
    recipe: Recipe
    down: tuple[Step, ...]
    back: Revision | None
    """The revision that fallbacks have led away from."""


def ladder(told: Record) -> Ladder:
    """The steps of a deployment. Nothing is changed, and nobody asked.

    Raises:
        UsageError: its recipe is not one that this version reads.
    """
    recipe = recipe_of(told.current)
    here = plan(recipe)
    down = tuple(_step(recipe, method, here) for method in _ways(recipe))
    return Ladder(told, recipe, down, origin(told))


def _ways(recipe: Recipe) -> Sequence[Method]:
    if recipe.draft.method == "none" and any(_drafts(pool) for pool in recipe.pools.values()):
        return STEPS[1:]  # a pool of its own may still draft
    return _below(recipe.draft.method)


def _drafts(pool: Pool) -> bool:
    return pool.draft is not None and pool.draft.method != "none"


def _below(method: Method) -> Sequence[Method]:
    if method == "none":
        return ()
    if method in {"ngram", "ngram_gpu"}:
        return STEPS[1:]
    return STEPS


def _step(recipe: Recipe, method: Method, here: Plan) -> Step:
    lesser = lessened(recipe, method)
    made = plan(lesser)
    known = made.memory is not None and here.memory is not None
    gained = made.memory.kv_tokens - here.memory.kv_tokens if known else None  # type: ignore[union-attr]
    return Step(method, lesser, made, gained, tuple(v.evidence for v in made.line.refusals))


def lessened(recipe: Recipe, method: Method) -> Recipe:
    """The recipe with another draft, all else as it is; no pool keeps a draft of its own."""
    k = recipe.draft.k
    recipe = replace(recipe, draft=Draft(), pools=_without_drafts(recipe))
    if method == "none":
        return recipe
    least, most = _LOOKUP
    draft = Draft(
        method="ngram",
        k=k or _NGRAM_K,
        prompt_lookup_min=least,
        prompt_lookup_max=most,
    )
    return replace(recipe, draft=draft)


def _without_drafts(recipe: Recipe) -> dict[PoolName, Pool]:
    return {name: replace(pool, draft=None) for name, pool in recipe.pools.items()}


def origin(told: Record) -> Revision | None:
    """The revision that a chain of fallbacks began at; None where there was none."""
    found, at = None, told.current
    for former in told.previous:
        if not _is_below(at, former):
            break
        found = at = former
    return found


def _is_below(lesser: Revision, greater: Revision) -> bool:
    """Whether one is a fallback from the other: alike but for the draft, and a step down."""
    try:
        low, high = recipe_of(lesser), recipe_of(greater)
    except UsageError:
        return False
    return lessened(low, "none") == lessened(high, "none") and low.draft.method in _ways(high)


def unfinished(found: Ladder, method: str | None) -> bool:
    """Whether the step that is asked for was begun, and is to be completed before another."""
    current = found.record.current
    begun = current.state in {"applying", "applied"} and current.restores is None
    return begun and found.back is not None and method in {None, found.recipe.draft.method}


def choose(found: Ladder, method: str | None) -> Step:
    """The step that is asked for; None: the smallest that this engine takes.

    Raises:
        UsageError: there is none, or not that one.
    """
    if not found.down:
        raise UsageError(
            f"{found.record.name} serves without speculation: there is nothing to fall back to",
            hint=f"specctl fallback restore {found.record.name}" if found.back else None,
        )
    names, now = [step.method for step in found.down], found.recipe.draft.method
    if method is not None and method not in names:
        raise UsageError(
            f"{found.record.name} drafts with {now}: {method} is no step down",
            hint=f"one of: {', '.join(names)}",
        )
    fit = [step for step in found.down if not step.refusals and method in {None, step.method}]
    if not fit:
        asked = next(step for step in found.down if method in {None, step.method})
        raise UsageError(f"{asked.method}: {asked.refusals[0]}")
    return fit[0]


def on_cluster(cluster: Cluster, given: str | None, name: str) -> tuple[Ladder, str]:
    """The ladder of a deployment on a cluster, and its namespace.

    Raises:
        UsageError: there is no such deployment.
    """
    namespace = given or cluster.namespace
    told = read_record(cluster, namespace, name)
    if told is None:
        raise UsageError(
            f"no deployment {name} in namespace {namespace} of {cluster.context}",
            hint="specctl list shows those there are",
        )
    return ladder(told), namespace


def on_this_machine(here: Here) -> Ladder:
    """The ladder of a local deployment.

    Raises:
        UsageError: there is none of that name.
    """
    told = here.record()
    if told is None:
        raise UsageError(f"no local deployment {here.name}", hint="specctl list")
    return ladder(told)


def down(found: Ladder, method: str | None, namespace: str | None) -> Asked:
    """The deployment that a step is; the one under way again, where it was cut short.

    A retreat is not held against rules about the target, which serves already; the cluster's own
    are asked all the same. `namespace` None: on this machine.

    Raises:
        UsageError: there is no such step.
    """
    current = found.record.current
    recipe = found.recipe if unfinished(found, method) else choose(found, method).recipe
    if namespace is None:
        options = RenderOptions(name=found.record.name)
        verdicts = plan(recipe).verdicts
    else:
        options = replace(options_again(current.options), name=found.record.name)
        verdicts = tuple(verdicts_of(recipe, options))
    codes = {v.code for v in verdicts if v.severity == "critical"}
    accept = tuple(dict.fromkeys((*current.accepted, *sorted(codes))))
    return Asked(recipe, options, namespace, accept, carried=accept)


def back(found: Ladder) -> int:
    """The number of the revision to restore.

    Raises:
        UsageError: no fallback led here.
    """
    current = found.record.current
    if current.restores is not None and current.state != "ready":
        return current.restores  # it was begun, and is to be completed
    if found.back is None:
        raise UsageError(
            f"no fallback led to revision {found.record.current.number} of {found.record.name}",
            hint=f"specctl rollback {found.record.name} brings any former revision back",
        )
    return found.back.number


__all__ = [
    "Ladder",
    "Step",
    "back",
    "choose",
    "down",
    "ladder",
    "on_cluster",
    "on_this_machine",
    "restored",
    "restored_here",
]
