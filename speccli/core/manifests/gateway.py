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
    """The pool an endpoint picker chooses from; None for the canary, which is in the main one.

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
    """Requests for the structured pool's model go there, all others to the main pool."""
    space, _, gateway = (options.gateway or "").rpartition("/")
    parent = {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        **({"namespace": space} if space else {}),
        "name": gateway,
    }
    hosts = {"hostnames": list(options.hostnames)} if options.hostnames else {}
    main = units[0]
    rules = [_rule(unit, options) for unit in reversed(units) if unit.pool != "canary"]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": names.meta(main.deployment, options.namespace, main.deployment),
        "spec": {"parentRefs": [parent], **hosts, "rules": rules},
    }


def _rule(unit: Unit, options: RenderOptions) -> Object:
    match: Object = {"path": {"type": "PathPrefix", "value": "/v1/"}}
    if unit.pool != "main":
        match["headers"] = [{"type": "Exact", "name": MODEL_HEADER, "value": unit.served_model}]
    backend: Object = {"group": "", "kind": "Service", "name": unit.name, "port": 80}
    if options.inference_pool:
        group = "inference.networking.k8s.io"
        backend = {"group": group, "kind": "InferencePool", "name": unit.name, "port": names.PORT}
    return {
        "matches": [match],
        "backendRefs": [{**backend, "weight": 1}],
        # A stream lasts as long as its answer.
        "timeouts": {"request": "0s"},
    }
