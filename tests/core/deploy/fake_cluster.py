"""A cluster in memory for the order of things: what it would really do is tests/e2e/kube's.

It keeps objects as they are applied, rolls every Deployment out at once, and its pods speculate.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from speccli.core.kube.errors import Clash, Conflict, Denied, NotInstalled, Unreachable

T = TypeVar("T")
Object = dict[str, Any]
Key = tuple[str, str]
H100 = "NVIDIA-H100-80GB-HBM3"


def copied(value: T) -> T:
    """As `copy.deepcopy`, of which there are thousands here, in a fraction of its time."""
    copy: T = pickle.loads(pickle.dumps(value, -1))
    return copy


class Killed(BaseException):
    """The process ends here."""


class FakeCluster:
    """`calls` has each write; `die_after` ends the process after so many of them."""

    context, namespace, server = "fake", "llm", "https://fake"

    def __init__(self, gpus: int = 8) -> None:
        self.objects: dict[Key, Object] = {("Namespace", "llm"): _named("Namespace", "llm")}
        self.calls: list[str] = []
        self.gpus = gpus
        self.die_after: int | None = None
        self.missing: frozenset[str] = frozenset({"ScaledObject", "HTTPRoute", "InferencePool"})
        self.denied: frozenset[str] = frozenset()
        self.tried: list[Object] = []
        """Every object of a dry run."""
        self.waiting: list[Object] = []
        """Pods without a node."""
        self.node: Object = {}
        """What the node's spec says."""
        self.kept: frozenset[str] = frozenset()
        """Kinds that may not be deleted."""
        self.clash: Clash | None = None
        self.ready: Callable[[Object], bool] = lambda _: True
        self.drafts: dict[str, int] = {}
        self.silent: set[str] = set()
        """Deployments whose pods serve without drafting, whatever their arguments say."""
        self.stubborn: set[str] = set()
        """Deployments whose pods draft, whatever their arguments say."""
        self.running: float | None = None
        """Requests that run in each pod; None: the page does not tell."""
        self.queued = 0.0
        """Requests that wait in each pod."""
        self.version_of_last = 0
        self.away = 0
        """Calls that find no server."""
        self._lock = threading.Lock()

    # ---- reads ----

    def version(self) -> tuple[int, int]:
        return (1, 37)

    def get(
        self, api_version: str, kind: str, name: str, namespace: str | None = None
    ) -> Object | None:
        self._may(kind)
        return copied(self.objects.get((kind, name)))

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[Object]:
        self._may(kind)
        if kind == "Node":
            return [_node(self.gpus) | {"spec": self.node}]
        if kind in {"Pod", "ReplicaSet"}:
            return [each for each in (*self._made(), *self.waiting) if each["kind"] == kind]
        if kind == "EndpointSlice":
            return [*self._slices((labels or "").rpartition("=")[2])]
        wanted = dict(part.split("=") for part in (labels or "").split(",") if part)
        return [
            copied(value)
            for (kind_, _), value in self.objects.items()
            if kind_ == kind and wanted.items() <= (value["metadata"].get("labels") or {}).items()
        ]

    def events(self, namespace: str, name: str) -> Sequence[Object]:
        return []

    def logs(self, *_: Any, **__: Any) -> str:
        return ""

    def _may(self, kind: str) -> None:
        if self.away:
            self.away -= 1
            raise Unreachable("no answer from https://fake")
        if kind in self.missing:
            raise NotInstalled(f"no {kind}")
        if kind in self.denied:
            raise Denied(f"not allowed: may not list {kind}s")

    # ---- writes ----

    def apply(
        self,
        obj: Mapping[str, Any],
        dry_run: bool = False,
        force: bool = False,
        manager: str = "specctl",
    ) -> Object:
        kind, name = obj["kind"], obj["metadata"]["name"]
        self._may(kind)
        if kind == "Deployment" and self.clash and not force:
            raise Conflict(f"cannot apply {kind} {name}", clashes=[self.clash])
        before = self.objects.get((kind, name))
        if not force and _taken(before, obj, manager):
            raise Conflict(
                f"cannot apply {kind} {name}", clashes=[Clash("another", ".spec.replicas")]
            )
        version = obj["metadata"].get("resourceVersion")
        if version and version != (before or {}).get("metadata", {}).get("resourceVersion"):
            raise Conflict(f"cannot apply {kind} {name}: it changed meanwhile")
        after = self._merged(before, copied(dict(obj)), manager)
        if dry_run:
            self.tried.append(copied(dict(obj)))
        else:
            self._write(f"{manager} {kind} {name}")
            self.version_of_last += 1  # `calls` may be cleared
            after["metadata"]["resourceVersion"] = str(self.version_of_last)
            self.objects[kind, name] = after
        return copied(after)

    def _merged(self, before: Object | None, obj: Object, manager: str) -> Object:
        if manager != "specctl":
            merged = copied(before) or obj
            merged["spec"] |= obj.get("spec") or {}
        else:
            merged = obj
            if obj["kind"] == "Deployment" and "replicas" not in obj["spec"]:
                held = before is not None and "held" in before
                merged["spec"]["replicas"] = before["spec"]["replicas"] if held and before else 1
        former = {m["manager"]: m for m in _managed(before) if m["fieldsV1"]}
        taken = _taken(before, obj, manager)  # by force, when it comes here
        owners = set() if taken else set(former)
        if "replicas" in (obj.get("spec") or {}):
            owners.add(manager)
        elif manager == "specctl" or manager in owners:
            owners.discard(manager)
        if owners - {"specctl"}:
            merged["held"] = True
        merged["metadata"]["uid"] = f"{obj['kind']}-{obj['metadata']['name']}"
        merged["metadata"]["managedFields"] = [
            former.get(o)
            or {"manager": o, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
            for o in sorted(owners)
        ] or [{"manager": manager, "operation": "Apply", "fieldsV1": {}}]
        if obj["kind"] == "Deployment":
            self._roll_out(merged)
        return merged

    def _roll_out(self, value: Object) -> None:
        count = value["spec"].get("replicas", 1)
        good = count if self.ready(value) else 0
        value["metadata"]["generation"] = 1
        value["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "1"}
        value["status"] = {
            "observedGeneration": 1,
            "replicas": count,
            "updatedReplicas": count,
            "availableReplicas": good,
        }

    def delete(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> bool:
        self._may(kind)
        if (kind, name) not in self.objects:
            return False
        if kind in self.kept:
            raise Denied(f"not allowed: may not delete {kind}s")
        self._write(f"delete {kind} {name}")
        del self.objects[kind, name]
        return True

    def _write(self, call: str) -> None:
        if self.die_after is not None and len(self.calls) >= self.die_after:
            raise Killed
        self.calls.append(call)

    # ---- pods ----

    def _slices(self, service: str) -> Sequence[Object]:
        value = self.objects.get(("Service", service))
        if value is None:
            return []
        wanted = value["spec"]["selector"]
        pods = [each for each in self._made() if each["kind"] == "Pod"]
        led = [each for each in pods if wanted.items() <= each["metadata"]["labels"].items()]
        ends = [
            {
                "targetRef": {"name": each["metadata"]["name"]},
                "conditions": {"ready": each["status"]["conditions"][0]["status"] == "True"},
            }
            for each in led
        ]
        return [{"endpoints": ends}]

    def _speculates(self, pod: str) -> bool:
        name = pod.rpartition("-")[0]
        value = self.objects.get(("Deployment", name))
        if value is None or name in self.silent | self.stubborn:
            return name not in self.silent
        return "--speculative-config" in value["spec"]["template"]["spec"]["containers"][0]["args"]

    def _made(self) -> Iterable[Object]:
        for (kind, name), value in self.objects.items():
            if kind != "Deployment":
                continue
            labels = {**value["spec"]["template"]["metadata"]["labels"], "pod-template-hash": name}
            owner = [{"uid": value["metadata"]["uid"]}]
            notes = value["metadata"]["annotations"]
            yield {
                "kind": "ReplicaSet",
                "metadata": {"labels": labels, "annotations": notes, "ownerReferences": owner},
            }
            for number in range(value["spec"].get("replicas", 1)):
                ready = "True" if self.ready(value) else "False"
                yield {
                    "kind": "Pod",
                    "metadata": {"name": f"{name}-{number}", "labels": labels},
                    "spec": {**value["spec"]["template"]["spec"], "nodeName": "h100-a"},
                    "status": {"conditions": [{"type": "Ready", "status": ready}]},
                }

    def proxy(
        self,
        namespace: str,
        pod: str,
        port: int,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Any = None,
    ) -> tuple[int, bytes]:
        if path == "/v1/models":
            return 200, b'{"data": [{"id": "m"}]}'
        if path == "/metrics":
            return 200, self._page(self.drafts.get(pod, 0), drafts=self._speculates(pod))
        with self._lock:
            self.drafts[pod] = self.drafts.get(pod, 0) + 40
        choice = {"message": {"content": "Cold air falls and warm air rises."}}
        answer = {"choices": [choice], "usage": {"completion_tokens": 96}}
        return 200, json.dumps(answer).encode()

    def _page(self, n: int, *, drafts: bool) -> bytes:
        if not drafts:
            return f'vllm:generation_tokens_total{{engine="0"}} {2 * n}\n{self._runs()}'.encode()
        counts = {
            "generation_tokens_total": 2 * n,
            "spec_decode_num_drafts_total": n,
            "spec_decode_num_draft_tokens_total": 3 * n,
            "spec_decode_num_accepted_tokens_total": n,
        }
        lines = [f'vllm:{name}{{engine="0"}} {value}' for name, value in counts.items()]
        at = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        shares = (0.6, 0.3, 0.1)
        lines += [f'{at}{{engine="0",position="{i}"}} {n * s:.0f}' for i, s in enumerate(shares)]
        return ("\n".join(lines) + f"\n{self._runs()}").encode()

    def _runs(self) -> str:
        told = self.running
        if told is None:
            return ""
        waits = f'vllm:num_requests_waiting{{engine="0"}} {self.queued}'
        return f'vllm:num_requests_running{{engine="0"}} {told}\n{waits}\n'


def _managed(value: Object | None) -> list[Object]:
    return list((value or {}).get("metadata", {}).get("managedFields", ()))


def _taken(before: Object | None, obj: Mapping[str, Any], manager: str) -> bool:
    """Whether somebody else has set other replicas."""
    wanted = (obj.get("spec") or {}).get("replicas")
    if obj["kind"] != "Deployment" or before is None or wanted is None:
        return False
    others = [m for m in _managed(before) if m["manager"] != manager and m["fieldsV1"]]
    return bool(others) and before["spec"].get("replicas") != wanted


def _named(kind: str, name: str) -> Object:
    return {"kind": kind, "metadata": {"name": name}}


def _node(gpus: int) -> Object:
    return {
        "metadata": {"name": "h100-a", "labels": {"nvidia.com/gpu.product": H100}},
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
