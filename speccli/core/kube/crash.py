"""Why a pod does not serve: its state, its events and the end of its log, as one cause and its fix.

The cluster's own word goes first where it is certain (evicted, out of memory, no image); a log is
believed over an exit code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from speccli.core.engines import vllm_crash, vllm_start
from speccli.core.errors import NotAuthorisedError, SpecctlError
from speccli.core.kube import crash_words as words
from speccli.core.kube.progress import container_status

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

Object = Mapping[str, Any]
LOG_LINES = 400
"""What is read of a log: a traceback through several processes takes 200."""
_READY = "Application startup complete"


@dataclass(frozen=True, slots=True)
class Crash:
    """Why a pod does not serve, and what to do."""

    pod: str
    code: str
    """`KV_CACHE_TOO_SMALL`, `UNSCHEDULABLE`, …; `UNKNOWN` where nothing that is known was found."""
    phase: str
    """How far it came: `scheduling`, `image`, `start`, `weights`, `compile`, `capture`, `ready`."""
    cause: str
    fix: str
    evidence: str
    """The message or log line that tells; empty where there is none."""
    restarts: int = 0
    exit_code: int | None = None

    @property
    def line(self) -> str:
        """`chat-5d9-x2x: KV_CACHE_TOO_SMALL at compile: one request of …`."""
        return f"{self.pod}: {self.code} at {self.phase}: {self.cause}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def classify_pod(cluster: Cluster, namespace: str, name: str) -> Crash | None:
    """Look at a pod, its events and its logs; None where it serves or is on its way.

    What may not be read (events, logs) is done without.

    Raises:
        ClusterError: the pod itself cannot be read.
    """
    pod = cluster.get("v1", "Pod", name, namespace)
    if pod is None:
        return None
    events = _allowed(lambda: cluster.events(namespace, name), [])
    status = container_status(pod)
    container = str(status.get("name") or "") or None
    log = ""
    if _ended(status) is not None:
        again = not (status.get("state") or {}).get("terminated")
        log = _allowed(
            lambda: cluster.logs(namespace, name, container, LOG_LINES, previous=again), ""
        )
    return classify(pod, events, log)


def _allowed(read: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return read()
    except NotAuthorisedError:
        return otherwise
    except SpecctlError:  # no former run any more: the log went with its container
        return otherwise


def classify(pod: Object, events: Sequence[Object] = (), log: str = "") -> Crash | None:
    """Why a pod does not serve; None where it serves or is on its way.

    Args:
        pod: As the API server has it.
        events: Its own, oldest first.
        log: The end of the log of the run that ended.
    """
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return None
    if status.get("phase") == "Failed" and status.get("reason"):
        return _told(pod, words.failed(str(status["reason"]), str(status.get("message") or "")))
    if not (pod.get("spec") or {}).get("nodeName"):
        return _told(pod, words.unscheduled(_unschedulable(status)))
    own = container_status(pod)
    waiting = (own.get("state") or {}).get("waiting") or {}
    reason = str(waiting.get("reason") or "")
    if reason and reason != "CrashLoopBackOff":
        said = str(waiting.get("message") or "")
        found = words.waiting(reason, said) or words.by_events(events)
        return _told(pod, found)
    ended = _ended(own)
    if ended is None or _is_ready(status):
        return None
    return _of_end(pod, own, ended, events, log)


def _ended(status: Object) -> Object | None:
    """How the last run ended."""
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        if ended := state.get("terminated"):
            return dict(ended)
    return None


def _is_ready(status: Object) -> bool:
    conditions = status.get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _unschedulable(status: Object) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""


def _told(pod: Object, found: words.Told | None) -> Crash | None:
    if found is None:
        return None
    own = container_status(pod)
    return Crash(
        str(pod["metadata"]["name"]),
        found.code,
        found.phase,
        found.cause,
        found.fix,
        found.evidence,
        int(own.get("restartCount") or 0),
    )


def _of_end(
    pod: Object, own: Object, ended: Object, events: Sequence[Object], log: str
) -> Crash | None:
    """A run that ended: by the kernel, by the kubelet, or by itself."""
    code = ended.get("exitCode")
    exit_code = int(code) if isinstance(code, int) else None
    phase = phase_of(log)
    found = _killed(pod, ended, events, phase, exit_code) or _by_log(log, phase, exit_code)
    told = found or words.by_exit(exit_code, str(ended.get("message") or ""), phase, log)
    return Crash(
        str(pod["metadata"]["name"]),
        told.code,
        told.phase,
        told.cause,
        told.fix,
        told.evidence,
        int(own.get("restartCount") or 0),
        exit_code,
    )


def _killed(
    pod: Object, ended: Object, events: Sequence[Object], phase: str, code: int | None
) -> words.Told | None:
    """Whether somebody else ended it."""
    reason = str(ended.get("reason") or "")
    if reason == "OOMKilled":
        return words.out_of_memory(_memory_limit(pod), phase)
    if reason in {"StartError", "ContainerCannotRun"}:
        return words.waiting("RunContainerError", str(ended.get("message") or ""))
    if code in {137, 143}:
        return words.probe(events, phase, _lived(ended))
    return None


def _by_log(log: str, phase: str, code: int | None) -> words.Told | None:
    found = vllm_crash.diagnose(log)
    if found is None:
        return None
    return words.Told(found.code, phase, found.cause, found.fix, found.evidence)


def _memory_limit(pod: Object) -> str | None:
    for each in (pod.get("spec") or {}).get("containers") or ():
        if limit := ((each.get("resources") or {}).get("limits") or {}).get("memory"):
            return str(limit)
    return None


def _lived(ended: Object) -> float | None:
    """Seconds from its start to its end."""
    try:
        begun, over = (
            datetime.fromisoformat(str(ended[name]).replace("Z", "+00:00"))
            for name in ("startedAt", "finishedAt")
        )
    except (KeyError, ValueError):
        return None
    return (over - begun).total_seconds()


_CAPTURE = re.compile(r"Capturing CUDA graphs|Graph capturing finished")


def phase_of(log: str) -> str:
    """How far a start had come, by its log."""
    if _READY in log:
        return "ready"
    mark = vllm_start.mark_of(log)
    captures = [found.start() for found in _CAPTURE.finditer(log)]
    if captures and (not mark.text or captures[-1] >= log.rfind(mark.text)):
        return "capture"
    return mark.stage if mark.text else "start"


def worst(crashes: Iterable[Crash]) -> Crash | None:
    """The one that tells most: a known cause first, then what was restarted oftenest."""
    return min(crashes, key=lambda c: (c.code == "UNKNOWN", -c.restarts, c.pod), default=None)
