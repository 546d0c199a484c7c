"""Schemas of custom resources, from the Go modules of the projects that define them.

The module's files are fetched by `go mod download` into Go's own cache (tests/e2e/crds/go.mod has
the exact versions); nothing is built.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

Object = dict[str, Any]

MODULES = Path(__file__).parents[1] / "e2e" / "crds"
_KEDA = "github.com/kedacore/keda/v2"
_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
_GATEWAY = "sigs.k8s.io/gateway-api"
_INFERENCE = "sigs.k8s.io/gateway-api-inference-extension"
FILES = {
    "ScaledObject": (_KEDA, "config/crd/bases/keda.sh_scaledobjects.yaml"),
    "TriggerAuthentication": (_KEDA, "config/crd/bases/keda.sh_triggerauthentications.yaml"),
    "PodMonitor": (
        _OPERATOR,
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
    ),
    "PrometheusRule": (
        _OPERATOR,
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
    "HTTPRoute": (_GATEWAY, "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"),
    "InferencePool": (
        _INFERENCE,
        "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml",
    ),
}
_DEADLINE_S = 300


def definition(kind: str) -> Object:
    """The CustomResourceDefinition of a kind; skips the test where its module is not to be had."""
    module, path = FILES[kind]
    found = yaml.safe_load((_folders()[module] / path).read_text(encoding="utf-8"))
    assert found["kind"] == "CustomResourceDefinition"
    return dict(found)


@functools.cache
def _folders() -> dict[str, Path]:
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed: it fetches the modules that hold the CRDs")
    try:
        ran = subprocess.run(
            [go, "mod", "download", "-json"],
            cwd=MODULES,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"the modules that hold the CRDs were not fetched in {_DEADLINE_S} s")
    reader, rest = json.JSONDecoder(), ran.stdout.lstrip()
    found = {}
    while rest:
        told, end = reader.raw_decode(rest)
        rest = rest[end:].lstrip()
        if "Dir" in told:
            found[told["Path"]] = Path(told["Dir"])
    missing = {module for module, _ in FILES.values()} - set(found)
    if missing:
        why = (ran.stderr or ran.stdout).strip().splitlines()
        pytest.skip(f"{', '.join(sorted(missing))} cannot be fetched: {why[-1] if why else '?'}")
    return found


@functools.cache
def _validator(kind: str, version: str) -> Any:
    spec = definition(kind)["spec"]
    schema = next(each["schema"] for each in spec["versions"] if each["name"] == version)
    return jsonschema.Draft202012Validator(_strict(schema["openAPIV3Schema"], root=True))


def problems(each: Object) -> list[str]:
    """What the schema of its kind says against an object. CEL rules are left to API servers."""
    version = each["apiVersion"].rpartition("/")[2]
    found = _validator(each["kind"], version).iter_errors(each)
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in found]


def _strict(schema: Object, *, root: bool = False) -> Object:
    """A structural schema as JSON Schema: unknown fields refused, as field validation does."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    made: Object = {
        key: schema[key]
        for key in (
            *("type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength"),
            *("minItems", "maxItems", "minProperties", "maxProperties", "required"),
        )
        if key in schema
    }
    if "items" in schema:
        made["items"] = _strict(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = _strict(schema["additionalProperties"])
    if "properties" in schema:
        inner = schema["properties"].items()
        made["properties"] = {name: _strict(each) for name, each in inner}
        if root:  # the server's own
            made["properties"]["metadata"] = {"type": "object"}
        open_ = schema.get("x-kubernetes-preserve-unknown-fields")
        made.setdefault("additionalProperties", bool(open_))
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            made[key] = schema[key]
    return made
