"""A real Alertmanager, and a receiver that it tells."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from speccli.core.engines.local import free_port

ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


@dataclass
class Receiver:
    """What a webhook was sent."""

    url: str = ""
    posts: list[dict[str, Any]] = field(default_factory=list)

    def heard(self, status: str, alertname: str) -> list[dict[str, Any]]:
        """Every time it was told of an alert in that state."""
        return [
            alert
            for post in self.posts
            for alert in post.get("alerts", ())
            if alert["status"] == status and alert["labels"]["alertname"] == alertname
        ]

    def until(self, status: str, alertname: str, within_s: float = 180.0) -> dict[str, Any]:
        """Wait for it; the last one."""
        ends = time.monotonic() + within_s
        while not (found := self.heard(status, alertname)):
            if time.monotonic() > ends:
                told = [(a["status"], a["labels"]) for p in self.posts for a in p["alerts"]]
                raise AssertionError(f"no {status} {alertname}: {told}")
            time.sleep(0.1)
        return found[-1]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver at a port of its own."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802 - http.server's name
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            receiver.posts.append(json.loads(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def alertmanager(folder: Path, receiver: Receiver) -> Iterator[str]:
    """An Alertmanager that groups by alert and tells the receiver at once; its URL."""
    assert ALERTMANAGER is not None
    (folder / "alertmanager.yml").write_text(f"""
global: {{resolve_timeout: 5m}}
route:
  receiver: here
  group_by: [alertname, subject, model_name]
  group_wait: 1s
  group_interval: 1s
  repeat_interval: 1h
receivers:
- name: here
  webhook_configs:
  - url: {receiver.url}
    send_resolved: true
""")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [ALERTMANAGER, f"--config.file={folder / 'alertmanager.yml'}"]
    command += [f"--storage.path={folder / 'am'}", f"--web.listen-address=127.0.0.1:{port}"]
    command += ["--cluster.listen-address=", "--log.level=warn"]
    with (folder / "am.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait(url, process, folder / "am.log")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + 120
    while time.monotonic() < ends and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"Alertmanager did not start:\n{log.read_text()}")
