"""A real Prometheus, and engines with counters that are known exactly, for it to scrape."""

from __future__ import annotations

import math
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from speccli.core.engines.local import free_port

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
_LADDER = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5)


@dataclass
class FakeEngine:
    """A vLLM page whose counters are functions of the time since the process began.

    Drafts come at a steady 200 a second, K = 3. Acceptance swings between `low` and `high` with a
    period of 20 s, so that windows which do not cover the same time do not agree by chance.
    """

    low: float = 0.4
    high: float = 0.8
    drafts_per_s: float = 200.0
    period_s: float = 20.0
    began: float = field(default_factory=time.time)
    down: bool = False
    served: list[dict[str, float]] = field(default_factory=list)
    """Counters of every page handed to Prometheus."""

    def restart(self) -> None:
        self.began = time.time()

    def accepted(self, since_start: float) -> float:
        """Accepted tokens, exactly: the integral of 3 × rate × acceptance."""
        mean, swing = (self.high + self.low) / 2, (self.high - self.low) / 2
        turn = 2 * math.pi / self.period_s
        integral = mean * since_start + swing * (1 - math.cos(turn * since_start)) / turn
        return 3 * self.drafts_per_s * integral

    def accepted_between(self, start: float, end: float) -> float:
        """Accepted tokens from one instant to another, Unix seconds."""
        return self.accepted(end - self.began) - self.accepted(start - self.began)

    def counters(self) -> dict[str, float]:
        age = time.time() - self.began
        drafts = math.floor(self.drafts_per_s * age)
        accepted = math.floor(self.accepted(age))
        return {
            "drafts": drafts,
            "draft_tokens": 3 * drafts,
            "accepted_tokens": accepted,
            "generation_tokens": accepted + drafts,
            "requests": math.floor(4 * age),
        }

    def page(self, counters: dict[str, float]) -> bytes:
        labels = 'engine="0",model_name="tiny \\"q\\""'
        spec = "vllm:spec_decode_num_"
        accepted = counters["accepted_tokens"]
        thirds = [accepted - 2 * (accepted // 3), accepted // 3, accepted // 3]
        lines = [
            f"process_start_time_seconds {self.began:.3f}",
            f"{spec}drafts_total{{{labels}}} {counters['drafts']}",
            f"{spec}draft_tokens_total{{{labels}}} {counters['draft_tokens']}",
            f"{spec}accepted_tokens_total{{{labels}}} {accepted}",
            f"vllm:generation_tokens_total{{{labels}}} {counters['generation_tokens']}",
            f"vllm:iteration_tokens_total_count{{{labels}}} {counters['drafts']}",
            f"vllm:num_requests_running{{{labels}}} 2",
            f"vllm:num_requests_waiting{{{labels}}} 0",
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.25",
        ]
        for i, part in enumerate(thirds):
            name = f"{spec}accepted_tokens_per_pos_total"
            lines.append(f'{name}{{{labels},position="{i}"}} {part}')
        for reason in ("stop", "length"):
            name = "vllm:request_success_total"
            half = counters["requests"] // 2
            lines.append(f'{name}{{{labels},finished_reason="{reason}"}} {half}')
        for family, n in (
            ("time_to_first_token_seconds", counters["requests"]),
            ("inter_token_latency_seconds", counters["drafts"]),
        ):
            lines += _histogram(f"vllm:{family}", labels, n)
        return ("\n".join(lines) + "\n").encode()


def _histogram(name: str, labels: str, n: float) -> Iterator[str]:
    """Every observation is 0.04 s."""
    for bound in _LADDER:
        yield f'{name}_bucket{{{labels},le="{bound}"}} {n if bound >= 0.04 else 0}'
    yield f'{name}_bucket{{{labels},le="+Inf"}} {n}'
    yield f"{name}_count{{{labels}}} {n}"
    yield f"{name}_sum{{{labels}}} {0.04 * n:.3f}"


@dataclass
class FakeFleet:
    """One page for many engines; each page advances every engine by known amounts."""

    namespace: str
    size: int
    pages: int = 0

    def drafted(self, engine: int) -> int:
        return 300 + engine % 7

    def accepted(self, engine: int) -> int:
        return 60 + (engine * 37) % 240

    @property
    def acceptance(self) -> float:
        """Of the whole, exactly."""
        engines = range(self.size)
        return sum(map(self.accepted, engines)) / sum(map(self.drafted, engines))

    def page(self) -> bytes:
        self.pages += 1
        n, base = self.pages, 10_000  # far from zero, where increase() would stop extrapolating
        chunks = []
        for e in range(self.size):
            drafts, drafted, accepted = 100, self.drafted(e), self.accepted(e)
            labels = (
                f'instance="{self.namespace}-{e}",namespace="{self.namespace}",'
                'engine="0",model_name="m"'
            )
            spec = "vllm:spec_decode_num_"
            grown = {
                f"{spec}drafts_total": drafts,
                f"{spec}draft_tokens_total": drafted,
                f"{spec}accepted_tokens_total": accepted,
                "vllm:generation_tokens_total": accepted + drafts,
                "vllm:prompt_tokens_total": 50,
                "vllm:iteration_tokens_total_count": drafts // 2,
            }
            lines = [f"{name}{{{labels}}} {(base + n) * step}" for name, step in grown.items()]
            # Engines with an odd number draft two tokens, the others three.
            for i in range(2 + (e % 2 == 0)):
                name = f"{spec}accepted_tokens_per_pos_total"
                lines.append(f'{name}{{{labels},position="{i}"}} {(base + n) * (90 - 30 * i)}')
            for family, step in (
                ("time_to_first_token_seconds", 4),
                ("inter_token_latency_seconds", drafts),
                ("request_queue_time_seconds", 4),
            ):
                lines += _histogram(f"vllm:{family}", labels, (base + n) * step)
            lines += [
                f"vllm:num_requests_running{{{labels}}} 3",
                f"vllm:num_requests_waiting{{{labels}}} {90 if e == 5 else 0}",
                f"vllm:kv_cache_usage_perc{{{labels}}} 0.{30 + e % 60}",
            ]
            chunks.append("\n".join(lines))
        return ("\n".join(chunks) + "\n").encode()


@contextmanager
def exporter(engine: FakeEngine) -> Iterator[str]:
    """An engine's page at a port of its own; asked with `?quiet` it is not written down."""

    def answer(path: str) -> bytes:
        counters = engine.counters()
        if "quiet" not in path:
            engine.served.append(counters)
        return engine.page(counters)

    with _http(answer, lambda: engine.down) as address:
        yield address


@contextmanager
def fleet_exporter(fleet: FakeFleet) -> Iterator[str]:
    """A fleet's page at a port of its own."""
    with _http(lambda _: fleet.page(), lambda: False) as address:
        yield address


@contextmanager
def _http(answer: Callable[[str], bytes], down: Callable[[], bool]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802 - http.server's name
            if down():
                self.send_error(503)
                return
            body = answer(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # Prometheus hung up

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def prometheus(
    folder: Path, engines: Sequence[str], fleets: Sequence[str], rules: str
) -> Iterator[str]:
    """A Prometheus that scrapes engines every second and fleets every two; its URL."""
    assert PROMETHEUS is not None
    (folder / "rules.yaml").write_text(rules)
    (folder / "prometheus.yml").write_text(f"""
global: {{scrape_interval: 1s, scrape_timeout: 900ms, evaluation_interval: 2s}}
rule_files: [rules.yaml]
scrape_configs:
- job_name: engines
  static_configs: [{{targets: {list(engines)}}}]
- job_name: fleets
  honor_labels: true
  scrape_interval: 5s
  scrape_timeout: 5s
  static_configs: [{{targets: {list(fleets)}}}]
""")
    port = free_port()
    command = [PROMETHEUS, f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--web.enable-lifecycle"]
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_until_ready(url, process, folder / "log")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def reload(url: str, folder: Path, rules: str) -> None:
    """Give a Prometheus of `folder` other rules while it runs."""
    (folder / "rules.yaml").write_text(rules)
    asked = urllib.request.Request(f"{url}/-/reload", method="POST")
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert answer.status == 200


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 180
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"Prometheus did not start:\n{log.read_text()}")
