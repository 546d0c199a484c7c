"""A rendering: objects, what to know of them, and their text, the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speccli.core.manifests.build import objects
from speccli.core.manifests.names import POOL
from speccli.core.manifests.notes import notes
from speccli.core.manifests.options import RenderOptions, deployment_name
from speccli.core.manifests.scaling import adapter_values
from speccli.core.preflight.base import Verdict
from speccli.core.recipes.model import Recipe

Object = dict[str, Any]

MARK = "# Written by `specctl render`"
KUSTOMIZATION = "kustomization.yaml"
ADAPTER = "prometheus-adapter-values.yaml"
_WHAT = {
    "Namespace": "admits only restricted pods",
    "PriorityClass": "before whom its pods run",
    "ServiceAccount": "the pods' account, without a token",
    "ResourceClaimTemplate": "the GPUs of a pod",
    "NetworkPolicy": "who reaches the pods, what they reach",
    "Service": "the pool's address, port 80",
    "PodDisruptionBudget": "one pod at a time is evicted",
    "Deployment": "the engines",
    "PodMonitor": "what Prometheus scrapes",
    "PrometheusRule": "what autoscaling reads, and alerts",
    "TriggerAuthentication": "the autoscaler's token for Prometheus",
    "ScaledObject": "how many engines, by queue wait",
    "HorizontalPodAutoscaler": "how many engines, by queue wait",
    "InferencePool": "what an endpoint picker chooses from",
    "HTTPRoute": "which requests go to which pool",
}


@dataclass(frozen=True, slots=True)
class Rendering:
    """What `specctl render` has to tell."""

    name: str
    objects: Sequence[Object]
    verdicts: Sequence[Verdict]
    adapter: Object | None
    """Values for prometheus-adapter's chart; None: it is not used."""

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Kind, name, what for; in the order in which to apply them."""
        return [(each["kind"], each["metadata"]["name"], _what_for(each)) for each in self.objects]


def _what_for(made: Object) -> str:
    kind, told = made["kind"], made["metadata"]
    if kind == "PersistentVolumeClaim":
        return "the models" if told["name"].endswith("-models") else "compiled graphs"
    pool = (told.get("labels") or {}).get(POOL, "main")
    return _WHAT.get(kind, "") + ("" if pool == "main" else f" (pool {pool})")


def render(recipe: Recipe, options: RenderOptions) -> Rendering:
    """The objects of a recipe.

    Raises:
        UsageError: the recipe cannot be rendered.
    """
    return Rendering(
        name=deployment_name(recipe, options),
        objects=objects(recipe, options),
        verdicts=notes(recipe, options),
        adapter=adapter_values() if options.autoscaler == "hpa" else None,
    )


def stream(made: Iterable[Object]) -> str:
    """Objects as one stream of YAML documents."""
    return "---\n".join(yaml_text(each) for each in made)


def as_list(made: Sequence[Object]) -> Object:
    """Objects as one, as `kubectl apply -f -` takes it."""
    return {"apiVersion": "v1", "kind": "List", "items": list(made)}


def files(rendering: Rendering) -> dict[str, str]:
    """Name and text of each file of a folder for kustomize, its own file last."""
    head = f"{MARK} for {rendering.name}; do not edit.\n"
    texts = {file_name(each): head + yaml_text(each) for each in rendering.objects}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(texts),
    }
    if rendering.adapter is not None:
        texts[ADAPTER] = head + yaml_text(rendering.adapter)
    return {**texts, KUSTOMIZATION: head + yaml_text(kustomization)}


def file_name(each: Mapping[str, Any]) -> str:
    """KIND-NAME.yaml."""
    return f"{each['kind'].lower()}-{each['metadata']['name']}.yaml"


def yaml_text(value: Any) -> str:
    """YAML without anchors: the same bytes for equal values, whatever they share."""
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    text: str = yaml.dump(value, Dumper=Plain, sort_keys=False, width=100, allow_unicode=True)
    return text
