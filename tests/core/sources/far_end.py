"""A far end that answers as it is told, for tests of what asks it."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drip_s: float = 0.0
    """Pause before each byte of the body."""


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]


def success(result: Any, kind: str = "vector", **more: Any) -> Reply:
    payload = {"status": "success", "data": {"resultType": kind, "result": result}, **more}
    return Reply(body=json.dumps(payload).encode(), headers={"Content-Type": "application/json"})


def failure(status: int, kind: str, error: str) -> Reply:
    payload = {"status": "error", "errorType": kind, "error": error}
    return Reply(status, json.dumps(payload).encode(), {"Content-Type": "application/json"})


@dataclass
class FarEnd:
    url: str
    requests: list[Request]


@contextmanager
def far_end(
    answer: Callable[[Request], Reply] | Reply, *, tls: tuple[Path, Path] | None = None
) -> Iterator[FarEnd]:
    """A server on a free port. `tls`: certificate and key."""
    requests: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            pairs = {**parse_qs(parts.query), **parse_qs(body)}
            query = {name: values[0] for name, values in pairs.items()}
            request = Request(self.command, parts.path, query, dict(self.headers))
            requests.append(request)
            reply = answer if isinstance(answer, Reply) else answer(request)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            step = 1 if reply.drip_s else max(1, len(reply.body))
            for i in range(0, len(reply.body), step):
                time.sleep(reply.drip_s)
                try:
                    self.wfile.write(reply.body[i : i + step])
                    self.wfile.flush()
                except OSError:
                    return

        do_GET = do_POST = _serve  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that refuses our certificate hangs up

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        scheme = "https" if tls else "http"
        yield FarEnd(f"{scheme}://127.0.0.1:{server.server_port}", requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def silent() -> Iterator[str]:
    """A server that accepts and never answers."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    held.append(listening.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()
    thread.join()


def refused() -> str:
    """A URL at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


@dataclass(frozen=True)
class Certificates:
    ca: Path
    server: tuple[Path, Path]
    client: tuple[Path, Path]


def make_certificates(folder: Path) -> Certificates:
    """A private CA and what it signed, made by openssl."""

    def openssl(*words: str | Path) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)

    def signed(name: str, extensions: Sequence[str]) -> tuple[Path, Path]:
        key, request, certificate = (folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        settings = folder / f"{name}.cnf"
        settings.write_text("\n".join(extensions))
        openssl(*fresh, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        openssl(
            *("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial"),
            *("-days", "2", "-extfile", settings, "-out", certificate),
        )
        return certificate, key

    fresh = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    openssl(*fresh, "-x509", "-keyout", ca_key, "-out", ca, "-days", "2", "-subj", "/CN=test CA")
    server = signed("server", ["subjectAltName=IP:127.0.0.1"])
    return Certificates(ca, server, signed("client", ["extendedKeyUsage=clientAuth"]))
