"""What objects refer to and do not bring along: a pod that names a missing Secret never starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from speccli.core.kube.refs import Ref

Object = Mapping[str, Any]


def needed(objects: Sequence[Object]) -> tuple[Ref, ...]:
    """What must be in the cluster before these are applied, once each, in order."""
    brought = {Ref.of(each).identity for each in objects}
    found: dict[Ref, None] = {}
    for each in objects:
        for ref in _of(each):
            if ref.identity not in brought:
                found[ref] = None
    return tuple(found)


def _of(value: Object) -> Iterator[Ref]:
    spec = value.get("spec") or {}
    template = (spec.get("template") or {}).get("spec")
    if isinstance(template, Mapping) and "containers" in template:
        yield from _of_pod(template, value["metadata"].get("namespace"))


def _of_pod(pod: Object, namespace: str | None) -> Iterator[Ref]:
    for container in (*(pod.get("initContainers") or ()), *pod["containers"]):
        yield from _of_environment(container, namespace)
    for volume in pod.get("volumes") or ():
        yield from _of_volume(volume, namespace)
    for each in pod.get("imagePullSecrets") or ():
        yield Ref("v1", "Secret", each["name"], namespace)
    if name := pod.get("priorityClassName"):
        yield Ref("scheduling.k8s.io/v1", "PriorityClass", name)
    if name := pod.get("runtimeClassName"):
        yield Ref("node.k8s.io/v1", "RuntimeClass", name)
    if name := pod.get("serviceAccountName"):
        yield Ref("v1", "ServiceAccount", name, namespace)


def _of_environment(container: Object, namespace: str | None) -> Iterator[Ref]:
    sources = [each.get("valueFrom") or {} for each in container.get("env") or ()]
    sources += container.get("envFrom") or ()
    for source in sources:
        for key, kind in (
            ("secretKeyRef", "Secret"),
            ("secretRef", "Secret"),
            ("configMapKeyRef", "ConfigMap"),
            ("configMapRef", "ConfigMap"),
        ):
            told = source.get(key)
            if told and not told.get("optional"):
                yield Ref("v1", kind, told["name"], namespace)


def _of_volume(volume: Object, namespace: str | None) -> Iterator[Ref]:
    secret, config = volume.get("secret"), volume.get("configMap")
    claim = volume.get("persistentVolumeClaim")
    if secret and not secret.get("optional"):
        yield Ref("v1", "Secret", secret["secretName"], namespace)
    if config and not config.get("optional"):
        yield Ref("v1", "ConfigMap", config["name"], namespace)
    if claim:
        yield Ref("v1", "PersistentVolumeClaim", claim["claimName"], namespace)
