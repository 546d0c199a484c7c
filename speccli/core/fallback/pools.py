"""The pools of a move: whether one is warm, how many servers it needs, and who is led to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speccli.core.bench.results import Result
from speccli.core.deploy import room
from speccli.core.deploy.cluster import prove_pools
from speccli.core.fallback.load import load, servers_for
from speccli.core.fallback.serving import Serving
from speccli.core.kube.errors import Denied, NotInstalled
from speccli.core.kube.fields import replicas_of
from speccli.core.kube.progress import Progress
from speccli.core.kube.proven import Proof
from speccli.core.kube.refs import pods_of
from speccli.core.kube.rollout import Ended, Stragglers, look
from speccli.core.manifests.build import objects
from speccli.core.manifests.names import POOL, pool_name
from speccli.core.manifests.options import Traffic
from speccli.core.manifests.pools import units

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

STRAGGLERS_S = 20.0
"""How long a further server may find no node, or crash, before the traffic goes without it."""
TAKES_S = 30.0
"""How long a Service may take to lead to other pods."""
_POLL_S = 0.5
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Warm:
    """A pool that may take the traffic."""

    pool: Traffic
    ready: int
    proof: Proof | None
    sick: str | None
    """Why it is not to take it; None: nothing speaks against it."""

    @property
    def answers(self) -> bool:
        """Whether requests get answers, however it drafts."""
        return self.proof is not None and self.proof.answers

    @property
    def doubt(self) -> str | None:
        """Why it could not be proven; None where it was."""
        return None if self.proof is None else doubt(self.proof)


def doubt(proof: Proof) -> str | None:
    """What keeps a proof from being one; None where it is."""
    if proof.verdict != "unknown":
        return None
    first = next((each for each in proof.servers if each.verdict == "unknown"), None)
    return proof.reason if first is None else f"{first.server}: {first.evidence}"


def warm(cluster: Cluster, patient: Cluster, here: Serving, pool: Traffic) -> Warm:
    """Whether a pool is ready, and drafts as it should: asked now, whatever the record says."""
    unit = here.unit(pool)
    seen = look(cluster, here.namespace, here.name, [unit.name])
    ready = len(_ready(seen, pool))
    if not ready:
        return Warm(pool, 0, None, _unready(seen, pool))
    proof = prove_pools(patient, here.namespace, [unit], Ended("done", seen))
    if proof.verdict != "refuted":
        return Warm(pool, ready, proof, None)
    worst = next(each for each in proof.servers if each.verdict == "refuted")
    return Warm(pool, ready, proof, f"{worst.server}: {worst.evidence}")


def _ready(seen: Progress, pool: str) -> list[str]:
    """Pods that would take requests, of the newest template."""
    pods = (pod for pod in seen.pods if pod.pool == pool and pod.fresh)
    return [pod.name for pod in pods if pod.phase == "ready"]


def _unready(seen: Progress, pool: str) -> str:
    told = [f"{pod.name}: {pod.detail}" for pod in seen.pods if pod.pool == pool]
    return f"no server of it is ready{f' ({told[0]})' if told else ''}"


# ---- room ----


@dataclass(frozen=True, slots=True)
class Need:
    """How many servers the traffic needs in a pool, and how many it can have."""

    wanted: int
    fits: int
    """Of those, what finds GPUs."""
    there: int
    words: str
    """How it was counted."""

    @property
    def goal(self) -> int:
        """What the pool is raised to; never fewer than there are."""
        return max(self.there, min(self.wanted, self.fits))


def need(
    cluster: Cluster,
    here: Serving,
    to: Traffic,
    bench: Result | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Need:
    """Servers of `to` for what runs now in the pool that serves. `bench`: of the rungs."""
    unit, serving = here.unit(to), here.unit(here.traffic)
    live = cluster.get("apps/v1", "Deployment", serving.name, here.namespace)
    servers = (replicas_of(live) if live else None) or serving.least
    by_speed = bench if to == "standby" else None  # a draft that is well again is the faster
    now = load(cluster, here, servers, speed=by_speed is not None, sleep=sleep)
    if to == "main" and not unit.autoscaled:
        # Its number is told, and would be so again with the traffic: pods would come and go.
        wanted, words = unit.least, "as many as it is told to have"
    elif now is None:
        wanted, words = servers, f"as many as {serving.name} has: its load cannot be read"
    else:
        wanted, words = servers_for(now, unit, by_speed)
    wanted = max(1, unit.least, min(wanted, unit.most) if unit.autoscaled else wanted)
    there = cluster.get("apps/v1", "Deployment", unit.name, here.namespace)
    have = (replicas_of(there) if there else 0) or 0
    return Need(wanted, have + _placed(cluster, here, to, wanted), have, words)


def goal(to: Traffic, need: Need) -> int:
    """How many servers a pool takes the traffic with; a main pool gives up those too many."""
    return need.goal if to == "standby" else min(need.goal, need.wanted)


def raised(here: Serving, to: Traffic, need: Need) -> dict[str, int]:
    """What a pool is held at while it takes the traffic; nothing where it has as many anyhow."""
    unit, wanted = here.unit(to, raised={}), goal(to, need)
    held = wanted > unit.least and (to == "standby" or unit.autoscaled)
    return {to: wanted} if held else {}


def short(need: Need) -> str | None:
    """Why a pool cannot take what is served elsewhere; None: it finds all the GPUs it needs."""
    if need.goal >= need.wanted:
        return None
    return (
        f"the load needs {need.wanted} servers of it ({need.words}), and there is room for "
        f"{need.goal}"
    )


def _placed(cluster: Cluster, here: Serving, to: Traffic, wanted: int) -> int:
    """Further servers of a pool that find GPUs; all, where nobody can tell."""
    unit = here.unit(to, raised={to: wanted})
    made = objects(here.recipe, here.options)
    seen = room.look(cluster, [unit], made, here.namespace)
    known = seen.stocks[to].unknown is None and seen.stocks[to].per_pod > 0
    extra = seen.extra(unit)
    if not known:
        return extra
    return min(extra, seen.placed[to] + _given_way(cluster, here))


def _given_way(cluster: Cluster, here: Serving) -> int:
    """Servers that a canary makes room for: it goes before others come."""
    if "canary" in {unit.pool for unit in units(here.recipe, here.options)}:
        return 0
    live = cluster.get("apps/v1", "Deployment", pool_name(here.name, "canary"), here.namespace)
    return 0 if live is None else replicas_of(live) or 0


def serves(cluster: Cluster, here: Serving) -> bool:
    """Whether the pool that has the traffic has any server that takes it."""
    seen = look(cluster, here.namespace, here.name, [pool_name(here.name, here.traffic)])
    return any(pod.pool == here.traffic and pod.phase == "ready" for pod in seen.pods)


def await_servers(
    cluster: Cluster,
    here: Serving,
    pool: Traffic,
    goal: int,
    patience_s: float,
    *,
    clock: Clock = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Wait until so many servers of a pool are ready; how many are, at the latest then.

    What will not come soon is not waited for.
    """
    give_up, stragglers = clock() + patience_s, Stragglers(STRAGGLERS_S)
    while True:
        seen = look(cluster, here.namespace, here.name, [here.unit(pool).name])
        ready, now = len(_ready(seen, pool)), clock()
        if ready >= goal or now >= give_up or stragglers.told(seen, now):
            return ready
        sleep(2.0)


# ---- the switch itself ----


def leads_astray(
    cluster: Cluster,
    here: Serving,
    pool: Traffic,
    *,
    clock: Clock = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str | None:
    """Why the deployment's address does not lead to a pool's servers; None where it does.

    A Service takes a moment to follow its selector.
    """
    give_up = clock() + TAKES_S
    while True:
        try:
            wrong = _astray(cluster, here, pool)
        except (Denied, NotInstalled):
            return None  # who may not read it goes by the servers' own counters
        if wrong is None or clock() >= give_up:
            return wrong
        sleep(_POLL_S)


def _astray(cluster: Cluster, here: Serving, pool: Traffic) -> str | None:
    labels = f"kubernetes.io/service-name={here.name}"
    slices = cluster.list("discovery.k8s.io/v1", "EndpointSlice", here.namespace, labels=labels)
    led = {name for each in slices for name in _targets(each)}
    pods = cluster.list("v1", "Pod", here.namespace, labels=pods_of(here.name))
    pools = {
        pod["metadata"]["name"]: (pod["metadata"].get("labels") or {}).get(POOL) for pod in pods
    }
    if not led:
        return f"Service {here.name} leads to no server"
    others = sorted({str(pools[name]) for name in led & set(pools)} - {pool, "canary"})
    return f"Service {here.name} still leads to {', '.join(others)}" if others else None


def _targets(value: Mapping[str, Any]) -> list[str]:
    """Names of the ready pods of an EndpointSlice."""
    return [
        str(endpoint["targetRef"]["name"])
        for endpoint in value.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") and endpoint.get("targetRef")
    ]
