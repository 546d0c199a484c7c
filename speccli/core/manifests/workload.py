"""The Deployment of a pool, and what stands around it: Service, budget, account, network policy."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from speccli.core.manifests import names, sizes
from speccli.core.manifests.options import RenderOptions
from speccli.core.manifests.pod import priority_class, template
from speccli.core.manifests.pools import Unit
from speccli.core.recipes.model import Recipe

Object = dict[str, Any]

_NODE_LOCAL_DNS = "169.254.20.10/32"
_TUNNEL = {"k8s-app": "konnectivity-agent"}
"""Through these the API servers of some providers reach pods."""
_SYSTEM = {"kubernetes.io/metadata.name": "kube-system"}


def config_hash(value: Any) -> str:
    """A short hash of plain values, the same for equal ones."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"sha256-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def deployment(unit: Unit, options: RenderOptions) -> Object:
    """The Deployment."""
    pod = template(unit, options)
    pod["metadata"]["annotations"][names.CONFIG_HASH] = config_hash(pod["spec"])
    # An autoscaler owns the number: a manifest that tells it too would set it back at each apply.
    replicas = {} if unit.autoscaled else {"replicas": unit.least}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": names.meta(unit.name, options.namespace, unit.deployment, unit.pool),
        "spec": {
            **replicas,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": unit.times.progress,
            "minReadySeconds": sizes.MIN_READY_S,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxSurge": options.surge,
                    "maxUnavailable": 0 if options.surge else 1,
                },
            },
            "selector": {"matchLabels": names.selector(unit.deployment, unit.pool)},
            "template": pod,
        },
    }


def service(unit: Unit, options: RenderOptions) -> Object | None:
    """The Service; None for the canary, which takes its share of another's.

    The main one is the deployment's address: it leads to the pool that serves.
    """
    if unit.pool == "canary":
        return None
    to = options.traffic if unit.pool == "main" else unit.pool
    port = {"name": names.PORT_NAME, "port": 80, "targetPort": names.PORT_NAME, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.meta(unit.name, options.namespace, unit.deployment, unit.pool),
        "spec": {
            "type": "ClusterIP",
            "selector": names.served(unit.deployment, to),
            "ports": [port],
        },
    }


def budget(unit: Unit, options: RenderOptions) -> Object:
    """One pod at a time may be evicted; one that is not ready always, or it would block drains."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": names.meta(unit.name, options.namespace, unit.deployment, unit.pool),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": names.selector(unit.deployment, unit.pool)},
        },
    }


def account(unit: Unit, options: RenderOptions) -> Object:
    """A ServiceAccount without a token: the engine asks the API server nothing."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": names.meta(unit.deployment, options.namespace, unit.deployment),
        "automountServiceAccountToken": False,
    }


def network_policy(unit: Unit, options: RenderOptions) -> Object:
    """Who may reach the pods of all pools: /metrics, /tokenize and the like ask for no key."""
    recipe = unit.recipe
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.meta(unit.deployment, options.namespace, unit.deployment),
        "spec": {
            "podSelector": {"matchLabels": names.selector(unit.deployment)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {
                    "from": _from(recipe, options),
                    "ports": [{"port": names.PORT_NAME, "protocol": "TCP"}],
                }
            ],
            "egress": _egress(recipe),
        },
    }


def _from(recipe: Recipe, options: RenderOptions) -> list[Object]:
    spaces = dict.fromkeys([*recipe.network.clients, recipe.network.monitoring])
    gateway = (options.gateway or "").rpartition("/")[0]
    if gateway:
        spaces[gateway] = None
    ranges = dict.fromkeys([*recipe.network.api_server, *options.api_server])
    return [
        {"podSelector": {}},
        *(_namespace(space) for space in spaces),
        {"namespaceSelector": {"matchLabels": _SYSTEM}, "podSelector": {"matchLabels": _TUNNEL}},
        *({"ipBlock": {"cidr": cidr}} for cidr in ranges),
    ]


def _namespace(name: str) -> Object:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def _egress(recipe: Recipe) -> list[Object]:
    dns = {"namespaceSelector": {"matchLabels": _SYSTEM}}
    rules: list[Object] = [
        {
            "to": [
                {**dns, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}},
                {"ipBlock": {"cidr": _NODE_LOCAL_DNS}},
            ],
            "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
        }
    ]
    if recipe.storage.source == "hub":
        rules.append({"ports": [{"port": 443, "protocol": "TCP"}]})
    for each in recipe.network.egress:
        ports = [{"port": each.port, "protocol": "TCP"}]
        rules.append({"to": [_namespace(each.namespace)], "ports": ports})
    return rules


def priority_classes(units: list[Unit], options: RenderOptions) -> list[Object]:
    """Those the pods name and nobody else makes. The canary waits for free GPUs, and yields."""
    made: dict[str, Object] = {}
    for unit in units:
        value, name = unit.recipe.scheduling.priority, priority_class(unit, options)
        if value is None or name is None:
            continue
        canary = unit.pool == "canary"
        owned = {**names.labels(unit.deployment), names.NAMESPACE: options.namespace}
        made[name] = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name, "labels": owned},
            "value": value - 1 if canary else value,
            "preemptionPolicy": "Never" if canary else "PreemptLowerPriority",
            "description": f"Engines of {unit.deployment} in {options.namespace}",
        }
    return list(made.values())


def namespace(unit: Unit, options: RenderOptions) -> Object:
    """The namespace, which admits only pods of the restricted Pod Security Standard."""
    enforced = {
        f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")
    }
    meta = {"name": options.namespace, "labels": {names.MANAGED_BY: names.MANAGER, **enforced}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
