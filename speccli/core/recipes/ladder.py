"""The section `fallback` of a recipe, held against the rest: what would only show in a bad hour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speccli.core.engines.vllm_speculative import NEEDS_MODEL, schedule_problems
from speccli.core.errors import UsageError
from speccli.core.fallback.quiet import Quiet
from speccli.core.recipes.marks import Marks, Path_
from speccli.core.recipes.model import Fallback, Method, Recipe, Rung
from speccli.core.recipes.strict import wrong
from speccli.core.units import seconds

_LOOKUPS: frozenset[Method] = frozenset({"ngram", "ngram_gpu", "suffix"})
_WITH_MODEL = NEEDS_MODEL | {"p-eagle"}
_OWN, _MODEL, _LOOKUP, _OFF = range(4)
"""How far down a rung is: the same draft, another one, one from the prompt, none."""
Problem = tuple[Path_, str]


def check(recipe: Recipe, marks: Marks) -> None:
    """Refuse a ladder that is none.

    Raises:
        UsageError: one line, with the place and what to write.
    """
    told, base = recipe.fallback, ("fallback",)
    for path, what in (*_times(told), *_rungs(recipe), *_standby(recipe)):
        raise wrong(marks, (*base, *path), what)


def _times(told: Fallback) -> Iterator[Problem]:
    for key in ("cool_down", "hold", "restore_after"):
        text: str = getattr(told, key)
        try:
            seconds(text)
        except UsageError as error:
            yield (key,), f"is {text!r}, which is no duration; {error.hint}"
    for place, span in enumerate(told.quiet):
        try:
            Quiet.of([span], "UTC")
        except UsageError:
            yield ("quiet", str(place)), f"is {span!r}; write HH:MM-HH:MM, as 22:00-06:00"
    try:
        Quiet.of([], told.time_zone)
    except UsageError as error:
        yield ("time_zone",), f"is {told.time_zone!r}, which is not known here; {error.hint}"


def _rungs(recipe: Recipe) -> Iterator[Problem]:
    if not recipe.speculates:
        return  # nothing to retreat from: a recipe that extends another may be without its draft
    rungs = recipe.fallback.rungs
    for place, rung in enumerate(rungs):
        path = ("rungs", str(place))
        for what in (*_alone(recipe, rung), *_after(recipe, rungs[:place], rung)):
            yield path, what


def _alone(recipe: Recipe, rung: Rung) -> Iterator[str]:
    """What is wrong with one rung."""
    draft, method = recipe.draft, _method(recipe, rung)
    if method == "none":
        if rung.model or rung.k or rung.schedule:
            yield "is no speculation: it has no model, K or schedule"
        return
    for problem in schedule_problems(rung.schedule) if rung.schedule is not None else ():
        yield f"has a schedule that no engine takes: {problem}"
    if _is_own(recipe, rung):
        k = _most(rung) or draft.k
        if rung.schedule is None and k >= draft.k:
            yield f"is the recipe's draft itself; write a K under draft.K {draft.k}, or a schedule"
        elif k > draft.k:
            yield f"drafts {k} tokens at most, and draft.K is {draft.k}: that is no retreat"
    elif method in _LOOKUPS and rung.model:
        yield f"is {method}, which has no model"
    elif method in _WITH_MODEL and not rung.model:
        yield f"is {method} and names no model"


def _after(recipe: Recipe, before: Sequence[Rung], rung: Rung) -> Iterator[str]:
    """What is wrong with its place: each rung is a smaller retreat than the next."""
    rank = _rank(recipe, rung)
    if recipe.draft.method in _LOOKUPS and rank < _LOOKUP:
        yield f"is {_method(recipe, rung)}, which is no retreat from {recipe.draft.method}"
    if not before:
        return
    last = before[-1]
    if rank < _rank(recipe, last):
        yield (
            f"is {_words(recipe, rung)} after {_words(recipe, last)}; from the smallest retreat to "
            "the largest: less of the draft, another draft, n-gram, none"
        )
    elif rung in before or rank == _rank(recipe, last) == _OFF:
        yield f"is {_words(recipe, rung)} a second time"
    elif _same(recipe, rung, last) and not _is_less(rung, last):
        yield f"has no smaller K than the rung before it, {_words(recipe, last)}"


def _standby(recipe: Recipe) -> Iterator[Problem]:
    wanted, pool = recipe.fallback.standby, recipe.pools.get("standby")
    if wanted is None:
        return
    if pool is not None and pool.draft is not None and pool.draft.method != wanted:
        yield ("standby",), f"is {wanted}, and pools.standby.draft {pool.draft.method}: write one"
    rungs = recipe.fallback.rungs or (Rung(method="ngram"), Rung(method="none"))
    known = list(dict.fromkeys(_method(recipe, rung) for rung in rungs))
    if recipe.speculates and wanted not in known:
        yield ("standby",), f"is {wanted}, which is none of the rungs; one of {', '.join(known)}"


def _method(recipe: Recipe, rung: Rung) -> Method:
    return rung.method or recipe.draft.method


def _is_own(recipe: Recipe, rung: Rung) -> bool:
    same = rung.method in {None, recipe.draft.method}
    return same and rung.model in {None, recipe.draft.model}


def _rank(recipe: Recipe, rung: Rung) -> int:
    method = _method(recipe, rung)
    if method == "none":
        return _OFF
    if method in _LOOKUPS:
        return _LOOKUP
    return _OWN if _is_own(recipe, rung) else _MODEL


def _same(recipe: Recipe, rung: Rung, last: Rung) -> bool:
    return _method(recipe, rung) == _method(recipe, last) and rung.model == last.model


def _is_less(rung: Rung, last: Rung) -> bool:
    most, before = _most(rung), _most(last)
    if most is None or before is None:
        return False
    return most < before or (most == before and rung.schedule is None and last.schedule is not None)


def _most(rung: Rung) -> int | None:
    """The largest K that it drafts; None: the recipe's."""
    if rung.k is not None:
        return rung.k
    return max((k for _, _, k in rung.schedule), default=None) if rung.schedule else None


def _words(recipe: Recipe, rung: Rung) -> str:
    method, most = _method(recipe, rung), _most(rung)
    return f"{method} with K = {most}" if most else method
