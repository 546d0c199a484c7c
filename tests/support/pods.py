"""Pods as an API server has them."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def pod(name: str, status: Object, *, node: str | None = "n1", **metadata: Any) -> Object:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"specctl.dev/deployment": "chat"},
            **metadata,
        },
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [
                {
                    "name": "engine",
                    "ports": [{"name": "http", "containerPort": 8000}],
                    "resources": {"limits": {"memory": "64Gi", "nvidia.com/gpu": "1"}},
                }
            ],
        },
        "status": status,
    }


def container(state: Object, *, restarts: int = 0, last: Object | None = None) -> Object:
    return {
        "name": "engine",
        "restartCount": restarts,
        "state": state,
        "lastState": last or {},
    }


def _condition(kind: str, value: bool, **more: str) -> Object:
    return {"type": kind, "status": str(value), **more}


def ready(name: str, **metadata: Any) -> Object:
    status = {
        "phase": "Running",
        "conditions": [_condition("Ready", True)],
        "containerStatuses": [container({"running": {"startedAt": "2026-09-01T00:00:00Z"}})],
    }
    return pod(name, status, **metadata)


def loading(name: str) -> Object:
    status = {
        "phase": "Running",
        "conditions": [_condition("Ready", False)],
        "containerStatuses": [container({"running": {"startedAt": "2026-09-01T00:00:00Z"}})],
    }
    return pod(name, status)


NO_GPU = (
    "0/5 nodes are available: 2 Insufficient nvidia.com/gpu, 3 node(s) had untolerated taint "
    "{node-role.kubernetes.io/control-plane: }. preemption: 0/5 nodes are available: 5 Preemption "
    "is not helpful for scheduling."
)


def pending(name: str, message: str = NO_GPU) -> Object:
    unscheduled = _condition("PodScheduled", False, reason="Unschedulable", message=message)
    return pod(name, {"phase": "Pending", "conditions": [unscheduled]}, node=None)


def waiting(name: str, reason: str, message: str) -> Object:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(name, {"phase": "Pending", "containerStatuses": [container(state)]})


def terminating(name: str) -> Object:
    return ready(name, deletionTimestamp="2026-09-01T00:00:00Z")


def ended(code: int, reason: str = "Error", **more: Any) -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


def crashed(
    name: str, *, code: int = 1, reason: str = "Error", restarts: int = 3, **more: Any
) -> Object:
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    status = {
        "phase": "Running",
        "containerStatuses": [
            container(state, restarts=restarts, last=ended(code, reason, **more))
        ],
    }
    return pod(name, status)


def evicted(name: str, message: str, reason: str = "Evicted") -> Object:
    return pod(name, {"phase": "Failed", "reason": reason, "message": message})
