"""Gateway API: an InferencePool a Service, and an HTTPRoute to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speccli.core.manifests import names
from speccli.core.manifests.options import RenderOptions
from speccli.core.manifests.pools import Unit

Object = dict[str, Any]

MODEL_HEADER = "x-gateway-model-name"
"""Set by body-based routing to the name of the model in the request's body."""
PICKER_PORT = 9002


def inference_pool(unit: Unit, options: RenderOptions) -> Object | None:
    """The pool an endpoint picker chooses from; None for the canary, which is in another.

    The picker itself (Service NAME-epp) comes from its own chart.
    """
    if unit.pool == "canary":
        return None
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": names.meta(unit.name, options.namespace, unit.deployment, unit.pool),
        "spec": {
            "selector": {"matchLabels": names.served(unit.deployment, unit.pool)},
            "targetPorts": [{"number": names.PORT}],
            "endpointPickerRef": {
                "name": f"{unit.name}-epp",
                "port": {"number": PICKER_PORT},
                # Without its picker a pool is a plain Service, which is better than none.
                "failureMode": "FailOpen",
            },
        },
    }


def route(units: Sequence[Unit], options: RenderOptions) -> Object:
    """Requests for the structured pool's model go there, all others to the pool that serves.

    A Service leads to that pool by itself; between InferencePools the weights decide.
    """
    space, _, gateway = (options.gateway or "").rpartition("/")
    parent = {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        **({"namespace": space} if space else {}),
        "name": gateway,
    }
    hosts = {"hostnames": list(options.hostnames)} if options.hostnames else {}
    main = units[0]
    routed = [unit for unit in reversed(units) if unit.pool not in {"canary", "standby"}]
    standby = next((unit for unit in units if unit.pool == "standby"), None)
    rules = [_rule(unit, standby if unit is main else None, options) for unit in routed]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": names.meta(main.deployment, options.namespace, main.deployment),
        "spec": {"parentRefs": [parent], **hosts, "rules": rules},
    }


def _rule(unit: Unit, standby: Unit | None, options: RenderOptions) -> Object:
    match: Object = {"path": {"type": "PathPrefix", "value": "/v1/"}}
    if unit.pool != "main":
        match["headers"] = [{"type": "Exact", "name": MODEL_HEADER, "value": unit.served_model}]
    backends: list[Object] = [
        {"group": "", "kind": "Service", "name": unit.name, "port": 80, "weight": 1}
    ]
    if options.inference_pool:
        pools = [unit] if standby is None else [unit, standby]
        serving = options.traffic if standby else unit.pool
        backends = [_inference(each, weight=int(each.pool == serving)) for each in pools]
    return {
        "matches": [match],
        "backendRefs": backends,
        # A stream lasts as long as its answer.
        "timeouts": {"request": "0s"},
    }


def _inference(unit: Unit, weight: int) -> Object:
    return {
        "group": "inference.networking.k8s.io",
        "kind": "InferencePool",
        "name": unit.name,
        "port": names.PORT,
        "weight": weight,
    }
