"""Renderings that tests share, and the schemas they are held against."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kubernetes_validate import utils as schemas

from speccli.core.manifests import RenderOptions
from speccli.core.recipes.load import load
from speccli.core.recipes.model import Recipe

Object = dict[str, Any]

SERVERS = tuple((1, minor) for minor in range(29, 38))
CUSTOM = frozenset(
    {"ScaledObject", "TriggerAuthentication", "PodMonitor", "PrometheusRule"}
    | {"InferencePool", "HTTPRoute"}
)
"""Kinds that API servers have no schema of."""
HUB = "llama-3.3-70b-eagle3-h100"

_PLAIN = RenderOptions(namespace="llm")
VARIANTS: Mapping[str, tuple[RenderOptions, tuple[str, ...]]] = {
    "default": (_PLAIN, ()),
    "pools": (replace(_PLAIN, pools=("structured", "canary")), ("scheduling.priority=1000",)),
    "hpa": (replace(_PLAIN, autoscaler="hpa", pools=("structured",)), ("scaling.tolerance=0.2",)),
    "fixed": (replace(_PLAIN, autoscaler="none", surge=1, create_namespace=True), ()),
    "dra": (replace(_PLAIN, dra=True, kubernetes=(1, 34)), ()),
    "image": (
        _PLAIN,
        ("storage.source=image", "storage.image=registry.example/llm@sha256:" + "0" * 64),
    ),
    "claim": (_PLAIN, ("storage.source=pvc", "storage.claim=weights")),
    "ephemeral": (_PLAIN, ("storage.persist=false",)),
    "gateway": (
        replace(
            _PLAIN,
            inference_pool=True,
            gateway="gateways/inference",
            hostnames=("llm.example.com",),
            pools=("structured", "canary"),
        ),
        (),
    ),
    "standby": (replace(_PLAIN, pools=("standby",)), ("scheduling.priority=1000",)),
    "moved": (
        replace(
            _PLAIN,
            inference_pool=True,
            gateway="gateways/inference",
            pools=("structured", "canary", "standby"),
            traffic="standby",
            raised={"standby": 2},
        ),
        ("scaling.max=6",),
    ),
    "everything": (
        replace(
            _PLAIN,
            pools=("structured", "canary"),
            monitor_labels={"release": "kps"},
            api_server=("10.0.0.1/32",),
        ),
        (
            "secrets.api_key.name=vllm-api-key",
            "secrets.hf_token.name=hub",
            "secrets.prometheus_token.name=prometheus",
            "scheduling.runtime_class=nvidia",
            "scheduling.node_selector={cloud.example.com/gpu: h100}",
            "scheduling.tolerations=[{key: spot, effect: NoSchedule}]",
            "network.clients=[gateways]",
            "network.egress=[{namespace: tracing}]",
            "engine.pull_secrets=[registry]",
            "scaling.min=0",
            "scaling.activation_query=sum(gateway_requests_in_flight)",
        ),
    ),
}
"""Options, and changes of the recipe, that a rendering is made with."""
SINCE = {"dra": (1, 34), "image": (1, 31)}
"""Variants that older servers do not know."""


def rendered_with(recipe: str, variant: str, server: tuple[int, int]) -> tuple[Recipe, Any]:
    """A recipe and options of a variant, for a server."""
    options, changes = VARIANTS[variant]
    return load(recipe, changes), replace(options, kubernetes=server)


@functools.cache
def _contents(filename: str, version: str) -> Any:
    return _read(filename, version)


_read = schemas.schema_contents
schemas.schema_contents = _contents  # the files are large and read anew at every call


def validate(each: Object, server: tuple[int, int]) -> None:
    """Hold an object against an API server's schema, unknown fields refused."""
    schemas.validate(each, f"{server[0]}.{server[1]}", strict=True)


@functools.cache
def _seen() -> set[tuple[tuple[int, int], str]]:
    return set()


def validate_new(objects: Iterable[Object], server: tuple[int, int]) -> None:
    """The same of many; those that differ only in what texts say are held against it once."""
    for each in objects:
        if each["kind"] in CUSTOM:
            continue
        shape = json.dumps([each["apiVersion"], each["kind"], _shape(each)])
        if (server, shape) not in _seen():
            validate(each, server)
            _seen().add((server, shape))


def _shape(value: Any) -> Any:
    """Keys and types: all that the schemas look at. Order and number of list items stay."""
    if isinstance(value, Mapping):
        return {key: _shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shape(each) for each in value]
    return "text" if isinstance(value, str) else value
