"""The rungs of a recipe: the same target with less of its draft, with a lesser one, with none.

No engine changes its method at run time, so a rung is a deployment of its own: a whole recipe with
its plan, and with what speaks against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from speccli.core.fallback.known_bad import refusals
from speccli.core.plan import Plan, plan
from speccli.core.recipes.model import Draft, Method, Pool, PoolName, Recipe, Rung

LOOKUPS: frozenset[Method] = frozenset({"ngram", "ngram_gpu"})
"""Methods that propose what stood in the prompt: no weights, no cache."""
STEPS: tuple[Method, ...] = ("ngram", "none")
"""What there is to fall back to with any target."""
Ranges = tuple[tuple[int, int, int], ...]
_LOOKUP_K = 3
_LOOKUP = (2, 4)
"""prompt_lookup_min and _max: a match of one token proposes too much (vllm#27379)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One way down."""

    name: str
    """`k1`, `schedule`, `ngram`, `none`: what `--rung` takes."""
    recipe: Recipe
    plan: Plan
    own: bool
    """Whether it is the recipe's own draft with less of it: what ails the draft ails this too."""
    gained_tokens: int | None
    """KV-cache tokens of a server that the draft gives back; None: not to be told."""
    refusals: tuple[str, ...]
    """Why it would not run, or is known to go wrong."""

    @property
    def method(self) -> Method:
        """What would draft."""
        return self.recipe.draft.method

    @property
    def words(self) -> str:
        """`eagle3, K = 1`."""
        return draft_words(self.recipe.draft)


def draft_words(draft: Draft) -> str:
    """`eagle3, K = 3`; `eagle3, K = 3 … 1 by batch`; `no speculation`."""
    if draft.method == "none":
        return "no speculation"
    if draft.schedule:
        ks = " … ".join(str(k) for k in dict.fromkeys(k for _, _, k in draft.schedule))
        return f"{draft.method}, K = {ks} by batch"
    return f"{draft.method}, K = {draft.k}" if draft.k else draft.method


def steps(recipe: Recipe, schedule: Ranges | None = None) -> tuple[Step, ...]:
    """Every rung under a recipe, the smallest retreat first. Nothing is asked.

    Args:
        recipe: Where the ladder begins.
        schedule: K by batch that a bench gave; it stands in for half of K where nothing is set.
    """
    here = plan(recipe)
    found = _made(recipe, here, _usual(recipe, schedule))
    if schedule and found and found[0].recipe.draft.schedule and found[0].refusals:
        found = _made(recipe, here, _usual(recipe, None))  # this engine takes no schedule
    return found


def _usual(recipe: Recipe, schedule: Ranges | None) -> tuple[Rung, ...]:
    """The recipe's rungs, else less of K (or K by batch), n-gram, none."""
    if recipe.fallback.rungs:
        return recipe.fallback.rungs
    draft, off = recipe.draft, Rung(method="none")
    if draft.method == "none":  # a pool of its own may still draft
        return (off,) if any(map(_drafts, _others(recipe))) else ()
    if draft.method in {*LOOKUPS, "suffix"}:
        return (off,)
    ngram = Rung(method="ngram")
    if schedule:
        return (Rung(schedule=schedule), ngram, off)
    return (Rung(k=draft.k // 2), ngram, off) if draft.k > 1 else (ngram, off)


def _others(recipe: Recipe) -> list[Pool]:
    """Pools that may draft as badly as the main one."""
    return [pool for name, pool in recipe.pools.items() if name != "standby"]


def _drafts(pool: Pool) -> bool:
    return pool.draft is not None and pool.draft.method != "none"


def _made(recipe: Recipe, here: Plan, rungs: Sequence[Rung]) -> tuple[Step, ...]:
    made: list[Step] = []
    for rung in rungs:
        draft = draft_of(recipe, rung)
        own = is_own(recipe, rung)
        lesser = with_draft(recipe, draft)
        planned = plan(lesser)
        known = planned.memory is not None and here.memory is not None
        gained = planned.memory.kv_tokens - here.memory.kv_tokens if known else None  # type: ignore[union-attr]
        name = _name(draft, own=own, taken=[step.name for step in made])
        made.append(Step(name, lesser, planned, own, gained, tuple(refusals(planned, here))))
    return tuple(made)


def _name(draft: Draft, *, own: bool, taken: Sequence[str]) -> str:
    name = ("schedule" if draft.schedule else f"k{draft.k}") if own else draft.method
    if name in taken:
        name = f"{draft.method}-k{draft.k}"
    return name if name not in taken else f"{name}-{len(taken) + 1}"


def is_own(recipe: Recipe, rung: Rung) -> bool:
    """Whether the rung is the recipe's draft itself, with another K."""
    draft = recipe.draft
    same = rung.method in {None, draft.method} and rung.model in {None, draft.model}
    return same and draft.method != "none"


def draft_of(recipe: Recipe, rung: Rung) -> Draft:
    """What a rung of this recipe drafts with."""
    method = rung.method or recipe.draft.method
    if method == "none":
        return Draft()
    k = rung.k or max((k for _, _, k in rung.schedule or ()), default=0)
    if is_own(recipe, rung):
        return _less(recipe.draft, k or recipe.draft.k, rung.schedule)
    if method in LOOKUPS:
        least, most = _LOOKUP
        return Draft(
            method=method,
            k=k or recipe.draft.k or _LOOKUP_K,
            schedule=rung.schedule,
            prompt_lookup_min=least,
            prompt_lookup_max=most,
        )
    return Draft(method=method, model=rung.model, k=k or recipe.draft.k, schedule=rung.schedule)


def _less(draft: Draft, k: int, schedule: Ranges | None) -> Draft:
    """The same draft with less of K; its own schedule stays, under that K."""
    if schedule is None and draft.schedule is not None:
        capped = tuple((first, last, min(k, each)) for first, last, each in draft.schedule)
        schedule = capped if len({each for _, _, each in capped}) > 1 else None
    measured_at = draft.acceptance_k
    if draft.acceptance_length is not None:
        measured_at = measured_at or draft.k or None
    return replace(draft, k=k, schedule=schedule, acceptance_k=measured_at)


def with_draft(recipe: Recipe, draft: Draft) -> Recipe:
    """The recipe with another draft, all else as it is; no pool keeps a bad draft of its own."""
    pools: dict[PoolName, Pool] = {
        name: pool if name == "standby" else replace(pool, draft=None)
        for name, pool in recipe.pools.items()
    }
    return replace(recipe, draft=draft, pools=pools)


def lessened(recipe: Recipe, method: Method) -> Recipe:
    """The recipe with n-gram, or without a draft."""
    return with_draft(recipe, draft_of(recipe, Rung(method=method)))


def standby_draft(recipe: Recipe) -> Draft:
    """What the pool `standby` drafts with: its own, the rung of `fallback.standby`, or the default.

    The default is n-gram under a draft, where nothing speaks against it; else none.
    """
    pool = recipe.pools.get("standby")
    if pool is not None and pool.draft is not None:
        return pool.draft
    wanted = recipe.fallback.standby
    if wanted is not None:
        own = recipe.draft.method
        named = (each for each in recipe.fallback.rungs if (each.method or own) == wanted)
        return draft_of(recipe, next(named, Rung(method=wanted)))
    if recipe.draft.method in {"none", "suffix", *LOOKUPS}:
        return Draft()  # a standby that does the same is none
    lookup = lessened(replace(recipe, pools={}), "ngram")
    return Draft() if tuple(refusals(plan(lookup), plan(recipe))) else lookup.draft
