"""What the schemas let through, each shown to be found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from speccli.core.manifests import RenderOptions, objects
from speccli.core.manifests.lint import LintError, lint, problems
from tests.support.manifests import CUSTOM, HUB, rendered_with, validate

Object = dict[str, Any]
Break = Callable[[Object], Any]


def rendering(variant: str = "default") -> list[Object]:
    recipe, options = rendered_with(HUB, variant, (1, 37))
    return objects(recipe, options)


def of(made: list[Object], kind: str) -> Object:
    return next(each for each in made if each["kind"] == kind)


def pod(deployment: Object) -> Object:
    return deployment["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def engine(deployment: Object) -> Object:
    return pod(deployment)["containers"][0]  # type: ignore[no-any-return]


def test_a_rendering_has_no_problem() -> None:
    for variant in ("default", "everything", "hpa", "dra", "gateway", "image", "standby", "moved"):
        assert [*problems(rendering(variant))] == []


DEPLOYMENT: dict[str, tuple[Break, str]] = {
    "selector": (
        lambda d: d["spec"]["selector"]["matchLabels"].update({"specctl.dev/pool": "other"}),
        "selector does not match",
    ),
    "probe-port": (
        lambda d: engine(d)["readinessProbe"]["httpGet"].update(port="metrics"),
        "readinessProbe asks port metrics",
    ),
    "port-number": (
        lambda d: engine(d)["ports"][0].update(containerPort=99999),
        "port http 99999",
    ),
    "port-name": (
        lambda d: engine(d)["ports"][0].update(name="a-name-too-long-for-it"),
        "port a-name-too-long-for-it",
    ),
    "pull-policy": (
        lambda d: engine(d).update(imagePullPolicy="Sometimes"),
        "imagePullPolicy Sometimes",
    ),
    "gpus-in-words": (
        lambda d: engine(d)["resources"]["limits"].update({"nvidia.com/gpu": "two"}),
        "no quantity",
    ),
    "half-a-gpu": (
        lambda d: engine(d)["resources"]["limits"].update({"nvidia.com/gpu": "0.5"}),
        "nvidia.com/gpu",
    ),
    "gpus-not-requested": (
        lambda d: engine(d)["resources"]["requests"].update({"nvidia.com/gpu": "1"}),
        "requests '1', limits '2'",
    ),
    "shared-memory": (
        lambda d: engine(d)["resources"]["limits"].update(memory="8Gi"),
        "memory",
    ),
    "volume": (lambda d: pod(d)["volumes"].pop(), "volume tmp is not there"),
    "unmounted": (
        lambda d: engine(d)["volumeMounts"].pop(),
        "volume tmp is not mounted",
    ),
    "grace": (
        lambda d: pod(d).update(terminationGracePeriodSeconds=60),
        "preStop 15 + drain 60 + 15 need 90",
    ),
    "progress": (
        lambda d: d["spec"].update(progressDeadlineSeconds=600),
        "given up after 600 s",
    ),
    "replicas": (lambda d: d["spec"].update(replicas=2), "a scaler owns them"),
    "rollout": (
        lambda d: d["spec"]["strategy"]["rollingUpdate"].update(maxUnavailable=0),
        "no rollout can begin",
    ),
    "root": (
        lambda d: pod(d)["securityContext"].update(runAsUser=0),
        "may run as root",
    ),
    "capabilities": (
        lambda d: engine(d)["securityContext"]["capabilities"].update(add=["SYS_PTRACE"]),
        "keeps capabilities",
    ),
    "host-path": (
        lambda d: pod(d)["volumes"].append({"name": "tmp2", "hostPath": {"path": "/"}}),
        "restricted standard refuses",
    ),
    "home": (
        lambda d: next(e for e in engine(d)["env"] if e["name"] == "HOME").update(value="/root"),
        "HOME /root is on no volume",
    ),
    "twice": (
        lambda d: engine(d)["env"].append({"name": "HOME", "value": "/tmp"}),
        "set twice",
    ),
    "label": (
        lambda d: d["metadata"]["labels"].update({"a": "b" * 64}),
        "is none",
    ),
    "account": (
        lambda d: pod(d).update(serviceAccountName="default"),
        "serviceAccountName is not rendered",
    ),
}


@pytest.mark.parametrize("name", DEPLOYMENT)
def test_a_broken_deployment_is_found(name: str) -> None:
    broke, told = DEPLOYMENT[name]
    made = rendering()
    broke(of(made, "Deployment"))
    found = [*problems(made)]
    assert any(told in each for each in found), found
    with pytest.raises(LintError):
        lint(made)


@pytest.mark.parametrize("name", ["pull-policy", "port-number", "gpus-in-words", "selector"])
def test_the_schemas_alone_would_not_find_it(name: str) -> None:
    made = rendering()
    DEPLOYMENT[name][0](of(made, "Deployment"))
    validate(of(made, "Deployment"), (1, 37))


OTHERS: dict[str, tuple[str, str, Break, str]] = {
    "service-port": (
        "default",
        "Service",
        lambda o: o["spec"]["ports"][0].update(targetPort="web"),
        "targetPort web",
    ),
    "service-protocol": (
        "default",
        "Service",
        lambda o: o["spec"]["ports"][0].pop("protocol"),
        "protocol None",
    ),
    "service-selector": (
        "default",
        "Service",
        lambda o: o["spec"]["selector"].update(a="b"),
        "selects no pod",
    ),
    "monitor-port": (
        "default",
        "PodMonitor",
        lambda o: o["spec"]["podMetricsEndpoints"][0].update(port="metrics"),
        "port metrics",
    ),
    "policy-port": (
        "default",
        "NetworkPolicy",
        lambda o: o["spec"]["ingress"][0]["ports"][0].update(port="web"),
        "port web",
    ),
    "trigger-kind": (
        "default",
        "ScaledObject",
        lambda o: o["spec"]["triggers"][0].update(metricType="Average"),
        "metricType Average",
    ),
    "trigger-number": (
        "default",
        "ScaledObject",
        lambda o: o["spec"]["triggers"][0]["metadata"].update(ignoreNullValues=False),
        "ignoreNullValues is no text",
    ),
    "fallback": (
        "default",
        "ScaledObject",
        lambda o: o["spec"]["triggers"].pop(),
        "a fallback needs",
    ),
    "scaled-target": (
        "default",
        "ScaledObject",
        lambda o: o["spec"]["scaleTargetRef"].update(name="other"),
        "which is not rendered",
    ),
    "metric-kind": (
        "hpa",
        "HorizontalPodAutoscaler",
        lambda o: o["spec"]["metrics"][0].update(type="Podz"),
        "metric type Podz",
    ),
    "metric-target": (
        "hpa",
        "HorizontalPodAutoscaler",
        lambda o: o["spec"]["metrics"][0]["external"].update(target={"type": "Value"}),
        "target {'type': 'Value'}",
    ),
    "window": (
        "hpa",
        "HorizontalPodAutoscaler",
        lambda o: o["spec"]["behavior"]["scaleDown"].update(stabilizationWindowSeconds=7200),
        "at most 3600",
    ),
    "claim": (
        "dra",
        "Deployment",
        lambda o: pod(o)["resourceClaims"][0].update(resourceClaimTemplateName="other"),
        "ResourceClaimTemplate other",
    ),
    "gpus-twice": (
        "dra",
        "Deployment",
        lambda o: [
            engine(o)["resources"][kind].update({"nvidia.com/gpu": "2"})
            for kind in ("requests", "limits")
        ],
        "asked for twice",
    ),
    "pool-port": (
        "gateway",
        "InferencePool",
        lambda o: o["spec"]["targetPorts"][0].update(number=9000),
        "target port 9000",
    ),
    "backend": (
        "gateway",
        "HTTPRoute",
        lambda o: o["spec"]["rules"][0]["backendRefs"][0].update(name="other"),
        "InferencePool other",
    ),
    "nowhere": (
        "moved",
        "HTTPRoute",
        lambda o: o["spec"]["rules"][-1]["backendRefs"][1].update(weight=0),
        "requests go nowhere",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_broken_object_is_found(name: str) -> None:
    variant, kind, broke, told = OTHERS[name]
    made = rendering(variant)
    broke(of(made, kind))
    found = [*problems(made)]
    assert any(told in each for each in found), found


def test_two_of_one_name_and_two_namespaces_are_found() -> None:
    made = rendering()
    service = copy.deepcopy(of(made, "Service"))
    found = [*problems([*made, service])]
    assert any("there twice" in each for each in found)
    service["metadata"]["namespace"] = "other"
    assert any("more than one namespace" in each for each in problems([*made, service]))


def test_every_rendered_kind_is_looked_at() -> None:
    kinds = {each["kind"] for name in ("everything", "gateway") for each in rendering(name)}
    assert kinds >= CUSTOM
    assert RenderOptions() == RenderOptions()
