"""Stands between a client and the API server: writes down what is asked, and kills the client.

`with Between(kubeconfig) as between`: `between.kubeconfig` leads through it, as the administrator.
Each request is one call. When its `kill` says so the process `victim` gets a SIGKILL before the
next, which is not passed on: what was done is exactly the calls before it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import tempfile
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

_WRITES = frozenset({"PATCH", "POST", "DELETE", "PUT"})
_OF_THE_MOMENT = re.compile(
    rb"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)|\"resourceVersion\": ?\"\d+\""
    rb"|\\\"uid\\\": \\\"\w+\\\""
)
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "host", "content-length"})


@dataclass(frozen=True, slots=True)
class Kill:
    """After so many calls that change something, and then so many more."""

    writes: int
    calls: int


@dataclass(frozen=True, slots=True)
class News:
    """After a write that says what none has said since `forget`, but for times and versions.

    So each run comes one write further than the last.
    """


class Between:
    """Plain http in, the API server's TLS out."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """`kubeconfig`: an administrator's with inline data; `folder`: for one of its own."""
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._upstream = urlsplit(cluster["server"])
        authority = b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as pem:
            pem.write(b64decode(user["client-certificate-data"]))
            pem.write(b64decode(user["client-key-data"]))
            pem.flush()
            self._tls.load_cert_chain(pem.name)
        self._config = config
        self.kubeconfig = folder / "kubeconfig-between"
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._open.set()
        self.calls: list[str] = []
        """Method and path of every call, in order."""
        self.kill: Kill | News | None = None
        self._said: set[bytes] = set()
        self.news: list[str] = []
        """Writes that said something new, since `forget`."""
        self._told = 0
        """Of those, how many before this run."""
        self.victim: int | None = None
        self.killed = False
        self.before: Callable[[str], None] = lambda _: None
        """Is told of each call before it is passed on, which waits for it."""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """No call is answered inside the block."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def start_over(self, kill: Kill | News | None, victim: int | None) -> None:
        """Count from 0 again."""
        with self._lock:
            self.calls, self.killed = [], False
            self.kill, self.victim = kill, victim
            self._told = len(self.news)

    def forget(self) -> None:
        """Whatever is written next is new."""
        with self._lock:
            self._said, self.news = set(), []

    def _due(self) -> bool:
        if self.kill is None:
            return False
        if isinstance(self.kill, News):
            return len(self.news) > self._told
        done = [i for i, call in enumerate(self.calls) if changes(call)]
        if len(done) != self.kill.writes:
            return len(done) > self.kill.writes  # another write came first
        since = done[-1] + 1 if done else 0
        return len(self.calls) - since >= self.kill.calls

    @property
    def writes(self) -> list[str]:
        """The calls that change something."""
        return [call for call in self.calls if changes(call)]

    @property
    def before_writes(self) -> int:
        """How many calls come before the first of them."""
        return next((i for i, call in enumerate(self.calls) if changes(call)), len(self.calls))

    def _pass(self, call: str, body: bytes) -> bool:
        """Whether the call is passed on."""
        self._open.wait()
        with self._lock:
            if self.killed:
                return False
            if self._due():
                assert self.victim is not None
                self.killed = True
                os.kill(self.victim, signal.SIGKILL)
                return False
            self.calls.append(call)
            said = call.encode() + _OF_THE_MOMENT.sub(b"", body)
            if changes(call) and said not in self._said:
                self._said.add(said)
                self.news.append(call)
        self.before(call)
        return True

    def __enter__(self) -> Between:
        between = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            upstream: http.client.HTTPSConnection | None = None

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if not between._pass(f"{self.command} {self.path}", body):
                    self.close_connection = True
                    return
                if self.upstream is None:
                    self.upstream = between._connection()
                status, headers, found = between._ask(self.upstream, self, body)
                with contextlib.suppress(OSError):  # it was killed while it waited
                    self.send_response(status)
                    for name, value in headers:
                        if name.lower() not in _HOP:
                            self.send_header(name, value)
                    self.send_header("Content-Length", str(len(found)))
                    self.end_headers()
                    self.wfile.write(found)

            def finish(self) -> None:
                if self.upstream is not None:
                    self.upstream.close()
                super().finish()

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = answer  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that was killed is none."""

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        name = self._config["clusters"][0]["name"]
        config = {**self._config, "clusters": [{"name": name, "cluster": {"server": url}}]}
        config["users"] = [{"name": self._config["users"][0]["name"], "user": {}}]
        self.kubeconfig.write_text(json.dumps(config))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _connection(self) -> http.client.HTTPSConnection:
        """One for each of the client's: a handshake a call would be most of the time."""
        host, port = str(self._upstream.hostname), self._upstream.port
        return http.client.HTTPSConnection(host, port, context=self._tls, timeout=60)

    def _ask(
        self,
        upstream: http.client.HTTPSConnection,
        handler: BaseHTTPRequestHandler,
        body: bytes,
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        headers = {k: v for k, v in handler.headers.items() if k.lower() not in _HOP}
        upstream.request(handler.command, handler.path, body or None, headers)
        answer = upstream.getresponse()
        return answer.status, answer.getheaders(), answer.read()


def changes(call: str) -> bool:
    """Whether something is otherwise after a call."""
    return call.split()[0] in _WRITES and "dryRun=All" not in call and "/proxy/" not in call
