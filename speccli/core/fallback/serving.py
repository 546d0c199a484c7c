"""What serves now, as something that can be asked for again with a change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from speccli.core.deploy.asked import Asked, options_again
from speccli.core.deploy.prepare import verdicts_of
from speccli.core.fallback.ladder import Ladder, standing
from speccli.core.fallback.rungs import draft_words, standby_draft
from speccli.core.kube.record import Revision, recipe_of
from speccli.core.manifests.options import RenderOptions, Traffic
from speccli.core.manifests.pools import Unit, units
from speccli.core.recipes.model import Draft, Pool, Recipe


@dataclass(frozen=True, slots=True)
class Serving:
    """A deployment on a cluster, as its record has it."""

    name: str
    namespace: str
    revision: Revision
    recipe: Recipe
    options: RenderOptions
    """Without the cluster's part."""

    @property
    def traffic(self) -> Traffic:
        """The pool that takes the requests."""
        return self.options.traffic

    @property
    def has_standby(self) -> bool:
        """Whether it has the pool standby."""
        return "standby" in {*self.recipe.pools, *self.options.pools}

    @property
    def serving_pools(self) -> tuple[str, ...]:
        """All but a standby that stands by: how that is keeps nothing else waiting."""
        every = (unit.pool for unit in units(self.recipe, self.options))
        return tuple(pool for pool in every if pool != "standby" or self.traffic == "standby")

    @property
    def draft(self) -> Draft:
        """What drafts for the requests."""
        return self.recipe.draft if self.traffic == "main" else standby_draft(self.recipe)

    @property
    def words(self) -> str:
        """The same in words: `eagle3, K = 3`."""
        return draft_words(self.draft)

    def unit(self, pool: str, **options: Any) -> Unit:
        """One of its pools."""
        found = units(self.recipe, replace(self.options, **options))
        return next(each for each in found if each.pool == pool)

    def asked(self, recipe: Recipe | None = None, **changes: Any) -> Asked:
        """The same again, with another recipe or other options (`traffic`, `raised`, `pools`).

        A move is not held against rules about the target, which serves already; the cluster's own
        are asked all the same.
        """
        recipe, options = recipe or self.recipe, replace(self.options, **changes)
        codes = {v.code for v in verdicts_of(recipe, options) if v.severity == "critical"}
        accept = tuple(dict.fromkeys((*self.revision.accepted, *sorted(codes))))
        return Asked(recipe, options, self.namespace, accept, carried=accept, moves=True)

    def again(self) -> Asked:
        """The same again, as what is brought back."""
        return replace(self.asked(), restores=self.revision.number)


def serving(found: Ladder, namespace: str, revision: Revision | None = None) -> Serving:
    """What a ladder stands on; or another revision of it.

    Raises:
        UsageError: this version knows another form of recipes or options.
    """
    at = revision or standing(found.record)
    name = found.record.name
    options = replace(options_again(at.options), name=name, namespace=namespace)
    return Serving(name, namespace, at, recipe_of(at), options)


def pinned(recipe: Recipe, here: Serving) -> Recipe:
    """A recipe whose standby keeps the draft that it serves with while the main pool changes."""
    pool = here.recipe.pools.get("standby", Pool())
    kept = replace(pool, draft=standby_draft(here.recipe))
    return replace(recipe, pools={**recipe.pools, "standby": kept})
