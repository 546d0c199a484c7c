"""A deployment `chat` behind a scripted API server, for clients that find and read its pods."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.support.api_server import Question, Reply, listed, status

PAGE = b"""# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 1.0
"""
PODS = "/api/v1/namespaces/prod/pods"
DIAL = "error trying to reach service: dial tcp 10.0.0.7:8000: connect: connection refused"


class Fleet:
    """Pods behind an API server; change `pods`, `pages` and `logs` as a test goes."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = {pod["metadata"]["name"]: pod for pod in pods}
        self.pages: dict[str, Reply] = {}
        self.logs: dict[str, str] = {}
        self.token = "t0k"
        self.changes: list[bytes] = []
        self.watches = 0
        self.version = 7

    def change(self, kind: str, pod: dict[str, Any]) -> None:
        """Told to whoever watches from now on."""
        self.version += 1
        name = pod["metadata"]["name"]
        if kind == "DELETED":
            del self.pods[name]
        else:
            self.pods[name] = pod
        pod["metadata"]["resourceVersion"] = str(self.version)
        self.changes.append(json.dumps({"type": kind, "object": pod}).encode() + b"\n")

    def __call__(self, asked: Question) -> Reply | None:
        if asked.headers.get("authorization") != f"Bearer {self.token}":
            return status(401, "Unauthorized", "Unauthorized")
        if asked.path == "/apis/apps/v1/namespaces/prod/deployments/chat":
            labels = {"specctl.dev/deployment": "chat"}
            return Reply(body={"metadata": {"name": "chat", "labels": labels}, "spec": {}})
        if asked.path == PODS and asked.query.get("watch"):
            return self._watched(asked)
        if asked.path == PODS:
            return listed(*self.pods.values(), version=str(self.version))
        if asked.path.startswith(f"{PODS}/"):
            return self._pod(asked, *asked.path.removeprefix(f"{PODS}/").split("/", 1))
        return None

    def _watched(self, asked: Question) -> Reply:
        self.watches += 1
        for _ in range(100):  # a second of silence, then the server ends it
            if self.changes:
                break
            time.sleep(0.01)
        body, self.changes = b"".join(self.changes), []
        return Reply(body=body)

    def _pod(self, asked: Question, name: str, path: str = "") -> Reply:
        name, _, port = name.partition(":")
        if name not in self.pods:
            return status(404, "NotFound", f'pods "{name}" not found', name=name)
        if path == "log":
            return Reply(body=self.logs.get(name, "").encode())
        if path == "":
            return Reply(body=self.pods[name])
        assert port == "8000"
        if path != "proxy/metrics":
            return Reply(404, b"not here")
        return self.pages.get(name, Reply(body=PAGE))
