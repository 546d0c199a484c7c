"""Which object: its kind, its place and its name; and how those of a deployment are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speccli.core.manifests.names import DEPLOYMENT, MANAGED_BY, MANAGER

LEASES = "coordination.k8s.io/v1"


def selector_of(name: str) -> str:
    """The label selector that finds every object of a deployment."""
    return f"{MANAGED_BY}={MANAGER},{DEPLOYMENT}={name}"


def pods_of(name: str) -> str:
    """The one that finds its pods, and what its controllers made."""
    return f"{DEPLOYMENT}={name}"


@dataclass(frozen=True, slots=True)
class Ref:
    """One object."""

    api_version: str
    kind: str
    name: str
    namespace: str | None = None
    """None for what belongs to the cluster."""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Ref:
        """Of an object."""
        metadata = value["metadata"]
        return cls(value["apiVersion"], value["kind"], metadata["name"], metadata.get("namespace"))

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Ref:
        """From its plain form."""
        return cls(told["apiVersion"], told["kind"], told["name"], told.get("namespace"))

    @property
    def group(self) -> str:
        """The API group, without the version: an object may be read by several versions."""
        group, slash, _ = self.api_version.partition("/")
        return group if slash else ""

    @property
    def identity(self) -> tuple[str, str, str | None, str]:
        """The object, whichever version of its kind names it."""
        return self.group, self.kind, self.namespace, self.name

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        told = {"apiVersion": self.api_version, "kind": self.kind, "name": self.name}
        return told | ({"namespace": self.namespace} if self.namespace else {})

    def __str__(self) -> str:
        """`Deployment chat`."""
        return f"{self.kind} {self.name}"
