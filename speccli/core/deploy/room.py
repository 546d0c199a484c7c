"""Whether the pods of all pools find GPUs, and how each pool's pods are replaced with those."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from speccli.core.deploy.asked import Pool
from speccli.core.findings.base import Severity
from speccli.core.kube import apply, stock
from speccli.core.kube.connection import EVERYWHERE
from speccli.core.kube.errors import Denied
from speccli.core.kube.fields import replicas_of
from speccli.core.kube.refs import pods_of
from speccli.core.kube.stock import Stock
from speccli.core.manifests.names import POOL
from speccli.core.manifests.pools import Unit
from speccli.core.preflight.base import Verdict

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

Object = Mapping[str, Any]
_ENDED = frozenset({"Succeeded", "Failed"})


class Room:
    """What the cluster has for all pools, which may share nodes."""

    def __init__(
        self,
        found: Sequence[Unit],
        stocks: Mapping[str, Stock],
        lives: Mapping[str, int | None],
    ) -> None:
        """`lives`: how many pods each pool is told to have; None: it is not there yet."""
        self.found, self.stocks, self.lives = found, stocks, lives
        self._left: dict[str, int] = {}
        self.placed = {unit.pool: self._put(stocks[unit.pool], self.extra(unit)) for unit in found}
        """Pods of each pool that find room beside those of the pools before it."""

    def extra(self, unit: Unit) -> int:
        """Pods that come in addition to those there are."""
        return max(0, unit.least - (self.lives[unit.pool] or 0))

    @property
    def crowded(self) -> bool:
        """Whether pods that come find no room."""
        return any(
            self.stocks[unit.pool].unknown is None
            and self.stocks[unit.pool].per_pod > 0
            and self.placed[unit.pool] < self.extra(unit)
            for unit in self.found
        )

    def strategy(self, unit: Unit, replicas: int) -> stock.Strategy:
        """How its pods may be replaced once all that come have their place."""
        seen = self.stocks[unit.pool]
        fits = sum(self._free(node) // seen.per_pod for node in seen.nodes) if seen.per_pod else 0
        return stock.strategy(seen, replicas, seen.fits - fits)

    def surge(self, unit: Unit, count: int) -> None:
        """Pods over the number take their place too."""
        self._put(self.stocks[unit.pool], count)

    def _free(self, node: stock.Node) -> int:
        return self._left.get(node.name, node.free)

    def _put(self, seen: Stock, count: int) -> int:
        """Put pods on the fullest nodes that take them; how many found one."""
        for placed in range(count):
            fitting = [node for node in seen.nodes if self._free(node) >= seen.per_pod]
            if not fitting or not seen.per_pod:
                return placed
            node = min(fitting, key=self._free)
            self._left[node.name] = self._free(node) - seen.per_pod
        return count


def look(cluster: Cluster, found: Sequence[Unit], wanted: list[dict[str, Any]], place: str) -> Room:
    """Count what there is. `place`: the namespace."""
    lives = {}
    for unit in found:
        live = cluster.get("apps/v1", "Deployment", unit.name, place)
        lives[unit.pool] = None if live is None else replicas_of(live)
    return Room(found, _stocks(cluster, found, wanted), lives)


def _stocks(
    cluster: Cluster, found: Sequence[Unit], wanted: list[dict[str, Any]]
) -> dict[str, Stock]:
    """What each pool's pods would find."""
    templates = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in wanted
        if each["kind"] == "Deployment"
    }
    specs = {unit.pool: templates[unit.name] for unit in found}
    if any(spec.get("resourceClaims") for spec in specs.values()):
        why = "GPUs are claimed (DRA), and claims are not counted"
        return {pool: Stock(0, (), (), why) for pool in specs}
    try:
        nodes = cluster.list("v1", "Node")
        pods = cluster.list("v1", "Pod", EVERYWHERE)
    except Denied as error:
        return {
            pool: Stock(stock.gpus_of(spec), (), (), error.message) for pool, spec in specs.items()
        }
    return {pool: stock.stock_of(spec, nodes, pods) for pool, spec in specs.items()}


def verdicts(room: Room) -> Iterator[Verdict]:
    """What speaks against it, or should be known."""
    for unit in room.found:
        seen, extra, placed = room.stocks[unit.pool], room.extra(unit), room.placed[unit.pool]
        if seen.unknown is not None or seen.per_pod == 0:
            continue
        gpus = f"{seen.per_pod} GPU{'s' if seen.per_pod > 1 else ''}"
        if seen.capacity == 0:
            yield _nowhere(unit, seen, gpus, there=room.lives[unit.pool] is not None)
        elif extra > placed:
            beside = ", beside the other pools" if placed < min(extra, seen.fits) else ""
            yield _verdict(
                "warning",
                f"{unit.name}: {extra} more pods of {gpus}, and room for {placed}{beside} "
                f"({seen.free} of {seen.allocatable} GPUs are free)",
                "the others wait until GPUs are free",
                "fewer servers (scaling.min), or more nodes",
            )


def _nowhere(unit: Unit, seen: Stock, gpus: str, *, there: bool) -> Verdict:
    """No node takes a pod: what is there already, or for a while only, is not refused for it."""
    evidence = f"{unit.name}: no node takes a pod of {gpus} of {unit.recipe.hardware.gpu}"
    if seen.away:
        return _verdict(
            "warning",
            f"{evidence} now: {', '.join(seen.away)} "
            f"{'are' if len(seen.away) > 1 else 'is'} cordoned or not ready",
            "its pods wait until one takes pods again",
            f"kubectl uncordon {seen.away[0]}, or see why it is not ready",
        )
    products = ", ".join(seen.products) or "none at all"
    return _verdict(
        "warning" if there else "critical",
        f"{evidence}; GPUs of this cluster: {products}",
        "new pods wait for ever" if there else "its pods would wait for ever",
        "another recipe or hardware.products; or accept it where nodes are made on demand",
    )


def _verdict(severity: Severity, evidence: str, cause: str, action: str) -> Verdict:
    return Verdict("D-STOCK", severity, evidence, cause, action, subject="cluster")


def replaced(
    cluster: Cluster, room: Room, steps: Iterable[apply.Step], place: str
) -> tuple[list[Pool], dict[str, dict[str, Any]]]:
    """How each pool's pods are replaced, and each Deployment's `strategy`.

    What is not replaced keeps the way it has, unless a rollout waits for a GPU that is not free.
    """
    by_name = {step.ref.name: step for step in steps if step.ref.kind == "Deployment"}
    pools, strategies = [], {}
    for unit in room.found:
        step = by_name[unit.name]
        replicas = max(replicas_of(step.becomes) or 0, unit.least)
        chosen = room.strategy(unit, replicas)
        rolls = step.rolls or _is_stuck(cluster, unit, step.live, place)
        if step.live is not None and not rolls:
            strategies[unit.name] = step.live["spec"]["strategy"]
        else:
            strategies[unit.name] = chosen.spec()
            room.surge(unit, chosen.surge)
        pools.append(Pool(unit, room.stocks[unit.pool], chosen, replicas, rolls))
    return pools, strategies


def _is_stuck(cluster: Cluster, unit: Unit, live: Object | None, place: str) -> bool:
    """Whether a rollout is under way that waits for room, so that its way is to be chosen anew.

    One that gets on is left alone: its new pods have taken the GPUs that were free for them.
    """
    if live is None:
        return False
    status, wanted = live.get("status") or {}, replicas_of(live) or 0
    updated = status.get("updatedReplicas", 0)
    if updated >= wanted and status.get("replicas", 0) <= updated:
        return False
    pods = cluster.list("v1", "Pod", place, labels=f"{pods_of(unit.deployment)},{POOL}={unit.pool}")
    return any(
        not pod["spec"].get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
        and (pod.get("status") or {}).get("phase") not in _ENDED
        for pod in pods
    )
