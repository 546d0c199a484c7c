"""A scripted Kubernetes API server for blocking clients: it answers as a test says."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

VERSION = {"major": "1", "minor": "37", "gitVersion": "v1.37.2"}
CORE = [("pods", "Pod", True), ("nodes", "Node", False), ("events", "Event", True)]
APPS = [("deployments", "Deployment", True)]
GROUPS: dict[str, list[tuple[str, str, bool]]] = {"v1": CORE, "apps/v1": APPS}


@dataclass
class Question:
    """What was asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """What is answered. `body`: plain values become JSON."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """Half of the body, then the connection is closed."""
    slow_s: float = 0.0
    """Before the answer."""
    drip_s: float = 0.0
    """Between two bytes of the body."""


Script = Callable[[Question], Reply | None]


def status(code: int, reason: str, message: str, **details: Any) -> Reply:
    """A `Status` object, as API servers refuse."""
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
    }
    body |= {"message": message, "reason": reason, "code": code}
    return Reply(code, body | ({"details": details} if details else {}))


def not_there(name: str = "x", kind: str = "pods") -> Reply:
    return status(404, "NotFound", f'{kind} "{name}" not found', name=name, kind=kind)


def listed(*items: Any, version: str = "7", onward: str = "") -> Reply:
    metadata = {"resourceVersion": version} | ({"continue": onward} if onward else {})
    return Reply(body={"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})


class ApiServer:
    """An HTTPS (or plain) server that knows discovery and asks `script` for the rest."""

    def __init__(
        self,
        script: Script = lambda question: None,
        *,
        tls: ssl.SSLContext | None = None,
        groups: Mapping[str, list[tuple[str, str, bool]]] = GROUPS,
    ) -> None:
        self.script = script
        self.groups = dict(groups)
        self.asked: list[Question] = []
        self.connections = 0
        self._open: list[socket.socket] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16

            def setup(self) -> None:
                server.connections += 1
                server._open.append(self.request)
                super().setup()

            def log_message(self, *_: Any) -> None:
                return

            def _answer(self) -> None:
                server.answer(self)

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _answer

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                return  # clients that leave early are part of the tests

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.scheme = "https" if tls else "http"
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def paths(self, method: str = "GET") -> list[str]:
        return [each.path for each in self.asked if each.method == method]

    def __enter__(self) -> ApiServer:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Listen no more, and cut the connections there are."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        length = int(handler.headers.get("Content-Length") or 0)
        question = Question(
            handler.command,
            parts.path,
            {name: values[-1] for name, values in parse_qs(parts.query).items()},
            {name.lower(): value for name, value in handler.headers.items()},
            handler.rfile.read(length),
        )
        self.asked.append(question)
        reply = self.script(question) or self._discovery(question)
        _send(handler, reply)

    def _discovery(self, question: Question) -> Reply:
        if question.path == "/version":
            return Reply(body=VERSION)
        if question.path == "/apis":
            return Reply(body={"kind": "APIGroupList", "groups": self._api_groups()})
        named = question.path.removeprefix("/apis/").removeprefix("/api/")
        if named in self.groups:
            resources = [
                {"name": plural, "kind": kind, "namespaced": namespaced, "verbs": ["get"]}
                for plural, kind, namespaced in self.groups[named]
            ]
            return Reply(body={"kind": "APIResourceList", "resources": resources})
        return Reply(404, b"404 page not found\n")

    def _api_groups(self) -> list[Any]:
        versions = [name.split("/") for name in self.groups if "/" in name]
        found = []
        for group, version in versions:
            one = {"groupVersion": f"{group}/{version}", "version": version}
            found.append({"name": group, "versions": [one], "preferredVersion": one})
        return found


def _send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    if reply.slow_s:
        time.sleep(reply.slow_s)
    raw = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    handler.send_response(reply.status)
    plain = isinstance(reply.body, bytes)
    usual = {"Content-Type": "text/plain" if plain else "application/json"}
    for name, value in {**usual, "Content-Length": str(len(raw)), **reply.headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if reply.cut:
        handler.wfile.write(raw[: len(raw) // 2])
        handler.wfile.flush()
        handler.close_connection = True
        return
    if reply.drip_s:
        for at in range(len(raw)):
            handler.wfile.write(raw[at : at + 1])
            handler.wfile.flush()
            time.sleep(reply.drip_s)
        return
    handler.wfile.write(raw)
    handler.wfile.flush()


def write_kubeconfig(
    path: Path,
    server: str,
    *,
    user: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
    namespace: str | None = "prod",
) -> Path:
    """A kubeconfig of one context `here`, with a token unless the user is given."""
    context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": "t0k"} if user is None else dict(user)}],
    }
    path.write_text(json.dumps(content))
    return path
