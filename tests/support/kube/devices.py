"""GPUs as NVIDIA's driver for dynamic resource allocation tells them: a class, slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.kube.nodes import H100, H200, Node

Object = dict[str, Any]
DRIVER = "gpu.nvidia.com"
_NAMES = {H100: ("NVIDIA H100 80GB HBM3", "81559Mi"), H200: ("NVIDIA H200", "143771Mi")}


def device_class() -> Object:
    """What a claim asks for."""
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def slices(nodes: tuple[Node, ...]) -> Iterator[Object]:
    """The GPUs of each node that has any."""
    for node in nodes:
        if not node.gpus:
            continue
        product, memory = _NAMES[node.product]
        devices = [
            {
                "name": f"gpu-{index}",
                "attributes": {
                    "type": {"string": "gpu"},
                    "uuid": {"string": f"GPU-{node.name}-{index}"},
                    "productName": {"string": product},
                    "architecture": {"string": "Hopper"},
                },
                "capacity": {"memory": {"value": memory}},
            }
            for index in range(node.gpus)
        ]
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node.name}-{DRIVER}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": node.name,
                "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }
