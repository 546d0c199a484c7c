"""The stages as a Kubernetes Job: an image with vLLM and Speculators, one GPU, restricted security.

What the stages read travels in ConfigMaps, so nothing is to be built or uploaded; what they make
stays on a claim, so a pod that was evicted goes on where it ended.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speccli.core.errors import SpecctlError, UsageError
from speccli.core.kernels_job import USER, pack
from speccli.core.training.job import STAGES, Prepared, Wanted, checked, prepare
from speccli.core.training.lock import alone
from speccli.core.training.package import PACKAGE, package

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

_CODE, _PROMPTS, _OUT, _MODELS = "/job", "/prompts", "/out", "/models"
_ARCHIVE = f"{PACKAGE}.tgz"
_PART = 700_000
"""Bytes of prompts in one ConfigMap: an object of etcd holds 1.5 MB, and base64 adds a third."""
_MOST_PARTS = 16
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_SIZE = re.compile(
    r"(?=[\d.]*[1-9])(\d+\.?\d*|\.\d+)([KMGTPE]i|[numkMGTPE]?|[eE][+-]?\d+)", re.ASCII
)
"""A Kubernetes quantity over 0."""
_RETRIES = 3
_BESIDES_S = 4 * 3600
"""For the image, the weights, the answers and a retry."""
_BY_STEPS_S = 24 * 3600
"""Where steps end it, nobody can tell beforehand how long they take."""
_GONE_S = 120.0
_GRACE_S = 90
"""For the checkpoint that an eviction writes."""


@dataclass(frozen=True, slots=True)
class Request:
    """Where and how."""

    image: str
    name: str
    namespace: str
    storage: str = "50Gi"
    storage_class: str | None = None
    models_claim: str | None = None
    """A claim that holds the target, and a head to go on from; it is at /models."""
    deadline_s: int = _BY_STEPS_S

    @classmethod
    def of(cls, wanted: Wanted, image: str | None, namespace: str | None, **rest: Any) -> Request:
        """A request named after the folder.

        Raises:
            UsageError: no image, a folder whose name is no name of an object, or a job that reads
                what only this machine has.
        """
        if not image:
            raise UsageError(
                "--to kubernetes needs an image", hint="--image one with vLLM and Speculators"
            )
        name = wanted.out.absolute().name.lower().replace("_", "-").replace(".", "-")
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--out {wanted.out}: {name!r} is no name for a Job",
                hint="letters, digits and -, at most 40",
            )
        named = [("the target", wanted.target), ("--init", str(wanted.init or ""))]
        for what, path in named:
            _there(what, path, rest.get("models_claim"))
        if "storage" in rest and not _SIZE.fullmatch(rest["storage"]):
            raise UsageError(
                f"--storage {rest['storage']} is no size", hint="a Kubernetes quantity: 50Gi, 1.5Ti"
            )
        checked(replace(wanted, elsewhere=True))
        if wanted.minutes is not None:
            rest.setdefault("deadline_s", round(_BESIDES_S + 90 * wanted.minutes))
        return cls(image, name, namespace or "", **rest)


def _there(what: str, path: str, claim: str | None) -> None:
    """That pods have what is named: what lies on the claim is looked at by the first stage.

    Raises:
        UsageError: it lies on this machine, or on a claim that is not named.
    """
    if path.startswith(f"{_MODELS}/"):
        if claim is None:
            raise UsageError(
                f"{what} {path} lies on a claim, and none is named", hint="--models-claim NAME"
            )
        return
    here = what == "--init" or path.startswith((".", "/", "~")) or Path(path).is_dir()
    if path and here:
        hub = "a name on the hub, or " if what != "--init" else ""
        raise UsageError(
            f"{what} {path} lies on this machine, and pods have none of it",
            hint=f"{hub}put it on a claim: {_MODELS}/… with --models-claim NAME",
        )


def objects_for(request: Request, wanted: Wanted) -> list[dict[str, Any]]:
    """The objects of a job that is prepared here and now.

    Raises:
        UsageError: it cannot be trained so, or its prompts are too many.
        SpecctlError: a training is at work in the folder.
    """
    with alone(wanted.out):
        return objects(request, prepare(replace(wanted, elsewhere=True)))


def apply(made: list[dict[str, Any]], cluster: Cluster) -> str:
    """Apply them; `NAMESPACE/NAME` of the Job. One that has ended makes room, its claim stays.

    Raises:
        UsageError: the Job is running: what it reads must not change under it.
        ClusterError: the server refuses one.
    """
    for each in made:
        each["metadata"]["namespace"] = each["metadata"].get("namespace") or cluster.namespace
    name, namespace = made[-1]["metadata"]["name"], made[-1]["metadata"]["namespace"]
    _make_room(cluster, namespace, name)
    for each in made:
        cluster.apply(each)
    return f"{namespace}/{name}"


def _make_room(cluster: Cluster, namespace: str, name: str) -> None:
    job = cluster.get("batch/v1", "Job", name, namespace)
    if job is None:
        return
    told = (job.get("status") or {}).get("conditions") or []
    ended = {c["type"] for c in told if c.get("status") == "True"} & {"Complete", "Failed"}
    if not ended:
        raise UsageError(
            f"job {namespace}/{name} is running",
            hint=f"kubectl -n {namespace} logs -f job/{name}; or delete it first",
        )
    cluster.delete("batch/v1", "Job", name, namespace)
    give_up = time.monotonic() + _GONE_S
    while cluster.get("batch/v1", "Job", name, namespace) is not None:
        if time.monotonic() >= give_up:
            raise SpecctlError(f"the ended job {namespace}/{name} does not go away")
        time.sleep(0.5)


def objects(request: Request, prepared: Prepared) -> list[dict[str, Any]]:
    """A claim, ConfigMaps and the Job, in the order they are to be applied.

    Raises:
        UsageError: the prompts are more than ConfigMaps should carry.
    """
    packed = gzip.compress(Path(prepared.document["prompts"]).read_bytes(), mtime=0)
    parts = [packed[at : at + _PART] for at in range(0, len(packed), _PART)]
    if len(parts) > _MOST_PARTS:
        raise UsageError(
            f"{prepared.trained_on} prompts are {len(packed) / 1e6:.0f} MB packed",
            hint=f"at most {_MOST_PARTS * _PART / 1e6:.0f} MB travel with a Job: use --prompts",
        )
    code = {_ARCHIVE: base64.b64encode(pack(package())).decode()}
    made = [
        _claim(request),
        _config(request, "code", code, {"job.json": _job_file(prepared.document)}),
    ]
    for number, part in enumerate(parts):
        held = {f"prompts-{number:02d}": base64.b64encode(part).decode()}
        made.append(_config(request, f"prompts-{number:02d}", held, {}))
    return [*made, _job(request, len(parts))]


def _job_file(document: Mapping[str, Any]) -> str:
    moved = {**document, "out": _OUT, "prompts": f"{_OUT}/work/prompts.jsonl"}
    return json.dumps(moved, indent=1)


def _metadata(request: Request, suffix: str = "") -> dict[str, Any]:
    return {
        "name": f"{request.name}-{suffix}" if suffix else request.name,
        **({"namespace": request.namespace} if request.namespace else {}),
        "labels": _labels(request),
    }


def _labels(request: Request) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "specctl-draft-train",
        "app.kubernetes.io/instance": request.name,
        "app.kubernetes.io/managed-by": "specctl",
    }


def _claim(request: Request) -> dict[str, Any]:
    chosen = {"storageClassName": request.storage_class} if request.storage_class else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(request),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": request.storage}},
            **chosen,
        },
    }


def _config(
    request: Request, suffix: str, binary: Mapping[str, str], text: Mapping[str, str]
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(request, suffix),
        "binaryData": dict(binary),
    }
    return made | ({"data": dict(text)} if text else {})


def _job(request: Request, parts: int) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(request),
        "spec": {
            "backoffLimit": _RETRIES,
            "activeDeadlineSeconds": request.deadline_s,
            "template": {"metadata": {"labels": _labels(request)}, "spec": _pod(request, parts)},
        },
    }


def _pod(request: Request, parts: int) -> dict[str, Any]:
    prompts = [
        {"configMap": {"name": f"{request.name}-prompts-{number:02d}"}} for number in range(parts)
    ]
    volumes: list[dict[str, Any]] = [
        {"name": "code", "configMap": {"name": f"{request.name}-code"}},
        {"name": "prompts", "projected": {"sources": prompts}},
        {"name": "out", "persistentVolumeClaim": {"claimName": request.name}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "20Gi"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
    ]
    if request.models_claim:
        claim = {"claimName": request.models_claim, "readOnly": True}
        volumes.append({"name": "models", "persistentVolumeClaim": claim})
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [_container(request)],
        "volumes": volumes,
    }


def _container(request: Request) -> dict[str, Any]:
    stages = " ".join(STAGES)
    # exec is not possible in a loop: the shell passes the signal of an eviction on.
    script = (
        f"mkdir -p {_OUT}/work $HOME; "
        f"cat {_PROMPTS}/prompts-* | python3 -m gzip -d - > {_OUT}/work/prompts.jsonl; "
        f"python3 -m tarfile -e {_CODE}/{_ARCHIVE} $HOME; cd $HOME; "
        "trap 'kill -TERM $stage; wait $stage; exit 143' TERM; "
        f"set -- {stages}; while [ $# -gt 0 ]; do name=$1; shift; "
        f'python3 -m {PACKAGE} $name {_CODE}/job.json "$@" & stage=$!; wait $stage; done'
    )
    mounts = [
        {"name": "code", "mountPath": _CODE, "readOnly": True},
        {"name": "prompts", "mountPath": _PROMPTS, "readOnly": True},
        {"name": "out", "mountPath": _OUT},
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    if request.models_claim:
        mounts.append({"name": "models", "mountPath": _MODELS, "readOnly": True})
    environment = {
        "HOME": "/scratch/home",
        "TMPDIR": "/scratch",
        "USER": "specctl",
        "XDG_CACHE_HOME": "/scratch/cache",
        "TRITON_CACHE_DIR": "/scratch/cache/triton",
        "VLLM_CACHE_ROOT": "/scratch/cache/vllm",
        "HF_HOME": f"{_OUT}/work/hub",
        "VLLM_NO_USAGE_STATS": "1",
    }
    return {
        "name": "train",
        "image": request.image,
        "command": ["/bin/sh", "-euc", script],
        "env": [
            *({"name": name, "value": value} for name, value in environment.items()),
            {
                "name": "HF_TOKEN",
                "valueFrom": {
                    "secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}
                },
            },
        ],
        "resources": {
            "requests": {"cpu": "8", "memory": "32Gi"},
            "limits": {"memory": "128Gi", "nvidia.com/gpu": 1},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
