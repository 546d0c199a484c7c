"""Checks that end in every way a check can end; the scheduler's tests name them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from kernels_check.model import Context, NotHere, Passed, Wrong, missing


def right(context: Context) -> Passed:
    return Passed(f"seed {context.seed}", {"seed": context.seed})


def wrong(context: Context) -> Passed:
    raise Wrong("token 3, must be 4", {"position": 0})


def absent(context: Context) -> Passed:
    raise NotHere("no such kernel")


def broken(context: Context) -> Passed:
    raise KeyError("renamed")


def sticky(context: Context) -> Passed:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def crash(context: Context) -> Passed:
    os.abort()


def leave(context: Context) -> Passed:
    os._exit(7)


def hang_and_tell(context: Context) -> Passed:
    Path(context.options["tell"]).write_text(str(os.getpid()))
    return hang(context)


def hang(context: Context) -> Passed:
    time.sleep(60)
    return Passed("never")


def catches_nothing(context: Context) -> Passed:
    return Passed("all fine")


def not_installed(context: Context) -> Passed:
    try:
        import no_such_engine  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        raise missing("the engine's sampler", error) from error
    return Passed("never")


def renamed(context: Context) -> Passed:
    try:
        from kernels_check.model import no_such_name  # type: ignore[attr-defined]  # noqa: F401
    except ImportError as error:
        raise missing("the engine's sampler", error) from error
    return Passed("never")
