"""Who measured, where, with what."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from speccli import __version__
from speccli.core.bench.measure import Sampling
from speccli.core.bench.results import Provenance
from speccli.core.sources.redact import redact


def of(command: str, seed: int, sampling: Sampling, runner: str) -> Provenance:
    """What is known before anything is measured."""
    return Provenance(
        specctl=__version__,
        runner=runner,
        commands=(relative(redact(command)),) if command else (),
        host=host(),
        git=_git(),
        seed=seed,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
    )


def relative(words: str) -> str:
    """The same, with paths below the working folder told from there: the rest is the machine's."""
    here = str(Path.cwd()).rstrip("/")
    return re.sub(rf"(?<![\w.~/-]){re.escape(here)}/", "", words) if here else words


def host() -> dict[str, Any]:
    """`cpu`, `cores`, `os`, `python` of this machine, which is the client's."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "os": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu() -> str:
    try:
        for row in Path("/proc/cpuinfo").read_text().splitlines():
            if row.startswith("model name"):
                return row.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _git() -> str | None:
    """The commit of the folder it was called in, `+` where that has changes."""
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--match="],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() or None
