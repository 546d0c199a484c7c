"""Where weights, compiled graphs, shared memory and scratch files lie."""

from __future__ import annotations

from typing import Any

from speccli.core.manifests import names, sizes
from speccli.core.manifests.pools import Unit
from speccli.core.manifests.quantities import gib
from speccli.core.manifests.refuse import MODELS
from speccli.core.recipes.model import Storage

Object = dict[str, Any]

HOME = "/home/vllm"
CACHE = "/cache"


def models_claim(deployment: str, storage: Storage) -> str | None:
    """The claim that holds the weights; None: none does."""
    if storage.source == "image":
        return None
    if storage.claim:
        return storage.claim
    return f"{deployment}-models" if storage.persist else None


def cache_claim(deployment: str, storage: Storage) -> str | None:
    """The claim that holds compiled graphs; None: they go with the pod."""
    if storage.cache_claim:
        return storage.cache_claim
    return f"{deployment}-cache" if storage.persist else None


def volumes(unit: Unit) -> list[Object]:
    """The pod's volumes."""
    storage = unit.recipe.storage
    shm = sizes.SHM_GIB[unit.recipe.hardware.count > 1]
    scratch = {"sizeLimit": gib(sizes.SCRATCH_GIB)}
    return [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": gib(shm)}},
        {"name": "models", **_models(unit)},
        {"name": "cache", **_claimed(cache_claim(unit.deployment, storage), storage.cache_gib)},
        {"name": "home", "emptyDir": dict(scratch)},
        {"name": "tmp", "emptyDir": dict(scratch)},
    ]


def mounts(unit: Unit) -> list[Object]:
    """The container's mounts: only what is named here can be written."""
    models: Object = {"name": "models", "mountPath": MODELS}
    if unit.recipe.storage.source != "hub":
        models["readOnly"] = True
    return [
        {"name": "shm", "mountPath": "/dev/shm"},
        models,
        {"name": "cache", "mountPath": CACHE},
        {"name": "home", "mountPath": HOME},
        {"name": "tmp", "mountPath": "/tmp"},
    ]


def _models(unit: Unit) -> Object:
    storage = unit.recipe.storage
    if storage.source == "image":
        return {"image": {"reference": storage.image, "pullPolicy": "IfNotPresent"}}
    claim = models_claim(unit.deployment, storage)
    if claim is None:
        return _claimed(None, sizes.claim_gib(unit.plan))
    volume = _claimed(claim, 0)
    if storage.source == "pvc":
        volume["persistentVolumeClaim"]["readOnly"] = True
    return volume


def _claimed(claim: str | None, size: int) -> Object:
    if claim is None:
        return {"emptyDir": {"sizeLimit": gib(size)}}
    return {"persistentVolumeClaim": {"claimName": claim}}


def claims(unit: Unit, namespace: str, shared: bool) -> list[Object]:
    """The claims that are made: those nobody named. `shared`: by more than one pod at once."""
    storage = unit.recipe.storage
    if not storage.persist:
        return []
    wanted = []
    if storage.source == "hub" and not storage.claim:
        wanted.append((f"{unit.deployment}-models", sizes.claim_gib(unit.plan)))
    if not storage.cache_claim:
        wanted.append((f"{unit.deployment}-cache", storage.cache_gib))
    access = storage.access or ("ReadWriteMany" if shared else "ReadWriteOnce")
    kind = {"storageClassName": storage.class_name} if storage.class_name is not None else {}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": names.meta(name, namespace, unit.deployment),
            "spec": {
                "accessModes": [access],
                **kind,
                "resources": {"requests": {"storage": gib(size)}},
            },
        }
        for name, size in wanted
    ]
