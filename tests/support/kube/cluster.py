"""What a test gets: a namespace of its own on the session's control plane, with GPU nodes and pods.

How it works. The plane (`plane.py`) and all its programs live in a network namespace of their own
(`space.py`, needs root), so that pods can have addresses to which the API server's proxy and
Prometheus connect. pytest itself stays outside and reaches the API server at a port of 127.0.0.1,
as specctl does: `cluster.kubeconfig` is a file for both. The API server, controllers and scheduler
are real; nodes are made up (`nodes.py`): `h100-a` and `h100-b` with eight H100, `h200-a` with eight
H200, `cpu-a` with none. One fake kubelet (`kubelet/`) serves all of them: a pod that was bound to
one gets an address and, for a vLLM container, a process of specctl's simulator (`engine.py`) that
takes model, speculation, limits and drain from the container's own arguments. Its probes, restarts,
back-offs, events, logs (of the run before, too) and graceful end are those of a kubelet, but probe
periods, back-offs and preStop sleeps last a twentieth of what they say.

What pods do otherwise, a test says beforehand:

    cluster.pods(Behaviour(load_s=3), Behaviour(contains="nvfp4", crash_log="CUDA out of memory"))

Rules are read when a container starts; of several that fit, the last one counts.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.kube import behaviour, definitions, devices, keda, nodes
from tests.support.kube.api import Api, RefusedError, until
from tests.support.kube.behaviour import Behaviour
from tests.support.kube.binaries import built
from tests.support.kube.nodes import NODES, Node
from tests.support.kube.plane import Plane

__all__ = ["Behaviour", "Cluster", "Node", "RefusedError", "World", "until"]

Object = dict[str, Any]
_numbers = itertools.count(1)
_PROVISIONER = "specctl.dev/none"


class World:
    """A plane with nodes, a kubelet and the kinds of KEDA: `with World(plane) as world`."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self._keda = self._devices = False

    def need_keda(self) -> None:
        """Start KEDA, unless it runs."""
        if not self._keda:
            keda.start(self.plane)
            self._keda = True

    def __enter__(self) -> World:
        plane = self.plane
        plane.api.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {
                    "name": "standard",
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                },
                "provisioner": _PROVISIONER,
            }
        )
        for definition in (*definitions.monitoring(), *definitions.keda(built("keda"))):
            plane.api.create(definition)
        self.kubelet = plane.space.start(
            "kubelet",
            sys.executable,
            "-m",
            "tests.support.kube.kubelet",
            plane.server_inside,
            plane.folder,
        )
        for node in NODES:
            nodes.add(plane.api, node, _now())
        return self

    def need_devices(self) -> None:
        """Publish the nodes' GPUs for dynamic resource allocation too, unless they are."""
        if not self._devices:
            for body in (devices.device_class(), *devices.slices(NODES)):
                self.plane.api.create(body)
            self._devices = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.plane.space.stop(self.kubelet)


class Cluster:
    """A namespace on a world: `with Cluster(world) as cluster`.

    Attributes:
        namespace: Its name, which is also the namespace of the kubeconfig's context.
        api: An administrator's client for it that is not specctl's.
        kubeconfig: The administrator's, context `real`.
    """

    context = "real"

    def __init__(self, world: World) -> None:
        self.world = world
        self._plane = world.plane
        self.namespace = f"test-{next(_numbers)}"
        self.api = Api(self._plane.kubeconfig, self.namespace)
        self._nodes: list[Node] = []

    def __enter__(self) -> Cluster:
        meta = {"name": self.namespace}
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        self.kubeconfig = self._plane.write_kubeconfig(
            f"kubeconfig-{self.namespace}", namespace=self.namespace
        )
        until(lambda: self.api.find("ServiceAccount", "default"), "the default service account")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Nothing new comes into a namespace that is being deleted. It takes ten seconds to go, but
        # only its pods are in the way of the next test.
        self._delete_quietly("Namespace", self.namespace)
        for pod in self.api.objects("Pod"):
            self._delete_quietly("Pod", pod["metadata"]["name"])
        until(lambda: not self.api.objects("Pod"), "the pods to go")
        for one in self.api.objects("PriorityClass", {"app.kubernetes.io/managed-by": "specctl"}):
            self._delete_quietly("PriorityClass", one["metadata"]["name"])
        for node in self._nodes:
            nodes.remove(self.api, node)

    def _delete_quietly(self, kind: str, name: str) -> None:
        try:
            self.api.delete(kind, name, grace_s=0)
        except RefusedError as error:
            if error.status not in (404, 409):
                raise

    def pods(self, *rules: Behaviour) -> None:
        """Say what the namespace's pods do from their next start on."""
        behaviour.write(self._plane.folder, self.namespace, rules)

    def add_node(self, name: str, product: str = nodes.H100, gpus: int = 8) -> Node:
        """Add a node that goes with the test."""
        node = Node(name, 20 + next(_numbers) % 200, product, gpus)
        self._nodes.append(node)
        nodes.add(self.api, node, _now())
        return node

    def account(
        self, name: str, rules: Sequence[Object], cluster_rules: Sequence[Object] = ()
    ) -> Path:
        """A service account that may do what `rules` say (RBAC); its kubeconfig."""
        group = "rbac.authorization.k8s.io"
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
        meta = {"name": name}
        self.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        whole = {"name": f"{self.namespace}-{name}"}
        for prefix, named, allowed in (("", meta, rules), ("Cluster", whole, cluster_rules)):
            version = {"apiVersion": f"{group}/v1"}
            role = {"apiGroup": group, "kind": f"{prefix}Role", "name": named["name"]}
            self.api.create(
                {**version, "kind": f"{prefix}Role", "metadata": named, "rules": [*allowed]}
            )
            self.api.create(
                {
                    **version,
                    "kind": f"{prefix}RoleBinding",
                    "metadata": named,
                    "roleRef": role,
                    "subjects": [subject],
                }
            )
        return self._plane.write_kubeconfig(
            f"kubeconfig-{self.namespace}-{name}",
            token=self.token(name),
            namespace=self.namespace,
        )

    def token(self, account: str, seconds: int = 3600) -> str:
        """A token of a service account, good for at least ten minutes."""
        path = f"{self.api.path('ServiceAccount', account)}/token"
        spec = {"spec": {"expirationSeconds": seconds}}
        token: str = self.api.ask("POST", path, spec)["status"]["token"]
        return token

    def pod_names(self, labels: Mapping[str, str] | None = None) -> list[str]:
        """The names of the pods with these labels."""
        return [pod["metadata"]["name"] for pod in self.api.objects("Pod", labels)]

    def wait_ready(
        self, count: int, labels: Mapping[str, str] | None = None, patience_s: float = 180.0
    ) -> list[Object]:
        """Wait until exactly so many pods have these labels and all are ready."""

        def look() -> list[Object] | None:
            pods = self.api.objects("Pod", labels)
            return pods if len(pods) == count and all(map(is_ready, pods)) else None

        return until(look, f"{count} ready pods", patience_s) if count else []

    def diagnosis(self) -> str:
        """What the kubelet and the pods say; for the message of a failed test."""
        kubelet = self._plane.space.log("kubelet").read_text()[-3000:]
        pods = [(p["metadata"]["name"], p["status"]) for p in self.api.objects("Pod")]
        return f"kubelet:\n{kubelet}\npods: {pods}"


def is_ready(pod: Object) -> bool:
    """Whether a pod's condition Ready is true."""
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
