"""Which pods are a deployment's, and what each of them is doing, as the API server tells it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speccli.core.kube.errors import ClusterError, Denied
from speccli.core.kube.progress import Phase, pod_view
from speccli.core.manifests.names import CONTAINER, DEPLOYMENT, METHOD, POOL, PORT
from speccli.core.sources.base import Stage

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

_OWNERS = ("Deployment", "StatefulSet")
_PORT_NAMES = ("http", "metrics", "http-metrics", "api")
"""What the port of an engine is called, likeliest first."""
_STAGES: Mapping[Phase, Stage] = {
    "scheduling": "pending",
    "image": "pending",
    "weights": "loading",
    "compile": "loading",
    "leaving": "terminating",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A deployment, and how its pods are picked."""

    name: str
    namespace: str
    selector: str
    """A label selector."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, as far as reading its metrics goes."""

    name: str
    uid: str
    port: int
    stage: Stage | None
    """None where it should answer, and where it crashed."""
    detail: str
    """What it is doing or what is in its way."""
    crashed: bool
    restarts: int
    running: bool
    """Whether its engine's process runs, so that it may answer."""
    pool: str | None = None
    """Of its deployment's pools, the one it is labelled with."""
    meant: str | None = None
    """The method that specctl deployed it with, `none` included; None: it is not specctl's."""

    @property
    def incarnation(self) -> tuple[str, int]:
        """Another one is another process."""
        return self.uid, self.restarts


def find(cluster: Cluster, name: str, namespace: str | None = None) -> Found:
    """A deployment by its name: one of specctl's with all its pools, or anybody's by its selector.

    Raises:
        ClusterError: there is none, or it may not be looked for.
    """
    place = namespace or cluster.namespace
    ours = f"{DEPLOYMENT}={name}"
    denied: Denied | None = None
    for kind in _OWNERS:
        try:
            owner = cluster.get("apps/v1", kind, name, place)
        except Denied as error:
            if kind == _OWNERS[0]:  # where it is known that there is no Deployment, that is told
                denied = error
            continue
        if owner is not None:
            labels = owner["metadata"].get("labels") or {}
            own = selector_text((owner.get("spec") or {}).get("selector") or {})
            return Found(name, place, ours if labels.get(DEPLOYMENT) == name else own)
    if cluster.list("v1", "Pod", place, labels=ours):
        return Found(name, place, ours)
    if denied is not None:
        raise denied
    raise ClusterError(
        f"no deployment {name} in namespace {place} of {cluster.context}",
        hint=_nearest(cluster, name, place),
    )


def _nearest(cluster: Cluster, name: str, namespace: str) -> str:
    try:
        there = [str(d["metadata"]["name"]) for d in cluster.list("apps/v1", _OWNERS[0], namespace)]
    except ClusterError:
        there = []
    near = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]}?"
    shown = ", ".join(sorted(there)[:5])
    return f"there are {shown}" if shown else "give the namespace: -n NAMESPACE"


def selector_text(selector: Mapping[str, Any]) -> str:
    """A workload's selector as the API's query takes it."""
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, values = each["key"], ",".join(each.get("values") or ())
        match each["operator"]:
            case "In":
                parts.append(f"{key} in ({values})")
            case "NotIn":
                parts.append(f"{key} notin ({values})")
            case "Exists":
                parts.append(key)
            case "DoesNotExist":
                parts.append(f"!{key}")
    return ",".join(parts)


def read_pod(pod: Mapping[str, Any]) -> Pod:
    """What a pod is doing."""
    view = pod_view(pod, frozenset())
    states = (pod.get("status") or {}).get("containerStatuses") or ()
    container, port = engine_of(pod)
    own: Mapping[str, Any] = next((s for s in states if s.get("name") == container), {})
    running = "running" in (own.get("state") or {})
    labels = pod["metadata"].get("labels") or {}
    return Pod(
        name=view.name,
        uid=str(pod["metadata"].get("uid", "")),
        port=port,
        stage=_STAGES.get(view.phase),
        detail=view.detail,
        crashed=view.phase == "crashed",
        restarts=view.restarts,
        running=running,
        pool=labels.get(POOL),
        meant=labels.get(METHOD),
    )


def engine_of(pod: Mapping[str, Any]) -> tuple[str, int]:
    """The container that is the engine, and the port that it serves at.

    Ours by its name; else the one that asks for a GPU; else the one whose port is called as an
    engine's; else the first.
    """
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    chosen = min(
        containers, key=lambda c: (c.get("name") != CONTAINER, not _gpus(c), not _named(c))
    )
    ports = chosen.get("ports") or ()
    best: Mapping[str, Any] = min(ports, key=_rank, default={})
    return str(chosen.get("name", "")), int(best.get("containerPort") or PORT)


def _gpus(container: Mapping[str, Any]) -> bool:
    limits = (container.get("resources") or {}).get("limits") or {}
    return any(name.endswith("/gpu") or "nvidia.com/" in name for name in limits)


def _named(container: Mapping[str, Any]) -> bool:
    return any(each.get("name") in _PORT_NAMES for each in container.get("ports") or ())


def _rank(port: Mapping[str, Any]) -> int:
    name = port.get("name")
    if name in _PORT_NAMES:
        return _PORT_NAMES.index(name)
    return len(_PORT_NAMES) + (port.get("containerPort") != PORT)
