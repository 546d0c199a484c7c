"""The pod's part of the lint: ports, probes, volumes, GPUs, the drain, restricted Pod Security."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Object = Mapping[str, Any]

_PORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|Ti|k|M|G|T)?")
_SCALES = {"m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40} | {
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "": 1.0,
}
_ALLOWED_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"}
    | {"persistentVolumeClaim", "projected", "secret"}
)
"""What the restricted standard lets a pod mount."""
_DRAIN_MARGIN_S = 15
_PATHS = ("HOME", "HF_HUB_CACHE", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR")


def pod_problems(spec: Object, progress_s: int) -> Iterator[str]:
    """Everything wrong with a pod. `progress_s`: when its rollout is given up."""
    yield from _restricted(spec)
    yield from _volumes(spec)
    for container in spec["containers"]:
        yield from _container(container, spec)
        yield from _drain(container, spec)
        yield from _start(container, progress_s)
    for each in spec.get("tolerations", []):
        if each.get("operator") not in {"Exists", "Equal"}:
            yield f"toleration operator {each.get('operator')}"
        if each.get("operator") == "Exists" and "value" in each:
            yield "a toleration that Exists has no value"
    for each in spec.get("topologySpreadConstraints", []):
        if each["whenUnsatisfiable"] not in {"ScheduleAnyway", "DoNotSchedule"}:
            yield f"whenUnsatisfiable {each['whenUnsatisfiable']}"


def _restricted(spec: Object) -> Iterator[str]:
    pod = spec["securityContext"]
    if not pod.get("runAsNonRoot") or not pod.get("runAsUser"):
        yield "may run as root"
    if pod.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "no seccomp profile"
    if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        yield "uses the host's namespaces"
    for container in spec["containers"]:
        own = container["securityContext"]
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            yield f"container {container['name']} may gain privileges"
        if own.get("capabilities", {}).get("drop") != ["ALL"] or own["capabilities"].get("add"):
            yield f"container {container['name']} keeps capabilities"
    for volume in spec["volumes"]:
        if not set(volume) - {"name"} <= _ALLOWED_VOLUMES:
            yield f"volume {volume['name']} is of a kind that the restricted standard refuses"


def _volumes(spec: Object) -> Iterator[str]:
    have = [volume["name"] for volume in spec["volumes"]]
    if len(set(have)) != len(have):
        yield "two volumes of one name"
    used = [mount["name"] for each in spec["containers"] for mount in each["volumeMounts"]]
    for name in sorted(set(used) ^ set(have)):
        yield f"volume {name} is " + ("not there" if name in used else "not mounted")


def _container(container: Object, spec: Object) -> Iterator[str]:
    ports = {port["name"]: port for port in container["ports"]}
    for name, port in ports.items():
        if not _PORT_NAME.fullmatch(name) or not 1 <= port["containerPort"] <= 65535:
            yield f"port {name} {port['containerPort']}"
        if port.get("protocol") != "TCP":
            yield f"port {name} tells no protocol"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if container[probe]["httpGet"]["port"] not in ports:
            yield f"{probe} asks port {container[probe]['httpGet']['port']}, which is not there"
    if container["imagePullPolicy"] not in {"Always", "IfNotPresent", "Never"}:
        yield f"imagePullPolicy {container['imagePullPolicy']}"
    if not container["image"] or re.search(r"\s", container["image"]):
        yield f"image {container['image']!r}"
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    if len(set(paths)) != len(paths):
        yield "two volumes mounted at one path"
    yield from _environment(container, paths)
    yield from _resources(container, spec)


def _environment(container: Object, paths: list[str]) -> Iterator[str]:
    told = [each["name"] for each in container["env"]]
    if len(set(told)) != len(told):
        yield "a variable is set twice"
    for each in container["env"]:
        if ("value" in each) == ("valueFrom" in each):
            yield f"variable {each['name']} has a value and a source, or neither"
        inside = any(f"{each.get('value')}/".startswith(f"{path}/") for path in paths)
        if each["name"] in _PATHS and not inside:
            yield f"{each['name']} {each.get('value')} is on no volume, and the root is read-only"


def _resources(container: Object, spec: Object) -> Iterator[str]:
    resources = container["resources"]
    requests, limits = resources["requests"], resources["limits"]
    for name, value in (*requests.items(), *limits.items()):
        if not _QUANTITY.fullmatch(str(value)):
            yield f"{name} {value!r} is no quantity"
            return
    gpus = {name for name in (*requests, *limits) if name.endswith(".com/gpu")}
    for name in gpus:
        count = limits.get(name, "")
        if not str(count).isdigit() or int(count) < 1 or requests.get(name) != count:
            yield f"{name}: requests {requests.get(name)!r}, limits {limits.get(name)!r}"
    claims = {each["name"] for each in spec.get("resourceClaims", [])}
    asked = {each["name"] for each in resources.get("claims", [])}
    if claims != asked:
        yield "resource claims of pod and container differ"
    if bool(gpus) == bool(asked):
        yield "GPUs are asked for twice, or not at all"
    for name in set(requests) & set(limits):
        if quantity(requests[name]) > quantity(limits[name]):
            yield f"{name}: more is requested than the limit allows"
    shared = sum(
        quantity(volume["emptyDir"]["sizeLimit"])
        for volume in spec["volumes"]
        if volume.get("emptyDir", {}).get("medium") == "Memory"
    )
    if shared >= quantity(limits["memory"]):
        yield "shared memory alone fills the memory limit"


def quantity(text: str) -> float:
    """A quantity as a number; NaN-free: what is none is caught before."""
    match = _QUANTITY.fullmatch(str(text))
    assert match is not None
    return float(match[1]) * _SCALES[match[2] or ""]


def _drain(container: Object, spec: Object) -> Iterator[str]:
    hook = container["lifecycle"]["preStop"]
    sleeps = hook["sleep"]["seconds"] if "sleep" in hook else hook["exec"]["command"][1]
    before = int(sleeps)
    words = container["args"]
    flag = "--shutdown-timeout"
    drain = int(words[words.index(flag) + 1]) if flag in words else 0
    needed = before + drain + _DRAIN_MARGIN_S
    if spec["terminationGracePeriodSeconds"] < needed:
        yield (
            f"killed after {spec['terminationGracePeriodSeconds']} s: preStop {before} + drain "
            f"{drain} + {_DRAIN_MARGIN_S} need {needed}"
        )


def _start(container: Object, progress_s: int) -> Iterator[str]:
    probe = container["startupProbe"]
    budget = probe["periodSeconds"] * probe["failureThreshold"]
    if progress_s <= budget:
        yield f"the rollout is given up after {progress_s} s, a start may take {budget}"
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        numbers = [container[name][key] for key in ("periodSeconds", "timeoutSeconds")]
        if min(*numbers, container[name]["failureThreshold"]) < 1:
            yield f"{name}: numbers below 1"
