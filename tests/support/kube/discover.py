"""Pods for Prometheus: `python -m tests.support.kube.discover SERVER FOLDER FILE`.

Debian's Prometheus is built without Kubernetes' service discovery. This one watches pods through
the API server as that does, and writes its targets, a container port each with the same meta
labels, for `file_sd_configs` to read.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.kube.kubelet.client import Client

Object = dict[str, Any]
META = "__meta_kubernetes_"


def label_name(text: str) -> str:
    """A label of a pod as Prometheus spells it."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", text)


def targets(pod: Object) -> Iterator[Object]:
    """A pod's container ports, once it has an address and until it is over."""
    address, phase = pod["status"].get("podIP"), pod["status"].get("phase")
    if not address or phase in ("Succeeded", "Failed"):
        return
    meta = pod["metadata"]
    labels = {f"{META}pod_label_{label_name(k)}": v for k, v in meta.get("labels", {}).items()}
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", []):
            yield {
                "targets": [f"{address}:{port['containerPort']}"],
                "labels": {
                    **labels,
                    f"{META}namespace": meta["namespace"],
                    f"{META}pod_name": meta["name"],
                    f"{META}pod_container_name": container["name"],
                    f"{META}pod_container_port_name": port.get("name", ""),
                },
            }


def write(path: Path, pods: Iterable[Object]) -> None:
    """Write the targets; Prometheus sees the whole file or the one before."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps([target for pod in pods for target in targets(pod)]))
    fresh.replace(path)


async def main(server: str, folder: Path, path: Path) -> None:
    """Run until ended."""
    pods: dict[str, Object] = {}
    async with Client(server, folder) as client:
        async for kind, pod in client.watch("/api/v1/pods"):
            if kind == "DELETED":
                pods.pop(pod["metadata"]["uid"], None)
            else:
                pods[pod["metadata"]["uid"]] = pod
            write(path, pods.values())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
