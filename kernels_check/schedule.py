"""A process for each check.

Started, watched, killed at its deadline, and never able to end the run.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels_check.child import become
from kernels_check.model import Check, Result, Status

LOG_TAIL = 2000
POLL_S = 0.02


@dataclass
class _Running:
    check: Check
    pid: int
    started: float
    result: Path
    log: Path
    killed: bool = False


def run(
    checks: Sequence[Check],
    *,
    seed: int,
    jobs: int,
    done: Callable[[Result], None],
    clock: Callable[[], float] = time.monotonic,
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Run every check in a fork of this process.

    `jobs` at a time, those marked `alone` by themselves.

    This process must not have touched CUDA: a fork inherits what its parent imported, no context.
    When `wanted` turns false (whoever asked is gone), what still runs is killed.
    """
    waiting = list(checks)
    running: list[_Running] = []
    with tempfile.TemporaryDirectory(prefix="kernels-check-") as name:
        place = Path(name)
        while waiting or running:
            _start(waiting, running, place, seed, jobs, clock)
            _reap(running, done, clock)
            if not wanted():
                for one in running:
                    _kill(one.pid)
                return
            if running:
                time.sleep(POLL_S)


def _start(
    waiting: list[Check],
    running: list[_Running],
    place: Path,
    seed: int,
    jobs: int,
    clock: Callable[[], float],
) -> None:
    while waiting and len(running) < jobs:
        check = waiting[0]
        alone = check.alone or any(r.check.alone for r in running)
        if running and alone:
            return
        waiting.pop(0)
        result, log = place / f"{check.name}.json", place / f"{check.name}.log"
        pid = os.fork()
        if pid == 0:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            become(check, seed, result, log)
        running.append(_Running(check, pid, clock(), result, log))


def _reap(
    running: list[_Running], done: Callable[[Result], None], clock: Callable[[], float]
) -> None:
    for one in list(running):
        age = clock() - one.started
        pid, status = os.waitpid(one.pid, os.WNOHANG)
        if pid == 0:
            if age > one.check.deadline_s and not one.killed:
                one.killed = True
                _kill(one.pid)
            continue
        running.remove(one)
        done(_judge(one, status, age))


def _kill(pid: int) -> None:
    """End the check and whatever it started; both calls may come too late."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _judge(one: _Running, status: int, age: float) -> Result:
    name = one.check.name
    tail = one.log.read_text(errors="replace")[-LOG_TAIL:] if one.log.exists() else ""
    if one.killed:
        return Result(
            name, Status.HUNG, age, f"no end within {one.check.deadline_s:.0f} s; killed", {}, tail
        )
    if one.result.exists():
        said: dict[str, Any] = json.loads(one.result.read_text())
        ended = Status(said["status"])
        quiet = ended in {Status.PASSED, Status.SKIPPED}
        return Result(
            name, ended, said["seconds"], said["evidence"], said["data"], "" if quiet else tail
        )
    code = os.waitstatus_to_exitcode(status)
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
    return Result(
        name, Status.CRASHED, age, f"its process ended without a result ({how})", {}, tail
    )
