"""Our own kernels under NVIDIA's compute-sanitizer, where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import kernels_check
from kernels_check.model import Context, NotHere, Passed, Wrong

PLACES = ("/usr/local/cuda/bin/compute-sanitizer",)
SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: (.*)")


def clean(context: Context) -> Passed:
    """One tool (memcheck, racecheck, synccheck) over every kernel of csrc: nothing to report."""
    program = next((p for p in map(shutil.which, ("compute-sanitizer", *PLACES)) if p), None)
    if program is None:
        raise NotHere("compute-sanitizer")
    tool, mutant = context.options["tool"], str(context.options.get("mutant", 0))
    command = [program, "--tool", tool, sys.executable, "-m", "kernels_check.sanitize", mutant]
    place = Path(kernels_check.__file__).resolve().parent.parent
    done = subprocess.run(command, capture_output=True, text=True, cwd=place, check=False)
    said = done.stdout + done.stderr
    summary = SUMMARY.search(said)
    sys.stderr.write(said[-6000:])
    if summary is None:
        raise RuntimeError(f"{tool} gave no summary (exit {done.returncode})")
    found = re.match(r"0 (errors|hazards)", summary[2])
    if not found:
        first = next(
            (
                line
                for line in said.splitlines()
                if "=========" in line
                and re.search(r"Invalid|[Rr]ace reported|hazard|Barrier error", line)
            ),
            summary[2],
        )
        raise Wrong(f"{tool}: {first.removeprefix('=========').strip()}; {summary[2]}")
    if done.returncode:
        raise RuntimeError(f"the kernels under {tool} ended with exit {done.returncode}")
    return Passed(f"{tool}: {summary[2]}")
