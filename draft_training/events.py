"""What a stage tells its caller: one JSON object a line on stdout; anything else is a log."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

_lines = sys.stdout
"""Where events go; `quiet` moves everybody else's printing away from it."""


class Failed(Exception):
    """A failure with a name, and what to do about it."""

    def __init__(self, kind: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.kind, self.fix = kind, fix


def tell(event: str, **facts: Any) -> None:
    """One line, whole: the caller may be killed at any moment, and so may we."""
    _lines.write(json.dumps({"event": event, **facts}) + "\n")
    _lines.flush()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Libraries print to stdout, from C too: all of it goes to stderr, events alone stay."""
    global _lines
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _lines, before = kept, _lines
    try:
        yield
    finally:
        _lines = before
        kept.flush()
        os.dup2(kept.fileno(), 1)
        kept.close()


class Progress:
    """How far, and how long yet; told at most once in `every_s` seconds."""

    def __init__(self, stage: str, every_s: float = 2.0) -> None:
        self.stage, self.every_s = stage, every_s
        self.started = time.monotonic()
        self.told = 0.0

    def due(self) -> bool:
        """Whether it is time to tell again."""
        return time.monotonic() - self.told >= self.every_s

    def at(self, share: float, *, force: bool = False, **facts: Any) -> None:
        """`share` of the work is done, 0..1, since `started`."""
        if not force and not self.due():
            return
        now = self.told = time.monotonic()
        spent = now - self.started
        left = spent * (1 - share) / share if share > 0 else None
        tell("progress", stage=self.stage, share=round(share, 4), eta_s=left, **facts)


_OUT_OF_MEMORY = (
    "out of memory",
    "CUDA error: out of memory",
    "Insufficient",
    "No available memory",
)
_UNREACHABLE = (
    "couldn't connect to",
    "Connection error",
    "LocalEntryNotFoundError",
    "offline mode is enabled",
    "Name or service not known",
    "Max retries exceeded",
)
_DENIED = ("401 Client Error", "403 Client Error", "gated repo", "GatedRepoError")


def named(error: BaseException) -> Failed:
    """The failure behind an exception, as an operator would call it."""
    if isinstance(error, Failed):
        return error
    text = f"{type(error).__name__}: {error}"
    line = text.strip().splitlines()[0]
    if any(mark in text for mark in _OUT_OF_MEMORY) or isinstance(error, MemoryError):
        fix = "lower batch_tokens (training) or gpu_memory (answers), or free the GPU"
        return Failed("out-of-memory", line, fix)
    if any(mark in text for mark in _DENIED):
        return Failed("hub-denied", line, "accept the model's terms and set HF_TOKEN")
    if any(mark in text for mark in _UNREACHABLE):
        return Failed("hub-unreachable", line, "give a folder instead of a name on the hub")
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return Failed("disk-full", line, "free space where --out lies; finished stages are kept")
    if isinstance(error, ModuleNotFoundError):
        return Failed("not-installed", line, f"install {error.name} into this Python")
    return Failed("failed", line, "see the log of the stage")
