"""`LocalEngine` against a server that behaves, and ones that do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from speccli.core.engines.local import (
    FIRST_PHASE,
    EngineStartError,
    LocalEngine,
    find_vllm_python,
    free_port,
)
from speccli.core.errors import SpecctlError, UsageError

SERVER = """
import http.server, json, os, signal, subprocess, sys, time
LOG = "(APIServer pid=1) "
model, _, host, _, port, *rest = sys.argv[1:]
print(LOG + "INFO api_utils.py:286] non-default args: {}", flush=True)
if model == "broken":
    print(LOG + "ValueError: draft and target vocabularies differ", flush=True)
    print(LOG + "RuntimeError: Engine core initialization failed. See above.", flush=True)
    sys.exit(3)
if model == "slow":
    time.sleep(60)
if model == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"])
print("worker", worker.pid, flush=True)
print("arguments", json.dumps(rest), os.environ.get("GREETING"), flush=True)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

time.sleep(0.5)
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
"""

Make = Callable[..., LocalEngine]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    engines: list[LocalEngine] = []

    def make_engine(model: str = "good", **options: object) -> LocalEngine:
        engine = LocalEngine(
            Path(sys.executable),
            model,
            port=free_port(),
            log_path=tmp_path / "logs" / "engine.log",
            launcher=[str(script)],
            **options,  # type: ignore[arg-type]
        )
        engines.append(engine)
        return engine

    yield make_engine
    for engine in engines:
        engine.stop(grace_s=0)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z"


def until(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def worker_of(engine: LocalEngine) -> int:
    words = engine.log_tail().split()
    return int(words[words.index("worker") + 1])


def test_a_start_reaches_health_and_a_stop_leaves_no_process(make: Make) -> None:
    phases: list[str] = []
    with make() as engine:
        engine.wait_ready(60, on_phase=phases.append)
        worker = worker_of(engine)
        assert engine.running
        assert engine.pid is not None
        assert alive(worker)
    assert phases[-1] == "reading the model's configuration"
    assert engine.pid is None
    assert not engine.running
    assert until(lambda: not alive(worker)), "the worker outlived its server"


def test_arguments_and_environment_reach_the_server(make: Make) -> None:
    speculative = {"method": "ngram", "num_speculative_tokens": 3}
    with make(
        speculative=speculative, extra_args=["--enforce-eager"], env={"GREETING": "hello"}
    ) as engine:
        engine.wait_ready(60)
        assert (
            """arguments ["--speculative-config", "{\\"method\\": \\"ngram\\","""
            """ \\"num_speculative_tokens\\": 3}", "--enforce-eager"] hello"""
        ) in engine.log_tail()


def test_a_server_that_dies_says_when_and_why(make: Make) -> None:
    with make("broken") as engine, pytest.raises(EngineStartError) as caught:
        engine.wait_ready(60)
    assert caught.value.message == (
        "vLLM exited with 3 while reading the model's configuration: "
        "ValueError: draft and target vocabularies differ"
    )
    assert caught.value.hint == f"its log is {engine.log_path}"
    assert "Engine core initialization failed" in caught.value.log_tail
    assert isinstance(caught.value, SpecctlError)


def test_a_server_that_takes_too_long_is_given_up(make: Make) -> None:
    now = iter(range(100))
    with make("slow") as engine, pytest.raises(EngineStartError, match="not ready after 3 s"):
        engine.wait_ready(3, clock=lambda: next(now), sleep=lambda _: None)


def test_a_server_that_ignores_the_request_to_stop_is_killed(make: Make) -> None:
    engine = make("stubborn")
    engine.start()
    engine.wait_ready(60)
    pid = engine.pid
    assert pid is not None
    engine.stop(grace_s=0.1)
    assert not alive(pid)
    engine.stop()  # a second time does nothing


def test_a_server_does_not_outlive_a_killed_specctl(make: Make, tmp_path: Path) -> None:
    engine = make("stubborn")
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from speccli.core.engines.local import LocalEngine\n"
        f"engine = LocalEngine(Path(sys.executable), 'stubborn', port={engine.port},\n"
        f"    log_path=Path({str(engine.log_path)!r}),\n"
        f"    launcher=[{str(tmp_path / 'server.py')!r}])\n"
        "engine.start()\n"
        "engine.wait_ready(60)\n"
        "print(engine.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ) as specctl:
        assert specctl.stdout is not None
        server = int(specctl.stdout.readline())
        worker = worker_of(engine)
        assert alive(server)
        assert alive(worker)
        specctl.send_signal(signal.SIGKILL)
    assert until(lambda: not alive(server) and not alive(worker))


def test_a_program_that_is_not_there_is_a_start_error(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / "python", "m", port=1, log_path=tmp_path / "log")
    with pytest.raises(EngineStartError, match="cannot be run: No such file"):
        engine.start()
    engine.stop()


def test_the_first_phase_needs_no_log(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / "python", "m", port=1, log_path=tmp_path / "log")
    assert engine.phase() == FIRST_PHASE


def test_vllm_is_found_where_it_was_named_or_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"SPECCTL_VLLM_PYTHON": sys.executable}
    assert find_vllm_python(named, [tmp_path]) == Path(sys.executable)
    with pytest.raises(UsageError, match="not a program"):
        find_vllm_python({"SPECCTL_VLLM_PYTHON": str(tmp_path / "none")}, [tmp_path])

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    (tmp_path / ".vllm" / "bin").mkdir(parents=True)
    assert find_vllm_python({}, [tmp_path]) is None, "an installation cut short does not count"
    (tmp_path / ".vllm" / ".stamp").touch()
    assert find_vllm_python({}, [tmp_path]) == tmp_path / ".vllm" / "bin" / "python"
