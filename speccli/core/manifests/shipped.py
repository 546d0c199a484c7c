"""What lies in manifests/base and manifests/components: one recipe's rendering, taken apart.

For whoever wants to read, or to start a kustomize overlay from files; `specctl render` makes the
same of any recipe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from speccli.core.manifests.build import objects
from speccli.core.manifests.options import RenderOptions
from speccli.core.manifests.render import ADAPTER, KUSTOMIZATION, file_name, yaml_text
from speccli.core.manifests.scaling import adapter_values
from speccli.core.recipes.load import load

Object = dict[str, Any]

RECIPE = "llama-3.3-70b-eagle3-h100"
HEAD = "# Written by `make manifests`; do not edit.\n"
# The fleet's alerts lie in manifests/monitoring.
_BASE = RenderOptions(namespace="vllm", name="llama", rules="scaling")
_COMPONENTS: Mapping[str, RenderOptions] = {
    "structured-output": replace(_BASE, pools=("structured",)),
    "canary": replace(_BASE, pools=("canary",)),
    "standby": replace(_BASE, pools=("standby",)),
    "prometheus-adapter": replace(_BASE, autoscaler="hpa"),
    "inference-pool": replace(_BASE, inference_pool=True, gateway="gateways/inference"),
}


def shipped() -> dict[str, str]:
    """Path below manifests/ and text of each file."""
    recipe = load(RECIPE)
    base = objects(recipe, _BASE)
    found = _folder("base", "Kustomization", base, [])
    for name, options in _COMPONENTS.items():
        made = objects(recipe, options)
        before = {_identity(each): each for each in base}
        more = [
            each
            for each in made
            if before.get(_identity(each)) != each and each["kind"] != "PrometheusRule"
        ]
        added = [each for each in more if _identity(each) not in before]
        changed = [each for each in more if each not in added]
        gone = [each for key, each in before.items() if key not in {_identity(m) for m in made}]
        patches = [*changed, *(_deletion(each) for each in gone)]
        found |= _folder(f"components/{name}", "Component", added, patches)
    values = HEAD + yaml_text(adapter_values())
    return {**found, f"components/prometheus-adapter/{ADAPTER}": values}


def _identity(each: Object) -> tuple[str, str]:
    return each["kind"], each["metadata"]["name"]


def _deletion(each: Object) -> Object:
    meta = {key: each["metadata"][key] for key in ("name", "namespace")}
    kept = {"apiVersion": each["apiVersion"], "kind": each["kind"], "metadata": meta}
    return {"$patch": "delete", **kept}


def _folder(
    place: str, kind: str, made: Sequence[Object], patches: Sequence[Object]
) -> dict[str, str]:
    version = "v1alpha1" if kind == "Component" else "v1beta1"
    paths = {f"patch-{file_name(each)}": each for each in patches}
    kustomization = {
        "apiVersion": f"kustomize.config.k8s.io/{version}",
        "kind": kind,
        "resources": [file_name(each) for each in made],
        **({"patches": [{"path": path} for path in paths]} if paths else {}),
    }
    whole = {**{file_name(each): each for each in made}, **paths, KUSTOMIZATION: kustomization}
    return {f"{place}/{name}": HEAD + yaml_text(each) for name, each in whole.items()}
