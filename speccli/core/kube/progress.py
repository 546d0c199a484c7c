"""What a rollout looks like now: which pods there are, how far each has come, what is in the way.

Pure: objects, events and logs as the API server gives them in, a view out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from speccli.core.engines import vllm_start
from speccli.core.kube.fields import replicas_of
from speccli.core.manifests.names import CONTAINER, POOL

Phase = Literal["scheduling", "image", "weights", "compile", "ready", "crashed", "leaving"]
REVISION = "deployment.kubernetes.io/revision"
HASH = "pod-template-hash"
_IMAGE_TROUBLE = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
_SETUP_TROUBLE = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_VOLUME_TROUBLE = frozenset({"FailedMount", "FailedAttachVolume"})
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod."""

    name: str
    pool: str
    phase: Phase
    detail: str
    """What it is doing, in the engine's or the cluster's own words."""
    fresh: bool
    """Whether it is of the newest template."""
    node: str | None = None
    restarts: int = 0
    trouble: str | None = None
    """Why it does not get on, as a reason (`ImagePullBackOff`); None while it does."""

    @property
    def line(self) -> str:
        """`chat-5d9-x2x  weights  loading the weights 45 %`."""
        old = "" if self.fresh or self.phase == "leaving" else "former: "
        return f"{self.name}  {self.phase:<10}  {old}{self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class Workload:
    """One Deployment's rollout."""

    name: str
    wanted: int
    updated: int
    available: int
    """Pods that serve, of whichever template."""
    surplus: int
    """Pods of former templates that are still there."""
    seen: bool
    """Whether the controller has seen the newest template."""
    expired: str | None = None
    """What its controller says when its progress deadline has passed."""
    ready: int = 0
    """Pods that answer, for however short a time."""

    @property
    def done(self) -> bool:
        """Whether every pod is new, and ready for long enough."""
        whole = self.updated == self.wanted and self.available == self.wanted
        return self.seen and whole and self.surplus == 0

    @property
    def line(self) -> str:
        """`chat: 1 of 2 pods new, 2 serving`."""
        young = self.ready - self.available
        more = f", {young} just ready" if young > 0 else ""
        told = f"{self.updated} of {self.wanted} pods new, {self.available} serving"
        return f"{self.name}: {told}{more}"


@dataclass(frozen=True, slots=True)
class Progress:
    """All of it."""

    workloads: tuple[Workload, ...]
    pods: tuple[PodView, ...]
    """New ones first."""

    @property
    def done(self) -> bool:
        """Whether every pool is as it should be."""
        return all(each.done for each in self.workloads)

    @property
    def serving(self) -> int:
        """Pods that serve, of whichever template."""
        return sum(each.available for each in self.workloads)


def workload_of(deployment: Object) -> Workload:
    """A Deployment's rollout, from its status."""
    status = deployment.get("status") or {}
    generation = deployment["metadata"].get("generation", 0)
    conditions = status.get("conditions") or ()
    expired = next(
        (
            str(c.get("message") or c.get("reason"))
            for c in conditions
            if c.get("type") == "Progressing" and c.get("reason") == "ProgressDeadlineExceeded"
        ),
        None,
    )
    wanted = replicas_of(deployment)
    updated = int(status.get("updatedReplicas") or 0)
    return Workload(
        name=str(deployment["metadata"]["name"]),
        wanted=1 if wanted is None else wanted,
        updated=updated,
        available=int(status.get("availableReplicas") or 0),
        surplus=max(0, int(status.get("replicas") or 0) - updated),
        seen=int(status.get("observedGeneration") or 0) >= generation,
        expired=expired,
        ready=int(status.get("readyReplicas") or 0),
    )


def newest_hashes(deployments: Iterable[Object], replica_sets: Iterable[Object]) -> frozenset[str]:
    """The template hashes of pods that are as new as their Deployment.

    None of a Deployment whose controller has not seen its newest template yet.
    """
    current = {}
    for each in deployments:
        if workload_of(each).seen:
            notes = each["metadata"].get("annotations") or {}
            current[each["metadata"].get("uid")] = notes.get(REVISION)
    hashes = set()
    for each in replica_sets:
        metadata = each["metadata"]
        owner = next((o.get("uid") for o in metadata.get("ownerReferences") or ()), None)
        told = (metadata.get("annotations") or {}).get(REVISION)
        if told is not None and current.get(owner) == told:
            hashes.add(str((metadata.get("labels") or {}).get(HASH)))
    return frozenset(hashes)


def pod_view(
    pod: Object, hashes: frozenset[str], *, events: Sequence[Object] = (), log: str | None = None
) -> PodView:
    """One pod. `log`: the end of the engine's; None: it was not read."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    container = container_status(pod)
    phase, detail, trouble = _told(pod, status, container, events, log)
    return PodView(
        name=str(metadata["name"]),
        pool=str(labels.get(POOL, "main")),
        phase=phase,
        detail=" ".join(detail.split()),
        fresh=str(labels.get(HASH)) in hashes,
        node=(pod.get("spec") or {}).get("nodeName"),
        restarts=int(container.get("restartCount") or 0),
        trouble=trouble,
    )


def container_status(pod: Object) -> Object:
    """The engine's container, as the node tells of it; empty before it does."""
    every = (pod.get("status") or {}).get("containerStatuses") or ()
    named = [each for each in every if each.get("name") == CONTAINER]
    first: Object = (named or list(every) or [{}])[0]
    return first


def is_ready(pod: Object) -> bool:
    """Whether it serves."""
    return _condition(pod, "Ready") is not None and not pod["metadata"].get("deletionTimestamp")


def _condition(pod: Object, kind: str) -> Object | None:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next(
        (c for c in conditions if c.get("type") == kind and c.get("status") == "True"), None
    )


def _told(
    pod: Object, status: Object, container: Object, events: Sequence[Object], log: str | None
) -> tuple[Phase, str, str | None]:
    """Phase, words, trouble."""
    if pod["metadata"].get("deletionTimestamp"):
        return "leaving", "finishing its requests", None
    if is_ready(pod):
        return "ready", "serving", None
    if not (pod.get("spec") or {}).get("nodeName"):
        return _unscheduled(status)
    if status.get("phase") == "Failed":
        reason = str(status.get("reason") or "Failed")
        return "crashed", f"{reason}: {status.get('message') or 'the node ended it'}", reason
    state = container.get("state") or {}
    if waiting := state.get("waiting"):
        return _waiting(waiting, container, events)
    if ended := state.get("terminated"):
        return "crashed", _ending(ended), str(ended.get("reason") or "Error")
    if state.get("running"):
        mark = vllm_start.mark_of(log or "")
        words = vllm_start.told(log) if log is not None else "running, not ready"
        restarts = int(container.get("restartCount") or 0)
        again = f" (start {restarts + 1})" if restarts else ""
        return mark.stage, words + again, None
    return "image", "waiting for the node", None


def _unscheduled(status: Object) -> tuple[Phase, str, str | None]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            reason = str(condition.get("reason") or "Unschedulable")
            return "scheduling", str(condition.get("message") or reason), reason
    return "scheduling", "waiting for the scheduler", None


def _waiting(
    waiting: Object, container: Object, events: Sequence[Object]
) -> tuple[Phase, str, str | None]:
    reason = str(waiting.get("reason") or "")
    message = str(waiting.get("message") or "")
    if reason in _IMAGE_TROUBLE:
        return "image", f"{reason}: {message}".rstrip(": "), reason
    if reason in _SETUP_TROUBLE:
        return "image", f"{reason}: {message}".rstrip(": "), reason
    if reason == "CrashLoopBackOff":
        ended = (container.get("lastState") or {}).get("terminated") or {}
        count = int(container.get("restartCount") or 0)
        return "crashed", f"{_ending(ended)}; {count} restarts", reason
    for event in reversed(events):
        if event.get("reason") in _VOLUME_TROUBLE:
            reason = str(event["reason"])
            return "image", f"{reason}: {event.get('message', '')}", reason
        if event.get("reason") == "Pulling":
            return "image", str(event.get("message") or "pulling the image"), None
        if event.get("reason") == "Pulled":
            break
    return "image", message or "preparing the container", None


def _ending(ended: Object) -> str:
    code, signal = ended.get("exitCode"), ended.get("signal")
    reason = ended.get("reason")
    told = f"signal {signal}" if signal else f"exit {code}" if code is not None else "it ended"
    return f"{told} ({reason})" if reason and reason not in {"Error", "Completed"} else told
