"""The kernel checks as a Kubernetes Job: the engine's image, one GPU, restricted security.

The package travels in a ConfigMap, so the image needs nothing but its own Python, torch and engine.
"""

from __future__ import annotations

import base64
import gzip
import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "specctl-kernels-check"
CONTAINER = "kernels-check"
ARCHIVE = "kernels_check.tgz"
PACKED, WORK = "/check", "/work"
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/managed-by": "specctl"}
USER = 10001
KEPT_S = 3600
"""How long a Job that nobody cleaned up stays after its end."""
_GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@dataclass(frozen=True)
class JobRequest:
    """Where and how."""

    image: str
    """The engine's image, as it is deployed (best by digest: it is written into the result)."""
    namespace: str = "default"
    node: str | None = None
    """One node, by its host name; None: any with a GPU."""
    arguments: tuple[str, ...] = ()
    deadline_s: int = 900
    name: str = NAME
    tolerations: tuple[Mapping[str, Any], ...] = ()
    """Of the deployment, beyond the usual taint of GPU nodes."""
    selector: Mapping[str, str] | None = None
    """Labels of the nodes that the deployment wants."""
    pull_secrets: tuple[str, ...] = ()


def objects(request: JobRequest, package: Path) -> list[dict[str, Any]]:
    """A ConfigMap with the package, and the Job."""
    metadata = {"name": request.name, "namespace": request.namespace, "labels": LABELS}
    archive = base64.b64encode(pack(package)).decode()
    source = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "binaryData": {ARCHIVE: archive},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": request.deadline_s,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"metadata": {"labels": LABELS}, "spec": _pod(request)},
        },
    }
    return [source, job]


def pack(package: Path) -> bytes:
    """The package as an archive, the same bytes for the same files."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                entry = tarfile.TarInfo(f"{package.name}/{path.relative_to(package)}")
                entry.size = path.stat().st_size
                with path.open("rb") as content:
                    archive.addfile(entry, content)
    return gzip.compress(held.getvalue(), mtime=0)


def command(arguments: Sequence[str]) -> list[str]:
    """Unpack, then become the checks: their exit code is the pod's."""
    script = (
        f'python3 -m tarfile -e {PACKED}/{ARCHIVE} {WORK} && mkdir -p "$HOME" "$TMPDIR" && '
        f'cd {WORK} && exec python3 -m kernels_check -o lines "$@"'
    )
    return ["/bin/sh", "-ec", script, "kernels-check", *arguments]


def _pod(request: JobRequest) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [
            _GPU_TAINT,
            *(dict(each) for each in request.tolerations if each != _GPU_TAINT),
        ],
        "containers": [_container(request)],
        "volumes": [
            {"name": "check", "configMap": {"name": request.name}},
            {"name": "work", "emptyDir": {"sizeLimit": "8Gi"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ],
    }
    selector = dict(request.selector or {})
    if request.node:
        selector["kubernetes.io/hostname"] = request.node
    if selector:
        pod["nodeSelector"] = selector
    if request.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in request.pull_secrets]
    return pod


def _container(request: JobRequest) -> dict[str, Any]:
    environment = {
        "HOME": f"{WORK}/home",
        "TMPDIR": f"{WORK}/tmp",
        "XDG_CACHE_HOME": f"{WORK}/cache",
        "TRITON_CACHE_DIR": f"{WORK}/cache/triton",
        "VLLM_CACHE_ROOT": f"{WORK}/cache/vllm",
        "VLLM_NO_USAGE_STATS": "1",
        "KERNELS_CHECK_IMAGE": request.image,
    }
    return {
        "name": CONTAINER,
        "image": request.image,
        "command": command(request.arguments),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": {
            "requests": {"cpu": "4", "memory": "16Gi"},
            "limits": {"memory": "64Gi", "nvidia.com/gpu": 1},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "check", "mountPath": PACKED, "readOnly": True},
            {"name": "work", "mountPath": WORK},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
