"""The ladder of a deployment: the same target with a lesser draft, or none.

No engine changes its method at run time, so a rung is a deployment of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from speccli.core.errors import UsageError
from speccli.core.kube.record import Record, Revision, recipe_of
from speccli.core.plan import Plan, plan
from speccli.core.recipes.model import Draft, Method, Pool, PoolName, Recipe

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
