"""Names and labels that everything agrees on: what selects, what is only told."""

from __future__ import annotations

from typing import Any

from speccli.core.recipes.model import PoolName

NAME = "app.kubernetes.io/name"
MANAGED_BY = "app.kubernetes.io/managed-by"
DEPLOYMENT = "specctl.dev/deployment"
NAMESPACE = "specctl.dev/namespace"
"""Whose an object of the cluster is: another namespace may have a deployment of the same name."""
POOL = "specctl.dev/pool"
SERVICE = "specctl.dev/service"
"""Whose traffic a pod takes: the canary's pods take a share of the pool's that serves."""
CONFIG_HASH = "specctl.dev/config-hash"
METHOD = "specctl.dev/spec-method"
RESTARTED = "specctl.dev/restarted-for"
"""The revision for which pods were started anew: the weights in a volume had changed."""

APP = "vllm"
MANAGER = "specctl"
CONTAINER = "engine"
PORT_NAME = "http"
PORT = 8000

DEPLOYMENT_LABEL = "specctl_deployment"
POOL_LABEL = "pool"
"""What the PodMonitor calls the two in Prometheus."""

Main = str
Object = dict[str, Any]


def pool_name(deployment: str, pool: PoolName | Main) -> str:
    """What a pool's own objects are called."""
    return deployment if pool == "main" else f"{deployment}-{pool}"


def service_name(deployment: str, pool: PoolName | Main, traffic: Main = "main") -> str:
    """What a pool's pods are known by to Services: a canary is in the pool that serves."""
    return pool_name(deployment, traffic if pool == "canary" else pool)


def labels(deployment: str, pool: str | None = None) -> dict[str, str]:
    """On every object; `pool`: what belongs to one pool only."""
    told = {NAME: APP, MANAGED_BY: MANAGER, DEPLOYMENT: deployment}
    return {**told, POOL: pool} if pool else told


def selector(deployment: str, pool: str | None = None) -> dict[str, str]:
    """What selects pods. It cannot be changed once applied, so nothing that varies is in it."""
    told = {NAME: APP, DEPLOYMENT: deployment}
    return {**told, POOL: pool} if pool else told


def served(deployment: str, pool: str) -> dict[str, str]:
    """What selects a pool's pods, and a canary's that are in it."""
    return {**selector(deployment), SERVICE: service_name(deployment, pool)}


def meta(
    name: str, namespace: str | None, deployment: str, pool: str | None = None, **more: Any
) -> Object:
    """An object's metadata; `namespace` None: it is the cluster's."""
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, **place, "labels": labels(deployment, pool), **more}
