"""Autoscaling on queue wait: KEDA's ScaledObject, or an HPA fed by prometheus-adapter."""

from __future__ import annotations

from typing import Any

from speccli.core.manifests import names
from speccli.core.manifests.options import TOLERANCE, RenderOptions
from speccli.core.manifests.pool_rules import QUEUE_WAIT, RUNNING
from speccli.core.manifests.pools import Unit
from speccli.core.manifests.quantities import plain

Object = dict[str, Any]

OVERSHOOT = 4
"""Queue wait is vertical once a pool is full: more than this many times the target tells no more
about how many servers are missing."""
FAILURES = 6
"""Failed polls after which the number of servers is held."""
POLL_S = 10


def running_target(unit: Unit) -> int:
    """Requests running in an engine, from which on there should be another."""
    scaling, serving = unit.recipe.scaling, unit.recipe.serving
    engines = serving.data_parallel
    return max(1, round(scaling.running_share * serving.max_num_seqs * engines))


def pool_matchers(unit: Unit, options: RenderOptions) -> str:
    """PromQL: one pool of one deployment."""
    return (
        f'{{namespace="{options.namespace}",{names.DEPLOYMENT_LABEL}="{unit.deployment}",'
        f'{names.POOL_LABEL}="{unit.pool}"}}'
    )


def target_ref(unit: Unit) -> Object:
    """What is scaled."""
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": unit.name}


def behavior(unit: Unit, options: RenderOptions) -> Object:
    """Up by two pods or half as many a minute; down one in five, after a pod's start has passed.

    The HPA multiplies by ready pods: while pods load it asks for fewer than there are, and without
    the window it would stop the ones that load.
    """
    scaling = unit.recipe.scaling
    up = {
        "stabilizationWindowSeconds": scaling.scale_up_stabilization_s,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 2, "periodSeconds": 60},
            {"type": "Percent", "value": 50, "periodSeconds": 60},
        ],
    }
    down = {
        "stabilizationWindowSeconds": unit.times.scale_down,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
    }
    if scaling.tolerance is not None and options.kubernetes >= TOLERANCE:
        quantity = plain(scaling.tolerance)
        up["tolerance"] = down["tolerance"] = quantity
    return {"scaleUp": up, "scaleDown": down}


def scaled_object(unit: Unit, options: RenderOptions) -> Object:
    """KEDA's ScaledObject."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": names.meta(unit.name, options.namespace, unit.deployment, unit.pool),
        "spec": {
            "scaleTargetRef": target_ref(unit),
            "pollingInterval": POLL_S,
            "cooldownPeriod": unit.times.scale_down,
            "minReplicaCount": unit.least,
            "maxReplicaCount": unit.most,
            # A Prometheus that does not answer must not scale a loaded pool in.
            "fallback": {
                "failureThreshold": FAILURES,
                "replicas": max(1, unit.least),
                "behavior": "currentReplicasIfHigher",
            },
            # What KEDA takes for granted anyway is not said: it writes the object anew without it,
            # and each apply would bring it back.
            "advanced": {
                "horizontalPodAutoscalerConfig": {"behavior": behavior(unit, options)},
            },
            "triggers": _triggers(unit, options),
        },
    }


def _triggers(unit: Unit, options: RenderOptions) -> list[Object]:
    scaling, where = unit.recipe.scaling, pool_matchers(unit, options)
    target = scaling.queue_wait_ms_target
    wait = f"clamp_max(max({QUEUE_WAIT}{where}), {OVERSHOOT * target:g})"
    running = f"sum({RUNNING}{where})"
    found = [
        _trigger(unit, options, "queue-wait", "Value", wait, f"{target:g}"),
        _trigger(unit, options, "running", "AverageValue", running, str(running_target(unit))),
    ]
    if scaling.activation_query is not None:
        share = str(running_target(unit))
        query = scaling.activation_query
        found.append(_trigger(unit, options, "demand", "AverageValue", query, share))
    return found


def _trigger(
    unit: Unit, options: RenderOptions, name: str, kind: str, query: str, threshold: str
) -> Object:
    trigger: Object = {
        "type": "prometheus",
        "name": name,
        "metricType": kind,
        "metadata": {
            "serverAddress": options.prometheus,
            "query": query,
            "threshold": threshold,
            "activationThreshold": "0",
            "ignoreNullValues": "false",
            "timeout": "5s",
        },
    }
    if unit.recipe.secrets.prometheus_token is not None:
        trigger["metadata"]["authModes"] = "bearer"
        trigger["authenticationRef"] = {"name": f"{unit.deployment}-prometheus"}
    return trigger


def trigger_authentication(unit: Unit, options: RenderOptions) -> Object | None:
    """How KEDA finds the token that Prometheus asks for; None: it asks for none."""
    ref = unit.recipe.secrets.prometheus_token
    if ref is None:
        return None
    token = {"parameter": "bearerToken", "name": ref.name, "key": ref.key}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": names.meta(f"{unit.deployment}-prometheus", options.namespace, unit.deployment),
        "spec": {"secretTargetRef": [token]},
    }


def adapter_name(record: str) -> str:
    """What prometheus-adapter calls a recorded series: colons cannot stand in a metric's path."""
    return record.replace(":", "_")


def autoscaler(unit: Unit, options: RenderOptions) -> Object:
    """A HorizontalPodAutoscaler on the same two series, through prometheus-adapter."""
    target = unit.recipe.scaling.queue_wait_ms_target
    labels = {names.DEPLOYMENT_LABEL: unit.deployment, names.POOL_LABEL: unit.pool}

    def external(record: str, kind: str, key: str, value: str) -> Object:
        metric = {"name": adapter_name(record), "selector": {"matchLabels": dict(labels)}}
        return {
            "type": "External",
            "external": {"metric": metric, "target": {"type": kind, key: value}},
        }

    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": names.meta(unit.name, options.namespace, unit.deployment, unit.pool),
        "spec": {
            "scaleTargetRef": target_ref(unit),
            "minReplicas": unit.least,
            "maxReplicas": unit.most,
            "metrics": [
                external(QUEUE_WAIT, "Value", "value", plain(target)),
                external(RUNNING, "AverageValue", "averageValue", plain(running_target(unit))),
            ],
            "behavior": behavior(unit, options),
        },
    }


def adapter_values() -> Object:
    """Values of prometheus-adapter's chart: the rules that the HPAs of all deployments need."""

    def rule(record: str, query: str) -> Object:
        return {
            "seriesQuery": f'{{__name__="{record}"}}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
            "name": {"matches": ".*", "as": adapter_name(record)},
            "metricsQuery": query,
        }

    by = f"by ({names.DEPLOYMENT_LABEL},{names.POOL_LABEL})"
    series = "<<.Series>>{<<.LabelMatchers>>}"
    return {
        "rules": {
            "default": False,
            "external": [
                rule(QUEUE_WAIT, f"max {by} ({series})"),
                rule(RUNNING, f"sum {by} ({series})"),
            ],
        }
    }
