"""The pools of a deployment: main, structured output, canary, standby; each a plan of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from speccli.core.errors import UsageError
from speccli.core.fallback.rungs import standby_draft
from speccli.core.manifests.names import pool_name
from speccli.core.manifests.options import RenderOptions, deployment_name
from speccli.core.manifests.sizes import Times, times
from speccli.core.plan import Plan, plan
from speccli.core.recipes.model import Draft, Pool, PoolName, Recipe

IMAGE = "vllm/vllm-openai"
"""The engine's published image; tags are v and the version."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One pool, ready to be rendered."""

    pool: str
    """`main`, `structured`, `canary` or `standby`."""
    name: str
    deployment: str
    plan: Plan
    image: str
    least: int
    most: int
    autoscaled: bool
    times: Times

    @property
    def recipe(self) -> Recipe:
        """What it runs."""
        return self.plan.facts.recipe

    @property
    def served_model(self) -> str:
        """The name clients ask for, which is also the label in its metrics."""
        return self.recipe.engine.served_model_name or self.recipe.target.model


def units(recipe: Recipe, options: RenderOptions) -> list[Unit]:
    """Every pool, the main one first.

    Raises:
        UsageError: what cannot be rendered, with the key to change.
    """
    deployment = deployment_name(recipe, options)
    if options.image is not None:
        recipe = replace(recipe, engine=replace(recipe.engine, image=options.image))
    wanted = set(options.pools) | set(recipe.pools)
    found = [_unit("main", recipe, deployment, options)]
    for name in get_args(PoolName):
        if name in wanted:
            pool = recipe.pools.get(name, Pool())
            given = _grown(recipe, pool, options) if name == "standby" else pool
            found.append(_unit(name, pool_recipe(recipe, name, pool), deployment, options, given))
    if options.traffic == "standby" and all(unit.pool != "standby" for unit in found):
        raise UsageError(
            f"traffic to the pool standby, and {deployment} has none",
            hint="--pool standby, pools.standby in the recipe, or --traffic main",
        )
    return found


def _grown(recipe: Recipe, pool: Pool, options: RenderOptions) -> Pool:
    """The standby as it may become: when it serves it scales as far as the main pool does."""
    least = options.raised.get("standby", pool.min)
    return replace(pool, min=least, max=max(pool.max, recipe.scaling.max, least))


def pool_recipe(recipe: Recipe, name: PoolName, pool: Pool) -> Recipe:
    """The recipe that a further pool runs."""
    engine, serving, draft = recipe.engine, recipe.serving, recipe.draft
    if name == "structured":
        draft = pool.draft or Draft()
        serving = replace(serving, structured_output=True)
        alias = f"{engine.served_model_name or recipe.target.model}-structured"
        engine = replace(engine, served_model_name=alias)
    elif name == "standby":
        draft = standby_draft(recipe) if pool.draft is None else pool.draft
    elif pool.draft is not None:
        draft = pool.draft
    if pool.version is not None:
        engine = replace(engine, version=pool.version, image=None)
    if pool.image is not None:
        engine = replace(engine, image=pool.image)
    if pool.served_model_name is not None:
        engine = replace(engine, served_model_name=pool.served_model_name)
    if pool.max_num_seqs is not None:
        serving = replace(serving, max_num_seqs=pool.max_num_seqs)
    scaling = replace(recipe.scaling, min=pool.min, max=pool.max)
    return replace(recipe, engine=engine, serving=serving, draft=draft, scaling=scaling, pools={})


def _unit(
    pool: str,
    recipe: Recipe,
    deployment: str,
    options: RenderOptions,
    given: Pool | None = None,
) -> Unit:
    from speccli.core.manifests.refuse import refuse

    made = plan(recipe)
    refuse(made, options)
    least, most = (given.min, given.max) if given else (recipe.scaling.min, recipe.scaling.max)
    autoscaled = options.autoscaler != "none" and pool != "canary"
    if not autoscaled and pool == "main" and options.replicas is not None:
        least = options.replicas
    least = options.raised.get(pool, least)
    if autoscaled and most < least:
        raise UsageError(f"{pool}: {least} servers at least and {most} at most")
    return Unit(
        pool,
        pool_name(deployment, pool),
        deployment,
        made,
        image_of(recipe),
        least,
        most,
        autoscaled,
        times(made),
    )


def image_of(recipe: Recipe) -> str:
    """The image: the recipe's, else the published one of its version, by tag."""
    return recipe.engine.image or f"{IMAGE}:v{recipe.engine.version.removeprefix('v')}"
