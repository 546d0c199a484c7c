"""Made-up GPU nodes: what a kubelet, GPU feature discovery and the device plugin say of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.support.kube.api import STRATEGIC, Api, RefusedError, until

Object = dict[str, Any]
KUBELET_PORT: Final = 10250
H100: Final = "NVIDIA-H100-80GB-HBM3"
H200: Final = "NVIDIA-H200"
_MEMORY_MIB: Final = {H100: 81559, H200: 143771, "NVIDIA-H100-NVL": 95830}


@dataclass(frozen=True, slots=True)
class Node:
    """A node of one kind of GPU, or of none."""

    name: str
    number: int
    """Its address is 10.200.0.NUMBER."""
    product: str = H100
    gpus: int = 8

    @property
    def address(self) -> str:
        return f"10.200.0.{self.number}"

    def labels(self) -> dict[str, str]:
        """As the kubelet and GPU feature discovery set them."""
        found = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }
        if self.gpus:
            found |= {
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.product": self.product,
                "nvidia.com/gpu.count": str(self.gpus),
                "nvidia.com/gpu.memory": str(_MEMORY_MIB[self.product]),
                "nvidia.com/gpu.family": "hopper",
                "nvidia.com/mig.capable": "true",
            }
        return found

    def spec(self) -> Object:
        """With the taint that keeps other pods off GPU nodes."""
        taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
        return {"taints": [taint]} if self.gpus else {}

    def status(self, now: str) -> Object:
        """Ready, with room for a server of eight GPUs."""
        room = {"cpu": "192", "memory": "2000Gi", "ephemeral-storage": "1000Gi", "pods": "110"}
        if self.gpus:
            room["nvidia.com/gpu"] = str(self.gpus)
        pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
        conditions = [
            {"type": kind, "status": "False", "reason": "KubeletHas", "lastHeartbeatTime": now}
            for kind in pressures
        ]
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        return {
            "capacity": room,
            "allocatable": room,
            "conditions": [*conditions, {**ready, "lastHeartbeatTime": now}],
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": "v1.37.2",
                "osImage": "made up for tests",
                "kernelVersion": "0",
                "containerRuntimeVersion": "none://0",
                "bootID": "",
                "kubeProxyVersion": "",
                "machineID": "",
                "systemUUID": "",
            },
        }


NODES: Final = (
    Node("h100-a", 11),
    Node("h100-b", 12),
    Node("h200-a", 13, H200),
    Node("cpu-a", 14, gpus=0),
)
"""The nodes that every plane has."""


def add(api: Api, node: Node, now: str) -> None:
    """Make a node; the fake kubelet finds it by itself."""
    meta = {"name": node.name, "labels": node.labels()}
    api.create({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": node.spec()})
    api.patch("Node", node.name, {"status": node.status(now)}, sub="status", content_type=STRATEGIC)
    _wait_for_untaint(api, node)


def remove(api: Api, node: Node) -> None:
    """Take a node away; nothing happens where it is gone already."""
    try:
        api.delete("Node", node.name)
    except RefusedError as error:
        if error.status != 404:
            raise


def _wait_for_untaint(api: Api, node: Node) -> None:
    """The node controller takes its not-ready taint away a moment after the node is ready."""

    def ready() -> bool:
        taints = api.get("Node", node.name)["spec"].get("taints", [])
        return not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)

    until(ready, f"node {node.name} to lose its not-ready taint")
