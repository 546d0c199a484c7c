"""The autoscalers' part of the lint: what the HPA's schema and KEDA's let through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Object = Mapping[str, Any]

_TARGETS = {"Value": "value", "AverageValue": "averageValue", "Utilization": "averageUtilization"}
_LONGEST_WINDOW_S = 3600
_LONGEST_PERIOD_S = 1800


def scaler_problems(each: Object, authentications: set[str]) -> Iterator[str]:
    """Everything wrong with a ScaledObject or an HPA."""
    spec = each["spec"]
    if each["kind"] == "ScaledObject":
        yield from _scaled_object(spec, authentications)
        low, high = spec["minReplicaCount"], spec["maxReplicaCount"]
        behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    else:
        yield from _metrics(spec["metrics"])
        low, high, behavior = spec["minReplicas"], spec["maxReplicas"], spec["behavior"]
        if low < 1:
            yield "an HPA scales to one at least"
    if low > high or high < 1:
        yield f"{low} replicas at least, {high} at most"
    for direction, rules in behavior.items():
        yield from _behavior(direction, rules)


def _behavior(direction: str, rules: Object) -> Iterator[str]:
    if not 0 <= rules["stabilizationWindowSeconds"] <= _LONGEST_WINDOW_S:
        yield f"{direction} window {rules['stabilizationWindowSeconds']} s; at most 3600"
    if rules["selectPolicy"] not in {"Max", "Min", "Disabled"}:
        yield f"{direction} selectPolicy {rules['selectPolicy']}"
    for policy in rules["policies"]:
        if policy["type"] not in {"Pods", "Percent"} or policy["value"] < 1:
            yield f"{direction} policy {policy['type']} {policy['value']}"
        if not 1 <= policy["periodSeconds"] <= _LONGEST_PERIOD_S:
            yield f"{direction} period {policy['periodSeconds']} s"


def _metrics(metrics: list[Object]) -> Iterator[str]:
    for metric in metrics:
        if metric["type"] != "External":
            yield f"metric type {metric['type']}"
            continue
        target = metric["external"]["target"]
        key = _TARGETS.get(target["type"])
        if key is None or set(target) != {"type", key}:
            yield f"target {dict(target)}"
        if ":" in metric["external"]["metric"]["name"]:
            yield f"metric {metric['external']['metric']['name']} cannot be a path"


def _scaled_object(spec: Object, authentications: set[str]) -> Iterator[str]:
    triggers = spec["triggers"]
    told = [trigger["name"] for trigger in triggers]
    if len(set(told)) != len(told):
        yield "two triggers of one name"
    if not any(trigger["metricType"] == "AverageValue" for trigger in triggers):
        yield "a fallback needs a trigger of type AverageValue"
    if spec["minReplicaCount"] == 0 and len(triggers) < 3:
        yield "scales to zero without a trigger that sees requests when there are no pods"
    for trigger in triggers:
        if trigger["metricType"] not in {"Value", "AverageValue"}:
            yield f"trigger {trigger['name']}: metricType {trigger['metricType']}"
        for key, value in trigger["metadata"].items():
            if not isinstance(value, str):
                yield f"trigger {trigger['name']}: {key} is no text"
        if not float(trigger["metadata"]["threshold"]) > 0:
            yield f"trigger {trigger['name']}: threshold {trigger['metadata']['threshold']}"
        reference = trigger.get("authenticationRef", {}).get("name")
        if reference is not None and reference not in authentications:
            yield f"trigger {trigger['name']}: TriggerAuthentication {reference} is not rendered"
