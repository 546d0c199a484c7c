"""What the pool `standby` drafts with: a rung of the ladder, warm before it is needed."""

from __future__ import annotations

from dataclasses import replace

from speccli.core.errors import UsageError
from speccli.core.plan import plan
from speccli.core.recipes.model import Draft, Method, Recipe, Rung

_K = 3
_LOOKUP = (2, 4)
"""prompt_lookup_min and _max: a match of one token proposes too much (vllm#27379)."""
_BY_LOOKUP: frozenset[Method] = frozenset({"ngram", "ngram_gpu"})


def standby_draft(recipe: Recipe) -> Draft:
    """The draft of the rung `fallback.standby`; without one n-gram's where the engine takes it.

    Raises:
        UsageError: no rung of that method says which draft it loads.
    """
    method = recipe.fallback.standby
    if method is None:
        lookup = _lookup(recipe, "ngram", None)
        refused = plan(replace(recipe, draft=lookup, pools={})).line.refusals
        return Draft() if refused else lookup
    if method == "none":
        return Draft()
    rung = next((each for each in recipe.fallback.rungs if each.method == method), None)
    if method in _BY_LOOKUP:
        return _lookup(recipe, method, rung)
    if rung is None or rung.model is None:
        raise UsageError(
            f"{recipe.name}: fallback.standby {method}, and no rung of it names a model",
            hint=f"fallback.rungs [{{method: {method}, model: NAME}}], or fallback.standby ngram",
        )
    return Draft(method, rung.model, k=rung.k or recipe.draft.k, schedule=rung.schedule)


def _lookup(recipe: Recipe, method: Method, rung: Rung | None) -> Draft:
    least, most = _LOOKUP
    return Draft(
        method=method,
        k=(rung and rung.k) or recipe.draft.k or _K,
        schedule=rung.schedule if rung else None,
        prompt_lookup_min=least,
        prompt_lookup_max=most,
    )
