"""Gathers what a plan is made of: record, findings, batch, bench, GPUs. Changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from speccli.core.bench.merge import read_all
from speccli.core.bench.results import Result
from speccli.core.config import Settings
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.fallback.ladder import Ladder, ladder
from speccli.core.fallback.means import Means, Supply, here
from speccli.core.fallback.measured import Bench
from speccli.core.fallback.moves import Planned, Supplies, plan_move
from speccli.core.fallback.present import (
    WINDOW_S,
    Present,
    from_answer,
    with_batch,
    with_codes,
    with_remembered,
)
from speccli.core.fallback.rungs import Step
from speccli.core.fallback.ways import on_cluster, on_this_machine
from speccli.core.oneshot import ask
from speccli.core.open import open_source
from speccli.core.recipes.model import Recipe

if TYPE_CHECKING:
    from speccli.core.deploy.place import Here
    from speccli.core.kube.client import Cluster

_NOW = "1s"
"""How long acceptance must be low for a person who asks now; the watch has its own patience."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan was asked for."""

    settings: Settings
    """The source of metrics; none given: the deployment itself."""
    replay: Path | None = None
    batch: float | None = None
    """Requests in a step of one server, given by hand."""
    benches: Sequence[Path] = ()
    codes: Sequence[str] = ()
    """Findings named by hand."""
    rung: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_source(self) -> bool:
        """Whether a source was given."""
        given = self.settings
        return bool(given.endpoint or given.prometheus or self.replay)


class _Machine:
    """What this machine has for a local deployment."""

    def __init__(self, found: Ladder) -> None:
        self._found = found

    def warm(self) -> str | None:
        """Nothing is kept warm here."""
        return None

    def means(self, step: Step) -> Means:
        """How a step is made."""
        return here(self._found, step)


def of_cluster(
    connect: Callable[[], Cluster], namespace: str | None, name: str, asked: Asked
) -> Planned:
    """The plan of a deployment on a cluster.

    Raises:
        UsageError: no such deployment, or something in `asked` that cannot be.
        SpecctlError: the cluster cannot be asked for the record.
    """
    result = _judged(asked)
    cluster = connect()
    found, place = on_cluster(cluster, namespace, name)
    source = asked.settings
    if not asked.has_source:
        source = replace(source, deployment=name, namespace=place)
    present = _present(asked, source, found, name)

    def supply(told: Ladder) -> Supplies | str:
        try:
            return Supply(cluster, place, told, result)
        except SpecctlError as error:
            return error.message

    return _planned(asked, found, present, result, supply)


def of_machine(where: Here, asked: Asked) -> Planned:
    """The plan of a deployment on this machine.

    Raises:
        UsageError: no such deployment, or something in `asked` that cannot be.
    """
    result = _judged(asked)
    found = on_this_machine(where)
    source = asked.settings
    if not asked.has_source and where.url:
        source = replace(source, endpoint=(where.url,))
    present = _present(asked, source, found, where.name)
    return _planned(asked, found, present, result, _Machine)


def _judged(asked: Asked) -> Result | None:
    """The benches; what cannot be is said before anybody is asked."""
    with_batch(with_codes(Present.nothing(""), asked.codes), asked.batch)
    if asked.rung is not None and not asked.rung.strip():
        raise UsageError("--rung: no name", hint="specctl fallback plan NAME lists the rungs")
    return read_all(asked.benches) if asked.benches else None


def _present(asked: Asked, source: Settings, found: Ladder, name: str) -> Present:
    present = _look(asked, source, found.recipe)
    remembered = replace(asked.settings, deployment=name) if not asked.has_source else source
    present = with_remembered(present, remembered, name, asked.environment, time.time())
    return with_batch(with_codes(present, asked.codes), asked.batch)


def _look(asked: Asked, source: Settings, recipe: Recipe) -> Present:
    """What the engines say, or why they do not."""
    floor = source.floor if source.floor is not None else recipe.alerts.acceptance_floor
    judged = replace(source, floor=floor, hold=_NOW)
    where = "a recording" if asked.replay else "live"
    try:
        opened = open_source(judged, replay=asked.replay, default_window_s=WINDOW_S)
        return from_answer(asyncio.run(ask(opened)), where)
    except UsageError:
        if asked.has_source:
            raise
        return Present.nothing("no source of metrics")
    except SpecctlError as error:
        return Present.nothing(error.message)


def _planned(
    asked: Asked,
    found: Ladder,
    present: Present,
    result: Result | None,
    supply: Callable[[Ladder], Supplies | str],
) -> Planned:
    recipe = _priced(found.recipe, asked.settings.gpu_hour_usd)
    bench = Bench(result, recipe, present.batch)
    if (k_by_batch := bench.schedule(found.top.draft)) is not None:
        found = ladder(found.record, k_by_batch)
    return plan_move(found, present, bench, supply(found), asked.rung)


def _priced(recipe: Recipe, gpu_hour_usd: float | None) -> Recipe:
    if gpu_hour_usd is None:
        return recipe
    return replace(recipe, cost=replace(recipe.cost, gpu_hour_usd=gpu_hour_usd))
