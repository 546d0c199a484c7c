"""An engine's page over HTTP, whose counters grow with the clock; it may be told to misbehave."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.recordings import counter, gauge, speculation


@dataclass
class Engine:
    """K = 3, a thousand drafts a second."""

    accepted: float = 0.6
    """Of draft tokens."""
    drafts_per_s: float = 1000.0
    down: bool = False
    plain: bool = False
    """Whether it runs without speculation, and says so."""
    hang_s: float = 0.0
    began: float = field(default_factory=lambda: time.time() - 10_000)
    url: str = ""
    asked: int = 0

    def page(self) -> bytes:
        drafts = int(self.drafts_per_s * (time.time() - self.began))
        accepted = int(3 * drafts * self.accepted)
        each = accepted // 3
        spec = speculation(3 * drafts, accepted, drafts, [accepted - 2 * each, each, each])
        text = "" if self.plain else spec
        text += counter("vllm:generation_tokens_total", ("", drafts + accepted))
        text += gauge("vllm:num_requests_running", ("", 2 if self.drafts_per_s else 0))
        text += gauge("vllm:num_requests_waiting", ("", 0))
        return (text + f"process_start_time_seconds {self.began:.3f}\n").encode()


@contextmanager
def serving(engine: Engine) -> Iterator[str]:
    """Its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # noqa: N802 - http.server's name
            engine.asked += 1
            if engine.hang_s:
                time.sleep(engine.hang_s)
            body = engine.page() if self.path == "/metrics" else b""
            if engine.plain and self.path.startswith("/server_info"):
                body = b'{"vllm_config": {"speculative_config": null}}'
            self.send_response(200 if body else 404)
            if engine.down:
                self.close_connection = True
                return
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    engine.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield engine.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
