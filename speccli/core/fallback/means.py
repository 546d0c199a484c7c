"""How a move would be made: by traffic to a warm standby, or by replacing pods; GPUs and time.

Reads only. What a start takes is measured where pods tell it, else an estimate that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from speccli.core.bench.results import Result
from speccli.core.deploy import room
from speccli.core.deploy.asked import for_cluster, options_again
from speccli.core.errors import UsageError
from speccli.core.fallback.ladder import Ladder, standing
from speccli.core.fallback.pools import need
from speccli.core.fallback.refusals import configuration_of
from speccli.core.fallback.rungs import Step
from speccli.core.fallback.serving import serving
from speccli.core.kube.fields import replicas_of
from speccli.core.kube.progress import is_ready, workload_of
from speccli.core.kube.record import Revision
from speccli.core.kube.refs import pods_of
from speccli.core.manifests.build import objects
from speccli.core.manifests.names import CONTAINER
from speccli.core.manifests.options import server
from speccli.core.manifests.pools import units
from speccli.core.manifests.sizes import MB, READ_MB_S, read_rate, weight_bytes
from speccli.core.plan import Plan
from speccli.core.recipes.model import Recipe

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

Object = Mapping[str, Any]
Mechanism = Literal["traffic", "rolling", "restart"]
START_S = (125.0, 155.0)
"""Measured of an 8B and a 32B model on one H200, vLLM 0.25.1, weights at hand."""
_LONGEST_S = 7200.0
"""A pod that is said to have taken longer has been unready since; its own budget goes before."""
_ALIKE = 2.0
"""Times the shortest start of a deployment that another of it may take."""


@dataclass(frozen=True, slots=True)
class Start:
    """How long one server takes until it serves, seconds."""

    low_s: float
    high_s: float
    how: Literal["measured", "estimate"]
    words: str
    """Of what it was measured, or what it is made of."""


@dataclass(frozen=True, slots=True)
class Means:
    """How a move is made."""

    mechanism: Mechanism
    words: str
    """What happens to pods and requests."""
    gpus: int | None
    """GPUs needed beside those in use; None: not known."""
    free: int | None
    """GPUs that are free where pods could run; None: not known."""
    starts: int
    """Servers that start before it is done, one after the other where it is a rolling change."""
    start: Start
    downtime: bool = False
    risks: tuple[str, ...] = ()

    @property
    def seconds(self) -> tuple[float, float]:
        """From beginning to end: none where everything is warm."""
        turns = min(self.starts, 1) if self.mechanism == "traffic" else self.starts
        return turns * self.start.low_s, turns * self.start.high_s


class Supply:
    """What a cluster has for the moves of one deployment; asked once."""

    def __init__(
        self, cluster: Cluster, namespace: str, found: Ladder, bench: Result | None = None
    ) -> None:
        """`bench`: of the rungs, by which a standby's servers are counted.

        Raises:
            SpecctlError: the cluster cannot be asked.
        """
        self._found = found
        self._cluster, self._namespace = cluster, namespace
        major, minor = cluster.version()
        told = options_again(standing(found.record).options)
        named = replace(told, name=found.record.name)
        self._options = for_cluster(named, namespace, server(f"{major}.{minor}"), ())
        self._units = {unit.pool: unit for unit in units(found.recipe, self._options)}
        self._lives = {
            pool: cluster.get("apps/v1", "Deployment", unit.name, namespace)
            for pool, unit in self._units.items()
        }
        labels = pods_of(found.record.name)
        self._pods = cluster.list("v1", "Pod", namespace, labels=labels)
        stands_by = "standby" in self._units and self._options.traffic == "main"
        here = serving(found, namespace)
        self._need = need(cluster, here, "standby", bench) if stands_by else None

    def warm(self) -> str | None:
        """The name of the rung that a standby keeps warm now; None: there is none, or it is cold.

        The pool that has the traffic already is no standby.
        """
        unit = self._units.get("standby")
        if unit is None or self._options.traffic == "standby" or not self._ready("standby"):
            return None
        for step in self._found.down:
            if step.recipe.draft == unit.recipe.draft:
                return step.name
        return None

    def means(self, step: Step) -> Means:
        """How this step would be made."""
        if step.name == self.warm():
            return self._switch(step)
        return self._rolling(step)

    def _ready(self, pool: str) -> int:
        live = self._lives.get(pool)
        return workload_of(live).available if live is not None else 0

    def _switch(self, step: Step) -> Means:
        unit, ready = self._units["standby"], self._ready("standby")
        needed = ready if self._need is None else self._need.wanted
        more = max(0, needed - ready)
        space = self._space(self._found.recipe)
        seen = None if isinstance(space, str) else space.stocks["standby"]
        unknown = seen is None or seen.unknown is not None
        gpus = None if seen is None else more * seen.per_pod
        free = None if unknown or seen is None else seen.free
        words = f"traffic goes to {unit.name}: {ready} of {needed} servers are warm, no restart"
        risks = []
        if more and not unknown and seen is not None and seen.fits < more:
            room_for = f"room for {seen.fits}" if seen.fits else "no room"
            risks.append(
                f"the load needs {more} more of the standby's servers, and there is {room_for}: "
                "requests queue until the main pool is smaller"
            )
        return Means("traffic", words, gpus, free, more, self._start(unit.plan), risks=tuple(risks))

    def _rolling(self, step: Step) -> Means:
        start, live = self._start(step.plan), self._lives.get("main")
        replicas = max(1, replicas_of(live) or 1) if live is not None else 1
        space = self._space(step.recipe)
        if isinstance(space, str):
            words = f"rolling change of {replicas} pods, in a way that is not known ({space})"
            return Means("rolling", words, None, None, replicas, start)
        unit = next(each for each in space.found if each.pool == "main")
        chosen, seen = space.strategy(unit, replicas), space.stocks["main"]
        known = seen.unknown is None
        words = f"rolling change: {chosen.words}"
        if self._options.traffic == "standby":
            words = f"the main pool, which has no traffic, is changed, and then takes it: {words}"
        return Means(
            "rolling",
            words,
            chosen.surge * seen.per_pod if known else None,
            seen.free if known else None,
            replicas,
            start,
            downtime=chosen.downtime,
        )

    def _space(self, recipe: Recipe) -> room.Room | str:
        try:
            found = units(recipe, self._options)
            wanted = objects(recipe, self._options)
        except UsageError as error:
            return error.message
        return room.look(self._cluster, found, wanted, self._namespace)

    def _start(self, plan: Plan) -> Start:
        live = self._lives.get("main")
        replicas = max(1, replicas_of(live) or 1) if live is not None else 1
        told = measured_start(self._pods) or of_record(self._found, replicas)
        return told or estimated_start(plan)


def here(found: Ladder, step: Step) -> Means:
    """The same for a deployment on this machine."""
    start = of_record(found) or estimated_start(step.plan)
    words = (
        "the next engine is proven beside the present one where there is room, before it gets "
        "requests; else the present one is stopped first, and nothing serves meanwhile"
    )
    return Means("restart", words, 0, None, 1, start)


def measured_start(pods: Iterable[Object]) -> Start | None:
    """From the start of each ready pod's engine until it was ready.

    One that was unready since is told from its start by nothing but its length.
    """
    took = sorted(t for pod in pods if is_ready(pod) and (t := _took(pod)) is not None)
    told = [t for t in took if t <= _ALIKE * took[0]]
    if not told:
        return None
    count = f"{len(told)} pods that serve" if len(told) > 1 else "the pod that serves"
    return Start(told[0], told[-1], "measured", f"{count} now")


def _took(pod: Object) -> float | None:
    status = pod.get("status") or {}
    began = ((_engine(status, "containerStatuses").get("state") or {}).get("running") or {}).get(
        "startedAt"
    )
    ready: Object = next(
        (c for c in status.get("conditions") or () if c.get("type") == "Ready"), {}
    )
    seconds = _between(began, ready.get("lastTransitionTime"))
    return seconds if seconds is not None and 0 < seconds <= _longest(pod) else None


def _engine(told: Object, key: str) -> Object:
    return next((c for c in told.get(key) or () if c.get("name") == CONTAINER), {})


def _longest(pod: Object) -> float:
    """Seconds after which its engine would have been ended, had it not been ready."""
    probe = _engine(pod.get("spec") or {}, "containers").get("startupProbe")
    if not probe:
        return _LONGEST_S
    tries = probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10)
    return float(probe.get("initialDelaySeconds", 0) + tries)


def of_record(found: Ladder, replicas: int = 1) -> Start | None:
    """From the last rollout: at first all start side by side, later one after the other."""
    every = [e for e in (found.record.current, *found.record.previous) if e.trial is None]
    for each, before in zip(every, [*every[1:], None], strict=True):
        seconds = _between(each.at, each.ended)
        if each.state == "ready" and seconds and _started(each, before):
            one = seconds / replicas if before else seconds
            return Start(one, one, "measured", f"the rollout of revision {each.number}")
    return None


def _started(each: Revision, before: Revision | None) -> bool:
    """Whether servers were started by it: a switch of the traffic is through in seconds."""
    if before is None:
        return each.number == 1
    restarted = before.options.get("restarted") != each.options.get("restarted")
    same = configuration_of(each) == configuration_of(before) and each.image == before.image
    return restarted or not same


def _between(began: str | None, ended: str | None) -> float | None:
    try:
        first, last = (datetime.fromisoformat(str(each)) for each in (began, ended))
        return (last - first).total_seconds()
    except (ValueError, TypeError):
        return None


def estimated_start(plan: Plan) -> Start:
    """What was measured of other models, and the weights' way."""
    low, high = START_S
    words = f"{low:.0f}–{high:.0f} s as measured of others on one H200"
    size, recipe = weight_bytes(plan), plan.facts.recipe
    if size is None:
        return Start(low, high, "estimate", f"{words}, weights of unknown size come on top")
    rate = read_rate(recipe)
    if recipe.storage.source == "hub" and recipe.storage.persist and not recipe.storage.read_mb_s:
        rate = READ_MB_S["pvc"]  # the first start has downloaded them
    told = "given" if recipe.storage.read_mb_s else "assumed"
    extra = size / MB / rate
    words = f"{words}, and {size / 1e9:.0f} GB of weights at {rate:g} MB/s ({told})"
    return Start(low + extra, high + extra, "estimate", words)
