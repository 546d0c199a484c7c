"""A whole run: a nursery process imports what the checks share once, then forks each of them.

The process that reports is a third one and imports nothing heavy: if the nursery itself dies (an
import that crashes, say), the checks it had not finished are run again without the shared imports.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernels_check import schedule
from kernels_check.child import die_with_the_parent
from kernels_check.model import Check, Result, Status

PRELOAD = ("torch", "numpy", "kernels_check.preload")


def run(
    checks: Sequence[Check],
    *,
    seed: int,
    jobs: int,
    done: Callable[[Result], None],
    preload: Sequence[str] = PRELOAD,
) -> list[Result]:
    """Run the checks; `done` sees each result as it comes. Returns them in the manifest's order."""
    found: dict[str, Result] = {}

    def take(result: Result) -> None:
        found[result.name] = result
        done(result)

    for modules in (preload, ()):
        left = [check for check in checks if check.name not in found]
        if not left:
            break
        for result in _nursery(left, seed, jobs, modules):
            take(result)
    for check in checks:
        if check.name not in found:
            take(
                Result(check.name, Status.BROKEN, 0.0, "the process that starts checks died twice")
            )
    return [found[check.name] for check in checks]


def _nursery(
    checks: Sequence[Check], seed: int, jobs: int, modules: Sequence[str]
) -> Iterator[Result]:
    """Results as they come, until the nursery is done or dead."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _serve(checks, seed, jobs, modules, writing)
    os.close(writing)
    with os.fdopen(reading) as lines:
        for line in lines:
            said: dict[str, Any] = json.loads(line)
            said["status"] = Status(said["status"])
            yield Result(**said)
    os.waitpid(pid, 0)


def _serve(
    checks: Sequence[Check], seed: int, jobs: int, modules: Sequence[str], writing: int
) -> None:
    code = 1
    die_with_the_parent()
    stopped: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stopped.append(number))
    try:
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        for name in modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

        def done(result: Result) -> None:
            line = json.dumps({**result.__dict__, "status": str(result.status)}, default=dict)
            os.write(writing, line.encode() + b"\n")

        schedule.run(checks, seed=seed, jobs=jobs, done=done, wanted=lambda: not stopped)
        code = 0
    finally:
        os._exit(code)
