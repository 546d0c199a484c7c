"""One check, in the process that is its own: its outcome is written to a file, then it leaves."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import re
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from kernels_check.model import Check, Context, NotHere, Passed, Status, Wrong

STICKY = re.compile(
    r"illegal memory access|misaligned address|unspecified launch failure|device-side assert"
    r"|hardware stack error|illegal instruction|CUDA_ERROR_ILLEGAL_ADDRESS|uncorrectable",
    re.IGNORECASE,
)
"""Errors of CUDA that a context does not survive: whatever ran in it is a crash."""
SET_PDEATHSIG = 1
"""Of Linux's prctl."""


def execute(check: Check, seed: int) -> dict[str, Any]:
    """Run the check here; returns its outcome as JSON."""
    started = time.perf_counter()
    data: dict[str, Any] = {}
    try:
        outcome = resolve(check)(Context(seed, check.options))
        status, evidence, data = Status.PASSED, outcome.evidence, outcome.data
    except Wrong as wrong:
        status, evidence, data = Status.FAILED, wrong.evidence, wrong.data
    except NotHere as absent:
        status, evidence = Status.SKIPPED, str(absent)
    except Exception as error:  # noqa: BLE001 - whatever it was becomes this check's result
        traceback.print_exc()
        text = f"{type(error).__name__}: {_first_line(error)}"
        sticky = STICKY.search(str(error)) is not None
        status = Status.CRASHED if sticky else Status.BROKEN
        evidence = text
    seconds = time.perf_counter() - started
    return {"status": str(status), "evidence": evidence, "data": data, "seconds": seconds}


def die_with_the_parent() -> None:
    """Ask the kernel for SIGKILL when whoever forked this process is gone.

    A check has its own session, so no signal to the run's group reaches it: one that was left
    behind would go on using the GPU.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_PDEATHSIG, signal.SIGKILL)


def resolve(check: Check) -> Any:
    """The function that the manifest names."""
    module, _, function = check.target.partition(":")
    if not module.startswith(("kernels_check.", "tests.")):
        module = f"kernels_check.checks.{module}"
    return getattr(importlib.import_module(module), function)


def become(check: Check, seed: int, result: Path, log: Path) -> NoReturn:
    """In a fresh fork.

    Run the check, write its outcome, leave without any clean-up of the parent's.
    """
    die_with_the_parent()
    os.setsid()
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(written, 1)
    os.dup2(written, 2)
    sys.stdout = sys.stderr = os.fdopen(written, "w", buffering=1, errors="replace")
    faulthandler.enable(sys.stderr)
    code = 1
    try:
        outcome = execute(check, seed)
        partial = result.with_suffix(".part")
        partial.write_text(json.dumps(outcome, default=_plain))
        partial.rename(result)
        code = 0
    except BaseException:  # noqa: BLE001 - the process ends here whatever happens
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _plain(value: Any) -> Any:
    """NumPy and torch scalars as Python's."""
    item = getattr(value, "item", None)
    return item() if item is not None else str(value)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else "(no message)"


__all__ = ["Passed", "become", "execute", "resolve"]
