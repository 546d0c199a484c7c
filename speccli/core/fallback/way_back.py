"""What a restore leads back to, and what serves with a canary of it. Pure."""

from __future__ import annotations

from dataclasses import replace

from speccli.core.errors import UsageError
from speccli.core.fallback.ladder import Ladder, is_less
from speccli.core.fallback.serving import Serving, serving
from speccli.core.recipes.model import Pool


def way_back(found: Ladder, here: Serving) -> tuple[Serving, Serving]:
    """What would serve again, and what serves with a canary of it.

    Raises:
        UsageError: nothing led away from anything.
    """
    to = target_of(found, here)
    if to is None:
        raise nowhere(found)
    return to, with_canary(here, to)


def nowhere(found: Ladder) -> UsageError:
    """What to say where nothing led away from anything."""
    name, number = found.record.name, found.record.current.number
    return UsageError(
        f"no fallback led to revision {number} of {name}",
        hint=f"specctl rollback {name} brings any former revision back",
    )


def target_of(found: Ladder, here: Serving) -> Serving | None:
    """What is to serve again; None: nothing led away from anything."""
    to = None if found.back is None else serving(found, here.namespace, found.back)
    if here.traffic == "standby" and is_less(here.draft, here.recipe.draft):
        # Whatever was deployed since, the main pool has it.
        same = to is not None and to.recipe == here.recipe
        to = to if same else here
    if to is None:
        return None
    return replace(to, options=replace(to.options, traffic="main", raised={}))


def with_canary(here: Serving, to: Serving) -> Serving:
    """What serves, and one server of what is to serve again in its traffic."""
    pool = replace(here.recipe.pools.get("canary", Pool()), draft=to.recipe.draft, min=1, max=1)
    recipe = replace(here.recipe, pools={**here.recipe.pools, "canary": pool})
    return replace(here, recipe=recipe)
