"""What OpenAPI schemas do not catch, looked for in every rendering.

A schema takes a selector that selects nothing, a probe on a port that is not there and an HPA
without a target. Each of these is found by an operator at night; here it is a bug of specctl.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from speccli.core.manifests.lint_pod import pod_problems
from speccli.core.manifests.lint_scaling import scaler_problems

Object = Mapping[str, Any]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_GLOBAL = frozenset({"Namespace", "PriorityClass"})


class LintError(Exception):
    """A rendering that a server would refuse, or take and not obey: a bug of specctl."""


@dataclass(frozen=True)
class Whole:
    """A rendering, by kind."""

    objects: Sequence[Object]

    def of(self, *kinds: str) -> list[Object]:
        """The objects of these kinds."""
        return [each for each in self.objects if each["kind"] in kinds]

    @cached_property
    def pods(self) -> list[Object]:
        """The pod templates."""
        return [each["spec"]["template"] for each in self.of("Deployment")]

    def named(self, kind: str) -> set[str]:
        """Names of the objects of a kind."""
        return {each["metadata"]["name"] for each in self.of(kind)}

    def selected(self, wanted: Mapping[str, str]) -> list[Object]:
        """The pod templates that such labels select."""
        return [pod for pod in self.pods if wanted.items() <= pod["metadata"]["labels"].items()]

    def ports(self, wanted: Mapping[str, str]) -> set[str | int]:
        """Names and numbers of the ports of what is selected."""
        found: set[str | int] = set()
        for pod in self.selected(wanted):
            for container in pod["spec"]["containers"]:
                for port in container["ports"]:
                    found |= {port["name"], port["containerPort"]}
        return found


def lint(objects: Sequence[Object]) -> None:
    """Hold a rendering against every rule.

    Raises:
        LintError: the first problems found.
    """
    found = list(problems(objects))
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise LintError(f"{found[0]}{more}")


def problems(objects: Sequence[Object]) -> Iterator[str]:
    """Everything wrong with a rendering."""
    whole = Whole(objects)
    seen = set()
    for each in objects:
        what = f"{each['kind']} {each['metadata']['name']}"
        key = (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        if key in seen:
            yield f"{what}: there twice"
        seen.add(key)
        for problem in (*_metadata(each), *_RULES.get(each["kind"], _nothing)(each, whole)):
            yield f"{what}: {problem}"
    spaces = {each["metadata"].get("namespace") for each in objects} - {None}
    if len(spaces) > 1:
        yield f"more than one namespace: {', '.join(sorted(spaces))}"


def _nothing(each: Object, whole: Whole) -> Iterator[str]:
    return iter(())


def _metadata(each: Object) -> Iterator[str]:
    meta = each["metadata"]
    if not _NAME.fullmatch(meta["name"]) or len(meta["name"]) > 253:
        yield "no name of Kubernetes"
    if ("namespace" in meta) == (each["kind"] in _GLOBAL):
        yield "namespaced where the kind is not, or the other way round"
    for key, value in meta.get("labels", {}).items():
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            yield f"label {key}={value} is none"


def _deployment(each: Object, whole: Whole) -> Iterator[str]:
    spec = each["spec"]
    template = spec["template"]
    wanted = spec["selector"]["matchLabels"]
    if not wanted.items() <= template["metadata"]["labels"].items():
        yield "selector does not match the template's labels"
    if len(whole.selected(wanted)) != 1:
        yield "selector matches another Deployment's pods too"
    for key, value in template["metadata"]["labels"].items():
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            yield f"label {key}={value} of the pods is none"
    rolling = spec["strategy"].get("rollingUpdate", {})
    if spec["strategy"]["type"] not in {"RollingUpdate", "Recreate"}:
        yield f"strategy {spec['strategy']['type']}"
    if rolling and not rolling["maxSurge"] and not rolling["maxUnavailable"]:
        yield "neither surge nor unavailable: no rollout can begin"
    scaled = {
        scaler["spec"]["scaleTargetRef"]["name"]
        for scaler in whole.of("ScaledObject", "HorizontalPodAutoscaler")
    }
    if (each["metadata"]["name"] in scaled) == ("replicas" in spec):
        yield "replicas are told although a scaler owns them, or not told although none does"
    yield from pod_problems(template["spec"], spec["progressDeadlineSeconds"])
    accounts = whole.named("ServiceAccount")
    if template["spec"]["serviceAccountName"] not in accounts:
        yield "serviceAccountName is not rendered"
    templates = whole.named("ResourceClaimTemplate")
    for claim in template["spec"].get("resourceClaims", []):
        if claim["resourceClaimTemplateName"] not in templates:
            yield f"ResourceClaimTemplate {claim['resourceClaimTemplateName']} is not rendered"


def _service(each: Object, whole: Whole) -> Iterator[str]:
    spec = each["spec"]
    if not _DNS_LABEL.fullmatch(each["metadata"]["name"]):
        yield "a Service's name is a DNS label"
    if not whole.selected(spec["selector"]):
        yield "selects no pod"
    ports = whole.ports(spec["selector"])
    for port in spec["ports"]:
        if port["targetPort"] not in ports:
            yield f"targetPort {port['targetPort']} is no port of the pods"
        if not 1 <= port["port"] <= 65535:
            yield f"port {port['port']}"
        yield from _protocol(port)


def _budget(each: Object, whole: Whole) -> Iterator[str]:
    spec = each["spec"]
    if not whole.selected(spec["selector"]["matchLabels"]):
        yield "selects no pod"
    if spec["unhealthyPodEvictionPolicy"] not in {"AlwaysAllow", "IfHealthyBudget"}:
        yield f"unhealthyPodEvictionPolicy {spec['unhealthyPodEvictionPolicy']}"
    if ("maxUnavailable" in spec) == ("minAvailable" in spec):
        yield "one of maxUnavailable and minAvailable"


def _network(each: Object, whole: Whole) -> Iterator[str]:
    spec = each["spec"]
    wanted = spec["podSelector"]["matchLabels"]
    if not whole.selected(wanted):
        yield "selects no pod"
    ports = whole.ports(wanted)
    if set(spec["policyTypes"]) - {"Ingress", "Egress"}:
        yield f"policyTypes {spec['policyTypes']}"
    for rule in spec.get("ingress", []):
        for port in rule["ports"]:
            if port["port"] not in ports:
                yield f"lets in to port {port['port']}, which the pods do not have"
    for rule in (*spec.get("ingress", []), *spec.get("egress", [])):
        for port in rule.get("ports", []):
            yield from _protocol(port)
        for peer in (*rule.get("from", []), *rule.get("to", [])):
            yield from _cidr(peer)


def _cidr(peer: Object) -> Iterator[str]:
    if "ipBlock" in peer:
        try:
            ipaddress.ip_network(peer["ipBlock"]["cidr"])
        except ValueError as error:
            yield f"ipBlock: {error}"


def _protocol(port: Object) -> Iterator[str]:
    # Server-side apply keys ports by number and protocol: left out, a second apply conflicts.
    if port.get("protocol") not in {"TCP", "UDP"}:
        yield f"protocol {port.get('protocol')} of port {port['port']}"


def _claim(each: Object, whole: Whole) -> Iterator[str]:
    known = {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"}
    if set(each["spec"]["accessModes"]) - known:
        yield f"accessModes {each['spec']['accessModes']}"


def _priority(each: Object, whole: Whole) -> Iterator[str]:
    if not -(10**9) - 1 <= each["value"] <= 10**9:
        yield f"value {each['value']} is out of range"
    if each["preemptionPolicy"] not in {"Never", "PreemptLowerPriority"}:
        yield f"preemptionPolicy {each['preemptionPolicy']}"


def _monitor(each: Object, whole: Whole) -> Iterator[str]:
    wanted = each["spec"]["selector"]["matchLabels"]
    if len(whole.selected(wanted)) != len(whole.pods):
        yield "does not select every pool"
    for endpoint in each["spec"]["podMetricsEndpoints"]:
        if endpoint["port"] not in whole.ports(wanted):
            yield f"port {endpoint['port']} is no port of the pods"
        if int(endpoint["scrapeTimeout"][:-1]) >= int(endpoint["interval"][:-1]):
            yield "scrapeTimeout is not below the interval"


def _rules(each: Object, whole: Whole) -> Iterator[str]:
    groups = [group["name"] for group in each["spec"]["groups"]]
    if len(set(groups)) != len(groups):
        yield "two groups of one name"
    for group in each["spec"]["groups"]:
        for rule in group["rules"]:
            if ("record" in rule) == ("alert" in rule):
                yield f"a rule of {group['name']} is neither a record nor an alert"
            expression = rule["expr"]
            if any(expression.count(a) != expression.count(b) for a, b in ("()", "{}", "[]")):
                yield f"brackets of {rule.get('record') or rule['alert']} do not match"


def _inference_pool(each: Object, whole: Whole) -> Iterator[str]:
    wanted = each["spec"]["selector"]["matchLabels"]
    if not whole.selected(wanted):
        yield "selects no pod"
    for port in each["spec"]["targetPorts"]:
        if port["number"] not in whole.ports(wanted):
            yield f"target port {port['number']} is no port of the pods"


def _route(each: Object, whole: Whole) -> Iterator[str]:
    for rule in each["spec"]["rules"]:
        if not any(backend["weight"] > 0 for backend in rule["backendRefs"]):
            yield "a rule whose requests go nowhere"
        for backend in rule["backendRefs"]:
            if backend["name"] not in whole.named(backend["kind"]):
                yield f"{backend['kind']} {backend['name']} is not rendered"


def _scaler(each: Object, whole: Whole) -> Iterator[str]:
    target = each["spec"]["scaleTargetRef"]
    if target["kind"] != "Deployment" or target["name"] not in whole.named("Deployment"):
        yield f"scales {target['kind']} {target['name']}, which is not rendered"
    yield from scaler_problems(each, whole.named("TriggerAuthentication"))


_RULES = {
    "Deployment": _deployment,
    "Service": _service,
    "PodDisruptionBudget": _budget,
    "NetworkPolicy": _network,
    "PersistentVolumeClaim": _claim,
    "PriorityClass": _priority,
    "PodMonitor": _monitor,
    "PrometheusRule": _rules,
    "InferencePool": _inference_pool,
    "HTTPRoute": _route,
    "ScaledObject": _scaler,
    "HorizontalPodAutoscaler": _scaler,
}
