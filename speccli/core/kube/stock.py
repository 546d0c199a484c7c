"""How many pods of a deployment the cluster's free GPUs would take, and what a rollout may do.

Counted as the scheduler counts: a node's allocatable GPUs minus what its pods request. A pod's GPUs
are of one node, so eight nodes with one GPU free take no pod of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
_OWN_TAINTS = "node.kubernetes.io/"
"""What Kubernetes itself taints a node with that is cordoned or not ready."""
_GONE = frozenset({"Succeeded", "Failed"})
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """One node that a pod could run on."""

    name: str
    product: str
    allocatable: int
    requested: int
    driver: str | None = None
    """Of its GPUs, where GPU feature discovery tells it."""

    @property
    def free(self) -> int:
        """GPUs that no pod asks for."""
        return max(0, self.allocatable - self.requested)


@dataclass(frozen=True, slots=True)
class Stock:
    """What a pod template finds."""

    per_pod: int
    """GPUs that one pod asks for."""
    nodes: tuple[Node, ...]
    """That it could be put on."""
    products: tuple[str, ...]
    """Every GPU product of the cluster, wanted or not."""
    unknown: str | None = None
    """Why nothing is known; None: the rest is true."""
    away: tuple[str, ...] = ()
    """Nodes that would take a pod, were they not cordoned or not ready."""

    @property
    def free(self) -> int:
        """GPUs that no pod asks for."""
        return sum(node.free for node in self.nodes)

    @property
    def allocatable(self) -> int:
        """GPUs there are."""
        return sum(node.allocatable for node in self.nodes)

    @property
    def fits(self) -> int:
        """Pods that could be put now."""
        return sum(node.free // self.per_pod for node in self.nodes) if self.per_pod else 0

    @property
    def capacity(self) -> int:
        """Pods that could be put if nothing else ran."""
        return sum(node.allocatable // self.per_pod for node in self.nodes) if self.per_pod else 0

    def to_json(self) -> dict[str, Any]:
        """Plain values; None for what is not known."""
        known = self.unknown is None
        return {
            "state": "value" if known else "unknown",
            "reason": self.unknown,
            "gpus_per_pod": self.per_pod,
            "gpus_allocatable": self.allocatable if known else None,
            "gpus_free": self.free if known else None,
            "pods_that_fit": self.fits if known else None,
            "products": list(self.products),
        }


@dataclass(frozen=True, slots=True)
class Strategy:
    """How pods are replaced."""

    surge: int
    unavailable: int
    words: str
    """What that means for whoever uses the pool."""
    downtime: bool = False

    def spec(self) -> dict[str, Any]:
        """A Deployment's `strategy`."""
        return {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": self.surge, "maxUnavailable": self.unavailable},
        }


def gpus_of(pod_spec: Object) -> int:
    """GPUs that a pod with this spec asks for: containers add up, init containers take turns."""

    def asked(container: Object) -> int:
        resources = container.get("resources") or {}
        for place in ("limits", "requests"):
            value = (resources.get(place) or {}).get(GPU)
            if value is not None:
                return _whole(value)
        return 0

    together = sum(asked(each) for each in pod_spec.get("containers") or ())
    first = max((asked(each) for each in pod_spec.get("initContainers") or ()), default=0)
    return max(together, first)


def stock_of(pod_spec: Object, nodes: Sequence[Object], pods: Iterable[Object]) -> Stock:
    """What a pod with this spec would find.

    `pods`: of every namespace; those that have ended ask for nothing.
    """
    requested: dict[str, int] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in _GONE:
            requested[node] = requested.get(node, 0) + gpus_of(pod["spec"])
    products = {_product(node) for node in nodes if _gpus(node)}
    fitting = tuple(
        Node(name, _product(node), _gpus(node), requested.get(name, 0), _driver(node))
        for node in nodes
        if _gpus(node) and takes(node, pod_spec)
        for name in (str(node["metadata"]["name"]),)
    )
    per_pod = gpus_of(pod_spec)
    away = tuple(
        str(node["metadata"]["name"])
        for node in nodes
        if _gpus(node) >= max(1, per_pod) and not _serves(node) and _suits(node, pod_spec)
    )
    return Stock(per_pod, fitting, tuple(sorted(products)), away=away)


def _gpus(node: Object) -> int:
    return _whole(((node.get("status") or {}).get("allocatable") or {}).get(GPU, 0))


def _product(node: Object) -> str:
    return str((node["metadata"].get("labels") or {}).get(PRODUCT, "no product label"))


def _driver(node: Object) -> str | None:
    labels = node["metadata"].get("labels") or {}
    if whole := labels.get("nvidia.com/cuda.driver-version.full"):
        return str(whole)
    parts = [labels.get(f"nvidia.com/cuda.driver.{part}") for part in ("major", "minor", "rev")]
    return ".".join(map(str, parts)) if all(parts) else None


def _whole(value: Any) -> int:
    try:
        return int(str(value))
    except ValueError:
        return 0  # GPUs are whole: the API server refuses anything else


def takes(node: Object, pod_spec: Object) -> bool:
    """Whether the scheduler would consider the node at all, GPUs apart."""
    return _serves(node) and _suits(node, pod_spec)


def _serves(node: Object) -> bool:
    """Whether it takes pods now."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return ready and not (node.get("spec") or {}).get("unschedulable")


def _suits(node: Object, pod_spec: Object) -> bool:
    """Whether such a pod belongs there; the taints of being away apart."""
    tolerations = pod_spec.get("tolerations") or ()
    for taint in (node.get("spec") or {}).get("taints") or ():
        if not _serves(node) and str(taint.get("key")).startswith(_OWN_TAINTS):
            continue
        if taint.get("effect") in {"NoSchedule", "NoExecute"} and not any(
            _tolerates(each, taint) for each in tolerations
        ):
            return False
    labels = node["metadata"].get("labels") or {}
    wanted = (pod_spec.get("nodeSelector") or {}).items()
    return all(labels.get(key) == value for key, value in wanted) and _affine(pod_spec, node)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    key = toleration.get("key")
    if toleration.get("operator") == "Exists":
        return not key or key == taint.get("key")
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return key == taint.get("key") and same


def _affine(pod_spec: Object, node: Object) -> bool:
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(_matches(each, labels) for each in term.get("matchExpressions") or ())
        and all(_matches(each, fields) for each in term.get("matchFields") or ())
        for term in required.get("nodeSelectorTerms") or ()
        if term.get("matchExpressions") or term.get("matchFields")
    )


def _matches(expression: Object, labels: Mapping[str, str]) -> bool:
    key, operator = expression["key"], expression["operator"]
    values, told = expression.get("values") or (), labels.get(key)
    match operator:
        case "In":
            return told in values
        case "NotIn":
            return told not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" | "Lt":
            if told is None or not told.lstrip("-").isdigit() or not values:
                return False
            return int(told) > int(values[0]) if operator == "Gt" else int(told) < int(values[0])
    return False


def strategy(stock: Stock, replicas: int, spoken_for: int = 0) -> Strategy:
    """How the pods of a pool of `replicas` are replaced with the GPUs there are.

    `spoken_for`: pods that others are about to put on the same GPUs.

    A surge without a free GPU is a pod that waits for ever, so without one pods go before others
    come. Where nothing is known, a pool of one is not taken away on a guess.
    """
    if stock.unknown is not None:
        if replicas <= 1:
            words = (
                f"free GPUs are not known ({stock.unknown}): the one pod goes when its successor "
                "is ready, which waits where no GPU is free"
            )
            return Strategy(1, 0, words)
        words = f"free GPUs are not known ({stock.unknown}): {_LESS.format(replicas - 1, replicas)}"
        return Strategy(0, 1, words)
    fits = stock.fits - spoken_for
    if stock.per_pod == 0:
        return Strategy(1, 0, "it asks for no GPU: a pod goes when its successor is ready")
    if fits > 0:
        more = f"{fits} more pods fit" if fits != 1 else "one more pod fits"
        return Strategy(
            1, 0, f"{more}: a pod goes when its successor is ready; no capacity is lost"
        )
    words = f"no node has {stock.per_pod} {'GPU' if stock.per_pod == 1 else 'GPUs'} free: "
    if replicas <= 1:
        words += (
            "the one pod goes before its successor comes. THAT IS DOWNTIME, as long as a start "
            "takes; with a free GPU there would be none"
        )
        return Strategy(0, 1, words, downtime=True)
    return Strategy(0, 1, words + _LESS.format(replicas - 1, replicas))


_LESS = "one pod goes before its successor comes; {} of {} serve meanwhile"
