"""What the scheduler, the kubelet and the kernel say of a pod, read as cause and fix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speccli.core.engines import vllm_crash

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """A cause."""

    code: str
    phase: str
    cause: str
    fix: str
    evidence: str = ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:299]}…"


# ---- the scheduler ----

_NODES = re.compile(r"(?P<fit>\d+)/(?P<all>\d+) nodes are available: (?P<why>.*?)(?:\. |\.$|$)")
_PART = re.compile(r"(?P<n>\d+) (?P<why>.+)")
_SCHEDULING: tuple[tuple[str, str, str], ...] = (
    (
        r"Insufficient (?P<what>\S*gpu\S*)",
        "with too few free {what}",
        "free GPUs, add nodes, or lower replicas (a rollout that surges needs more of them)",
    ),
    (r"Insufficient (?P<what>\S+)", "with too little free {what}", "lower the pod's request"),
    (
        r"untolerated taint\(?s?\)? ?\{?(?P<what>[^}]*)\}?",
        "with the taint {what}",
        "add the toleration, or remove the taint",
    ),
    (
        r"(?:didn't match Pod's node affinity/selector|node\(s\) didn't match)",
        "without the label that the pod asks for",
        "compare the recipe's GPU with `kubectl get nodes -L nvidia.com/gpu.product`",
    ),
    (
        r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim",
        "its volume claim is not bound",
        "kubectl describe pvc: is there a StorageClass, and room?",
    ),
    (
        r"volume node affinity conflict|didn't find available persistent volumes",
        "away from its volume",
        "use a ReadWriteMany class, or let the pod run where the volume is",
    ),
    (
        r"unschedulable",
        "cordoned",
        "kubectl uncordon NODE",
    ),
    (
        r"cannot allocate all claims|resourceclaim",
        "that cannot meet its resource claim",
        "look at the ResourceSlices: is the DRA driver running there?",
    ),
)


def unscheduled(message: str) -> Told | None:
    """No node takes the pod; None where the scheduler has not said so."""
    if not message:
        return None
    found = _NODES.search(message)
    if found is None:
        cause, fix = _scheduling(message)
        return Told("UNSCHEDULABLE", "scheduling", cause, fix, _short(message))
    parts = [m for text in found["why"].split(", ") if (m := _PART.match(text.strip()))]
    told = [(int(m["n"]), *_scheduling(m["why"])) for m in parts]
    counts = "; ".join(f"{n} {cause}" for n, cause, _ in told)
    whole = _scheduling(found["why"])  # where it is the pod, not some of the nodes
    # GPUs are what keeps it from GPU nodes; taints keep it from the others, as they should.
    fixes = [fix for _, cause, fix in told if "gpu" in cause and "free" in cause]
    fixes += [fix for _, _, fix in told] or [whole[1]]
    free = f"{found['fit']} of {found['all']} nodes can take it"
    return Told(
        "UNSCHEDULABLE",
        "scheduling",
        f"{free}: {counts or whole[0]}",
        fixes[0],
        _short(message),
    )


def _scheduling(why: str) -> tuple[str, str]:
    for pattern, cause, fix in _SCHEDULING:
        if found := re.search(pattern, why):
            return cause.format_map({k: v.strip() for k, v in found.groupdict().items()}), fix
    return _short(why), "kubectl describe pod says more"


# ---- the image, the container's settings ----

_REGISTRY: tuple[tuple[str, str, str], ...] = (
    (
        r"toomanyrequests|429 Too Many",
        "the registry sheds load",
        "log in (imagePullSecrets), or use a mirror",
    ),
    (
        r"unauthorized|authentication required|403 Forbidden|access denied|denied:",
        "the registry does not let the node in",
        "give the pod's service account an imagePullSecret for it",
    ),
    (
        r"manifest unknown|not found|does not exist|no such manifest",
        "the registry has no such image",
        "correct the tag or digest",
    ),
    (
        r"no matching manifest for|exec format error",
        "the image is not made for this node's architecture",
        "use one that is, or choose other nodes",
    ),
    (r"no space left", "the node's disk is full", "clean it, or give nodes larger disks"),
    (
        r"no such host|i/o timeout|connection refused|TLS handshake|dial tcp|deadline exceeded",
        "the node does not reach the registry",
        "look at the node's network, proxy and DNS",
    ),
)
_CONTAINER: tuple[tuple[str, str, str, str], ...] = (
    (
        r"unsatisfied condition: (?P<what>cuda[^\s,]*)",
        "DRIVER_OLD",
        "the node's driver is too old for the image ({what})",
        "use an image of an older CUDA, or renew the driver",
    ),
    (
        r"nvidia-container-cli: (?P<what>[^\n]{0,120})",
        "NO_GPU",
        "the node could not give the container its GPUs: {what}",
        "look at the device plugin and the NVIDIA runtime on that node",
    ),
    (
        r'exec: "(?P<what>[^"]+)"[^\n]*(?:not found|no such file)',
        "NO_COMMAND",
        "the image has no {what}",
        "correct the command, or the image",
    ),
    (
        r'secret "(?P<what>[^"]+)" not found',
        "NO_SECRET",
        "there is no Secret {what}",
        "create it: kubectl create secret generic {what} --from-literal=HF_TOKEN=…",
    ),
    (
        r"couldn't find key (?P<key>\S+) in Secret (?P<what>\S+)",
        "NO_SECRET",
        "the Secret {what} has no key {key}",
        "add the key",
    ),
    (
        r'configmap "(?P<what>[^"]+)" not found',
        "NO_CONFIGMAP",
        "there is no ConfigMap {what}",
        "apply it before the pod",
    ),
    (
        r"runAsNonRoot and image will run as root",
        "RUNS_AS_ROOT",
        "the image runs as root, and the pod may not",
        "set runAsUser in its securityContext",
    ),
)
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})


def waiting(reason: str, message: str) -> Told | None:
    """A container that is not started."""
    if reason in _IMAGE:
        return _image(reason, message)
    for pattern, code, cause, fix in _CONTAINER:
        if found := re.search(pattern, message):
            groups = {k: v.strip() for k, v in found.groupdict().items()}
            return Told(
                code, "image", cause.format_map(groups), fix.format_map(groups), _short(message)
            )
    if reason in {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}:
        cause = f"the container cannot be started ({reason})"
        return Told("CONTAINER", "image", cause, "kubectl describe pod says more", _short(message))
    return None


def _image(reason: str, message: str) -> Told:
    if reason == "InvalidImageName":
        fix = "correct it: registry/name@sha256:…"
        return Told("IMAGE_NAME", "image", "the image's name is none", fix, _short(message))
    for pattern, cause, fix in _REGISTRY:
        if re.search(pattern, message):
            return Told("IMAGE_PULL", "image", cause, fix, _short(message))
    cause = f"the image cannot be pulled ({reason})"
    return Told("IMAGE_PULL", "image", cause, "kubectl describe pod says more", _short(message))


_EVENTS: tuple[tuple[str, str, str, str], ...] = (
    (
        r"Multi-Attach error",
        "VOLUME_BUSY",
        "its volume is attached to another node, and takes one at a time",
        "use a ReadWriteMany class, or one replica",
    ),
    (
        r"persistentvolumeclaim \"(?P<what>[^\"]+)\" not found",
        "NO_VOLUME",
        "there is no volume claim {what}",
        "apply it before the pod",
    ),
    (
        r"(?:MountVolume|AttachVolume)\S* failed[^\n]*",
        "VOLUME",
        "its volume cannot be mounted",
        "kubectl describe pod says why",
    ),
)


def by_events(events: Iterable[Object]) -> Told | None:
    """A container that waits for its volumes; None where no event says so."""
    for event in reversed(list(events)):
        if event.get("reason") not in {"FailedMount", "FailedAttachVolume"}:
            continue
        message = str(event.get("message") or "")
        for pattern, code, cause, fix in _EVENTS:
            if found := re.search(pattern, message):
                told = cause.format_map(found.groupdict())
                return Told(code, "image", told, fix, _short(message))
    return None


# ---- the node and the kernel ----


def failed(reason: str, message: str) -> Told:
    """A pod that its node gave up."""
    if reason == "Evicted":
        found = re.search(r"low on resource: \[?(?P<what>[\w-]+)", message)
        what = found["what"] if found else "something"
        fix = {
            "ephemeral-storage": "put caches and /tmp on volumes, or request ephemeral-storage",
            "memory": "raise the pod's memory request to what it uses",
        }.get(what, "look at the node's conditions")
        return Told("EVICTED", "ready", f"its node was low on {what}", fix, _short(message))
    if reason == "UnexpectedAdmissionError":
        cause = "the node had promised GPUs that it does not have"
        fix = "delete the pod; then look at that node's device plugin and GPUs (Xid)"
        return Told("NO_GPU", "scheduling", cause, fix, _short(message))
    if reason in {"Preempting", "Preempted"}:
        fix = "give it a PriorityClass of its own"
        return Told("PREEMPTED", "ready", "a pod of higher priority took its place", fix, message)
    if reason in {"NodeLost", "NodeShutdown", "Terminated", "Shutdown"}:
        fix = "look at the node; the pod is made anew elsewhere"
        return Told("NODE_LOST", "ready", f"its node went away ({reason})", fix, _short(message))
    cause = f"its node ended it ({reason})"
    return Told("FAILED", "ready", cause, "kubectl describe pod says more", _short(message))


def out_of_memory(limit: str | None, phase: str) -> Told:
    """The kernel ended it: host memory, not the GPU's."""
    allowed = f" ({limit})" if limit else ""
    fix = "raise its memory limit: weights pass through host memory, and /dev/shm counts too"
    return Told(
        "OOM_KILLED", phase, f"it used more host memory than it may{allowed}", fix, "OOMKilled"
    )


_PROBE = re.compile(r"failed (startup|liveness) probe|(Startup|Liveness) probe failed")


def probe(events: Sequence[Object], phase: str, lived_s: float | None) -> Told | None:
    """The kubelet ended it, since a probe failed; None where no event says so."""
    for event in reversed(events):
        message = str(event.get("message") or "")
        found = _PROBE.search(message)
        if not found:
            continue
        kind = (found[1] or found[2]).lower()
        if kind == "startup":
            after = f" after {lived_s:.0f} s" if lived_s is not None else ""
            cause = f"it was ended{after} while it still loaded: its startup probe is too short"
            fix = "raise its failureThreshold (`specctl render` sizes it from the weights)"
            return Told("STARTUP_PROBE", phase, cause, fix, _short(message))
        cause = "it stopped answering its liveness probe and was ended"
        fix = "read its log before that: kubectl logs --previous"
        return Told("LIVENESS_PROBE", phase, cause, fix, _short(message))
    return None


_EXITS: Mapping[int, tuple[str, str, str]] = {
    0: ("ENDED", "it ended by itself, without an error", "is its command that of a server?"),
    126: ("NO_COMMAND", "its command cannot be run", "is it a program of the image?"),
    127: ("NO_COMMAND", "its command is not there", "is it a program of the image?"),
    132: ("ILLEGAL_INSTRUCTION", "the node's CPU lacks instructions", "use another node"),
    134: ("ABORTED", "it aborted itself", "its log's last lines say why"),
    135: (
        "SHM",
        "a bus error: /dev/shm is full, as a rule",
        "mount an emptyDir with medium: Memory at /dev/shm",
    ),
    137: (
        "KILLED",
        "it was killed: by the node's memory manager, or by hand",
        "look at the node's log (oom-kill), and raise the pod's memory request",
    ),
    139: (
        "SEGFAULT",
        "it crashed in native code",
        "look for Xid in the node's log; try without speculation",
    ),
    143: ("TERMINATED", "it was told to end", "somebody deleted or drained it"),
}


def by_exit(code: int | None, message: str, phase: str, log: str) -> Told:
    """What is left: the log's last error, else the exit code."""
    error = vllm_crash.last_error(log)
    if error:
        fix = "read the lines before it: kubectl logs --previous"
        return Told("UNKNOWN", phase, error, fix, error)
    if code is not None and code in _EXITS:
        name, cause, fix = _EXITS[code]
        return Told(name, phase, f"{cause} (exit {code})", fix, _short(message))
    what = f"exit {code}" if code is not None else "no exit code"
    fix = "kubectl logs --previous"
    return Told("UNKNOWN", phase, f"it ended ({what}), and its log tells no error", fix, message)
