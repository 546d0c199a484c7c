"""One fake kubelet for every node: `python -m tests.support.kube.kubelet SERVER FOLDER`.

Nodes and pods are as the API server has them; a pod that is bound to a node gets an address and a
process of specctl's simulator for each container that is a vLLM server. FOLDER has certificates and
behaviours, and gets the logs of containers. Beside it two things that a cluster brings: heartbeats
of the nodes, and a volume for each claim.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.kube.kubelet import logs
from tests.support.kube.kubelet.client import LOG, Client
from tests.support.kube.kubelet.container import Container
from tests.support.kube.kubelet.pod import Pod

Object = dict[str, Any]
_HEARTBEAT_S = 10.0
PROVISIONER = "specctl.dev/none"


class Kubelet:
    """The pods of every node."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._pods: dict[str, Pod] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._hosts: dict[str, str] = {}
        self._addresses = (
            f"10.200.{third}.{fourth}"
            for third, fourth in itertools.product(range(1, 255), range(1, 255))
        )

    async def watch_pods(self) -> None:
        """Take up each pod that is bound to a node."""
        async for kind, pod in self._client.watch("/api/v1/pods"):
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            if kind == "DELETED":
                if uid in self._pods:
                    self._pods[uid].leave(pod)
                continue
            done = pod["status"].get("phase") in ("Succeeded", "Failed")
            if uid not in self._pods and node and not done:
                self._take_up(pod, await self._host(node))
            if "deletionTimestamp" in pod["metadata"] and uid in self._pods:
                self._pods[uid].leave(pod)

    async def _host(self, node: str) -> str:
        if node not in self._hosts:
            _status, found = await self._client.ask("GET", f"/api/v1/nodes/{node}")
            addresses = found.get("status", {}).get("addresses", [])
            inner = [a["address"] for a in addresses if a["type"] == "InternalIP"]
            if not inner:
                return ""
            self._hosts[node] = inner[0]
        return self._hosts[node]

    def _take_up(self, pod: Object, host: str) -> None:
        taken = Pod(self._client, pod, self._folder, next(self._addresses), host)
        self._pods[taken.uid] = taken
        task = asyncio.create_task(taken.run())
        self._tasks.add(task)
        task.add_done_callback(self._forget(taken.uid))

    def _forget(self, uid: str) -> Callable[[asyncio.Task[None]], None]:
        def forget(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            del self._pods[uid]
            if not task.cancelled() and task.exception() is not None:
                LOG.error("a pod's task failed", exc_info=task.exception())

        return forget

    def find(self, namespace: str, name: str, container: str) -> Container | None:
        """A container by its names."""
        for pod in self._pods.values():
            if (pod.namespace, pod.name) == (namespace, name):
                for one in (*pod.containers, *pod.init):
                    if one.name == container:
                        return one
        return None

    async def heartbeats(self) -> None:
        """Renew each node's lease."""
        base = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        while True:
            _status, nodes = await self._client.ask("GET", "/api/v1/nodes")
            for node in nodes.get("items", []):
                name = node["metadata"]["name"]
                time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": time}
                body: Object = {"metadata": {"name": name}, "spec": spec}
                status, _ = await self._client.ask(
                    "PATCH", f"{base}/{name}", body, "application/merge-patch+json"
                )
                if status == 404:
                    await self._client.ask("POST", base, body)
            await asyncio.sleep(_HEARTBEAT_S)

    async def provision(self) -> None:
        """Give each claim of the test's storage class a volume, as a provisioner would."""
        async for kind, claim in self._client.watch("/api/v1/persistentvolumeclaims"):
            meta, spec = claim["metadata"], claim["spec"]
            name = f"pvc-{meta['uid']}"
            if kind == "DELETED":
                await self._client.ask("DELETE", f"/api/v1/persistentvolumes/{name}")
                continue
            if spec.get("volumeName") or "deletionTimestamp" in meta:
                continue
            volume = {
                "metadata": {
                    "name": name,
                    "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
                },
                "spec": {
                    "capacity": spec["resources"]["requests"],
                    "accessModes": spec["accessModes"],
                    "persistentVolumeReclaimPolicy": "Delete",
                    "storageClassName": spec.get("storageClassName", ""),
                    "hostPath": {"path": "/nonexistent"},
                    "claimRef": {
                        "kind": "PersistentVolumeClaim",
                        "namespace": meta["namespace"],
                        "name": meta["name"],
                        "uid": meta["uid"],
                    },
                },
            }
            await self._client.ask("POST", "/api/v1/persistentvolumes", volume)


async def main(server: str, folder: Path) -> None:
    """Run until ended."""
    async with Client(server, folder) as client:
        kubelet = Kubelet(client, folder)
        await logs.serve(folder, kubelet.find)
        await asyncio.gather(kubelet.watch_pods(), kubelet.heartbeats(), kubelet.provision())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
