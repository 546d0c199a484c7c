"""`specctl` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**changes: str) -> dict[str, str]:
    """This process's, without settings of specctl's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SPECCTL_")}
    return {**kept, "PYTHONPATH": str(ROOT), **changes}


def python(code: str, *args: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """A script in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        timeout=180,
        env=environment(**changes),
        check=False,
    )


def shell(line: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """A line of bash, in which `specctl` is this checkout's."""
    prelude = f'specctl() {{ "{sys.executable}" -m speccli "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", prelude + line],
        capture_output=True,
        text=True,
        timeout=180,
        env=environment(**changes),
        check=False,
    )


def started(*args: str | Path, cwd: Path | None = None, **changes: str) -> subprocess.Popen[str]:
    """A command that goes on until it is told to stop; close its pipes with `with`."""
    words: Sequence[str] = [sys.executable, "-m", "speccli", *map(str, args)]
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**changes),
        cwd=cwd,
    )
