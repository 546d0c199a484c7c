"""The ladder of a deployment: where it stands, what is below, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from speccli.core.errors import UsageError
from speccli.core.fallback.rungs import (
    LOOKUPS,
    Ranges,
    Step,
    draft_words,
    lessened,
    standby_draft,
    steps,
)
from speccli.core.kube.record import Record, Revision, recipe_of
from speccli.core.recipes.model import Draft, Pool, PoolName, Recipe


@dataclass(frozen=True, slots=True)
class Ladder:
    """Where a deployment stands, and where it can go."""

    record: Record
    recipe: Recipe
    """Of its current revision."""
    top: Recipe
    """Where fallbacks began: whose rungs these are."""
    serving: Draft
    """What takes the requests: the recipe's draft, or the standby's where that has the traffic."""
    rungs: tuple[Step, ...]
    """All under the top."""
    down: tuple[Step, ...]
    """Those below where it stands."""
    back: Revision | None
    """The revision that fallbacks have led away from."""

    @property
    def typed(self) -> str:
        """Its name as a command takes it: on a cluster with the namespace."""
        namespace = self.record.current.options.get("namespace")
        return f"{self.record.name} -n {namespace}" if namespace else self.record.name

    def step(self, name: str) -> Step | None:
        """The rung below of this name, or the first of this method."""
        named = [step for step in self.down if step.name == name]
        named += [step for step in self.down if step.method == name]
        return named[0] if named else None


def ladder(told: Record, schedule: Ranges | None = None) -> Ladder:
    """The ladder of a deployment. Nothing is changed, and nobody asked.

    Args:
        told: Its record.
        schedule: K by batch that a bench gave, in place of half of K.

    Raises:
        UsageError: its recipe is not one that this version reads.
    """
    current = standing(told)
    recipe, back = recipe_of(current), origin(told)
    top = recipe if back is None else recipe_of(back)
    serving = _serving(current, recipe)
    rungs = steps(top, schedule)
    return Ladder(told, recipe, top, serving, rungs, _below(rungs, recipe, serving), back)


def _serving(revision: Revision, recipe: Recipe) -> Draft:
    return standby_draft(recipe) if on_standby(revision) else recipe.draft


def on_standby(revision: Revision) -> bool:
    """Whether the pool standby has the traffic."""
    return revision.options.get("traffic") == "standby"


def _below(rungs: tuple[Step, ...], recipe: Recipe, serving: Draft) -> tuple[Step, ...]:
    for i, step in enumerate(rungs):
        if step.recipe.draft == serving and (serving != recipe.draft or step.recipe == recipe):
            return rungs[i + 1 :]
    if serving.method == "none":  # a pool of its own may still draft
        off = (step for step in rungs if step.method == "none")
        return tuple(s for s in off if _beside_standby(s.recipe) != _beside_standby(recipe))
    return tuple(step for step in rungs if is_less(step.recipe.draft, serving))


def is_less(low: Draft, high: Draft) -> bool:
    """Whether one draft is a retreat from the other, as far as their kinds tell."""
    if low.method == "none" or high.method == "none":
        return high.method != "none"
    if low.method == high.method and low.model == high.model:
        return low.k < high.k or (low.schedule is not None and high.schedule is None)
    return high.method not in LOOKUPS


def origin(told: Record) -> Revision | None:
    """The revision that a chain of fallbacks began at; None where there was none."""
    found, at = None, standing(told)
    for former in told.previous:
        if former.trial is not None or former is at:
            continue
        if _is_below(at, former):
            found = at = former
        elif _same(at, former):
            at = former  # servers were raised, or a canary was taken away again
        else:
            break
    return found


def standing(told: Record) -> Revision:
    """The revision that serves, whatever canary is tried beside it."""
    every = (told.current, *told.previous)
    return next((each for each in every if each.trial is None), told.current)


def _same(one: Revision, other: Revision) -> bool:
    return one.hash == other.hash and on_standby(one) == on_standby(other)


def _is_below(lesser: Revision, greater: Revision) -> bool:
    """Whether one is a fallback from the other: alike but for what drafts, and a step down."""
    try:
        low, high = recipe_of(lesser), recipe_of(greater)
    except UsageError:
        return False
    if _bare(low) != _bare(high):
        return False
    if low == high:
        moved = on_standby(lesser) - on_standby(greater)
        # To the standby is down. From it to the main pool may be a return, or further down.
        depths = _depth(_serving(lesser, low)) - _depth(_serving(greater, high))
        return moved > 0 or (moved < 0 and depths > 0)
    if low.draft == high.draft:
        return lessened(high, low.draft.method) == low  # its pools drafted
    if low.draft.method in {"none", *LOOKUPS}:
        return is_less(low.draft, high.draft)
    return any(step.own and step.recipe.draft == low.draft for step in steps(high))


def _depth(draft: Draft) -> int:
    """How far down the kind of a draft is: one with weights, from the prompt, none."""
    return 2 if draft.method == "none" else int(draft.method in LOOKUPS)


def _bare(recipe: Recipe) -> Recipe:
    """Without what drafts."""
    return lessened(_beside_standby(recipe), "none")


def _beside_standby(recipe: Recipe) -> Recipe:
    """Without its standby: one that serves keeps the draft it has while the others change."""
    pools: dict[PoolName, Pool] = {n: p for n, p in recipe.pools.items() if n != "standby"}
    return replace(recipe, pools=pools)


def unfinished(found: Ladder, name: str | None) -> bool:
    """Whether the step that is asked for was begun, and is to be completed before another."""
    current = found.record.current
    begun = current.state in {"applying", "applied"} and current.restores is None
    here = {found.recipe.draft.method, *_names(found)}
    return begun and found.back is not None and name in {None, *here}


def _names(found: Ladder) -> list[str]:
    return [step.name for step in found.rungs if step.recipe.draft == found.recipe.draft]


def choose(found: Ladder, name: str | None) -> Step:
    """The step that is asked for, by its name or its method.

    None: the smallest that nothing speaks against, and that is not the same draft with less of it:
    whoever asks for no rung has a draft that is bad.

    Raises:
        UsageError: there is none, or not that one.
    """
    if not found.down:
        raise UsageError(
            f"{found.record.name} serves without speculation: there is nothing to fall back to",
            hint=f"specctl fallback restore {found.typed}" if found.back else None,
        )
    if name is None:
        fit = [step for step in found.down if not step.refusals and not step.own]
        if fit:
            return fit[0]
        refused = next(step for step in found.down if step.refusals)
        raise UsageError(f"{refused.name}: {refused.refusals[0]}")
    step = found.step(name)
    if step is None:
        raise UsageError(
            f"{found.record.name} drafts with {draft_words(found.serving)}: {name} is no step down",
            hint=f"one of: {', '.join(each.name for each in found.down)}",
        )
    if step.refusals:
        raise UsageError(f"{name}: {step.refusals[0]}")
    return step
