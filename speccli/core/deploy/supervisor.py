"""Owns a local engine: `python -m speccli.core.deploy.supervisor FOLDER`.

It outlives the command that started it, ends the engine's whole process group when told to
(SIGTERM), and takes the engine along when it is killed itself. While it lives it holds a lock on
`FOLDER/lock`, which has its process id: a lock cannot be mistaken for another process's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from speccli.core.engines.local import EngineStartError, LocalEngine

LAUNCH, LOCK, LOG, OWN_LOG, ENDED = (
    "launch.json",
    "lock",
    "engine.log",
    "supervisor.log",
    "ended.json",
)
_LOOK_S = 0.5
_LOCK_S = 1.0


@dataclass(frozen=True, slots=True)
class Launch:
    """What is to be started."""

    revision: int
    identity: str
    """Of the line and its environment: equal ones need no restart."""
    python: str
    model: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    port: int
    grace_s: float
    """How long running requests may take to finish."""
    launcher: tuple[str, ...] | None = None
    """What makes `python` serve; None: vLLM."""

    @classmethod
    def read(cls, folder: Path) -> Launch | None:
        """From its file; None where there is none that can be read."""
        try:
            told: dict[str, Any] = json.loads((folder / LAUNCH).read_text(encoding="utf-8"))
            arguments, launcher = tuple(told.pop("arguments")), told.pop("launcher")
            return cls(**told, arguments=arguments, launcher=tuple(launcher) if launcher else None)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def text(self) -> str:
        """For its file."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    def engine(self, folder: Path) -> LocalEngine:
        """Not started yet."""
        serve: dict[str, Any] = {"launcher": self.launcher} if self.launcher else {}
        return LocalEngine(
            Path(self.python),
            self.model,
            port=self.port,
            extra_args=self.arguments,
            env=self.env,
            log_path=folder / LOG,
            **serve,
        )


def holder(folder: Path) -> int | None:
    """The supervisor's process id; None where none lives."""
    try:
        with (folder / LOCK).open("r", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read().strip()
                return int(text) if text.isdigit() else 0
            return None
    except OSError:
        return None


def main(folder: Path) -> int:
    """Run until told to stop, or until the engine ends; 0 or 1."""
    launch = Launch.read(folder)
    if launch is None:
        sys.stderr.write(f"{folder}: no {LAUNCH}\n")
        return 1
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    with (folder / LOCK).open("a+", encoding="ascii") as lock:
        if not _locked(lock):
            sys.stderr.write("another supervisor has this engine\n")
            return 1
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return _supervise(folder, launch, stop)


def _locked(file: IO[str]) -> bool:
    """Take the lock. Whoever looks whether somebody has it holds it for a moment."""
    give_up = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= give_up:
                return False
            time.sleep(0.02)


def _supervise(folder: Path, launch: Launch, stop: threading.Event) -> int:
    (folder / ENDED).unlink(missing_ok=True)
    engine = launch.engine(folder)
    try:
        engine.start()
        while engine.running and not stop.wait(_LOOK_S):
            pass
    except EngineStartError as error:
        _note(folder, error.message)
        return 1
    finally:
        told = stop.is_set()
        with contextlib.suppress(OSError):
            engine.stop(launch.grace_s)
    if not told:
        _note(folder, "the engine ended by itself")
    return 0 if told else 1


def _note(folder: Path, why: str) -> None:
    with contextlib.suppress(OSError):
        text = json.dumps({"at": time.time(), "why": why})
        (folder / ENDED).write_text(text, encoding="utf-8")


def _detach() -> None:
    """Become nobody's child: whoever started this need not wait for its end."""
    if os.fork():
        os._exit(0)


if __name__ == "__main__":
    _detach()
    sys.exit(main(Path(sys.argv[1])))
