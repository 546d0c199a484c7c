"""Who owns which field of an object, and what of an object says something.

Server-side apply keeps, for each manager, the fields that it set. A field that a manager no longer
sends goes back to its default unless another manager has it too: for `spec.replicas` that is one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speccli.core.manifests.names import MANAGER

HANDOVER = "specctl-handover"
"""Holds `spec.replicas` while it goes from the recipe to an autoscaler, or back."""
REPLICAS = ("spec", "replicas")
_AUTOSCALERS = frozenset({"kube-controller-manager", "keda", "keda-operator"})
"""Who writes `scale` for an autoscaler: its controller, and KEDA itself from nought and to it."""
_NOISE = frozenset(
    {"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"}
)
_NOISY_ANNOTATIONS = frozenset({"deployment.kubernetes.io/revision"})
_HIDDEN = "(not shown)"
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """One manager that set a field."""

    manager: str
    operation: str
    """`Apply` or `Update`."""
    subresource: str = ""
    """`scale` for an autoscaler."""


def owners(live: Object, path: Sequence[str]) -> tuple[Owner, ...]:
    """Who set the field at this path of plain keys."""
    found = []
    for entry in live["metadata"].get("managedFields") or ():
        fields: Any = entry.get("fieldsV1") or {}
        for key in path:
            fields = fields.get(f"f:{key}") if isinstance(fields, Mapping) else None
        if fields is not None:
            owner = (entry.get("manager"), entry.get("operation"), entry.get("subresource"))
            found.append(Owner(*(str(each or "") for each in owner)))
    return tuple(found)


def replicas_of(value: Object) -> int | None:
    """`spec.replicas`; None where it is not said."""
    told = (value.get("spec") or {}).get("replicas")
    return told if isinstance(told, int) else None


def gives_up_replicas(live: Object | None, wanted: Object) -> bool:
    """Whether applying `wanted` would set the replicas back to one.

    So it is where specctl said how many there are, and now leaves that to an autoscaler.
    """
    if live is None or replicas_of(wanted) is not None or replicas_of(live) is None:
        return False
    return any(o.manager == MANAGER and o.operation == "Apply" for o in owners(live, REPLICAS))


def takes_back_replicas(live: Object | None, wanted: Object, *, scaler_leaves: bool) -> bool:
    """Whether `wanted` says how many there are, and only our own autoscaler said so before.

    `scaler_leaves`: one of ours set the replicas of this Deployment, and does no more.
    """
    if live is None or replicas_of(wanted) is None:
        return False
    others = [o for o in owners(live, REPLICAS) if o.manager != MANAGER]
    ours = [o for o in others if o.manager == HANDOVER or (scaler_leaves and _scales(o))]
    return bool(others) and len(ours) == len(others)


def _scales(owner: Owner) -> bool:
    return owner.subresource == "scale" and owner.manager in _AUTOSCALERS


def only_replicas(value: Object, replicas: int | None) -> dict[str, Any]:
    """An object that says nothing else; with None, nothing at all: it lets go of what it had."""
    metadata = {"name": value["metadata"]["name"]}
    if namespace := value["metadata"].get("namespace"):
        metadata["namespace"] = namespace
    told = {"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": metadata}
    return told if replicas is None else told | {"spec": {"replicas": replicas}}


def with_replicas(value: Object, replicas: int | None) -> dict[str, Any]:
    """The same with that many; None: without a word on it."""
    spec = {key: each for key, each in value["spec"].items() if key != "replicas"}
    return {**value, "spec": spec if replicas is None else spec | {"replicas": replicas}}


def telling(value: Object | None) -> dict[str, Any] | None:
    """What of an object says something: no status, no bookkeeping, no secrets."""
    if value is None:
        return None
    metadata = {key: each for key, each in value["metadata"].items() if key not in _NOISE}
    notes = {
        key: each
        for key, each in (metadata.get("annotations") or {}).items()
        if key not in _NOISY_ANNOTATIONS
    }
    metadata.pop("annotations", None)
    if notes:
        metadata["annotations"] = notes
    told = {key: each for key, each in value.items() if key not in {"status", "metadata"}}
    if value.get("kind") == "Secret":
        for key in ("data", "stringData"):
            if key in told:
                told[key] = dict.fromkeys(told[key] or (), _HIDDEN)
    return {**told, "metadata": metadata}


def difference(name: str, before: Object | None, after: Object | None) -> str:
    """A unified diff of two objects as YAML; empty where they say the same."""
    import yaml

    def lines(value: Object | None) -> list[str]:
        told = telling(value)
        if told is None:
            return []
        return str(yaml.safe_dump(told, sort_keys=True, width=1000)).splitlines()

    where = (f"live/{name}", f"wanted/{name}")
    return "\n".join(difflib.unified_diff(lines(before), lines(after), *where, lineterm="", n=2))
