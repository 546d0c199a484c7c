"""An engine in a thread, for commands that run in this process or in one of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.core.pages import STARTED, Engine, page


@dataclass
class Served:
    """What the engine answers, and what it was asked."""

    status: int = 200
    token: str | None = None
    """The bearer token it wants."""
    asked: list[str] = field(default_factory=list)
    url: str = ""
    engine: Engine = field(default_factory=lambda: Engine(k=3))

    def page(self) -> bytes:
        """A page a little further than the last one: 30 drafts of three, 40 accepted."""
        engine = self.engine
        engine.steps += 10
        engine.drafts += 30
        engine.accepted = [a + b for a, b in zip(engine.accepted, (20, 13, 7), strict=True)]
        engine.generation += 70
        engine.hist["itl"].observe(0.02, 30)
        engine.running = 3.0
        return page(engine, started=STARTED)


@contextmanager
def serving(served: Served | None = None) -> Iterator[Served]:
    """A server at a free port of this machine."""
    answers = served or Served()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answers.asked.append(self.path)
            status, body = answers.status, b""
            if answers.token and self.headers["Authorization"] != f"Bearer {answers.token}":
                status = 401
            elif self.path != "/metrics":
                status = 404
            elif status == 200:
                body = answers.page()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        answers.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield answers
        finally:
            server.shutdown()
            thread.join()
