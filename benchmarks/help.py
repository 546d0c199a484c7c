"""`specctl --help` beside the imports it cannot do without."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

SPECCTL = str(Path(sys.executable).parent / "specctl")
CASES = {
    "argparse": [sys.executable, "-c", "import argparse"],
    "typer": [sys.executable, "-c", "import argparse, typer"],
    "specctl --help": [SPECCTL, "--help"],
}


def main() -> None:
    """Interleaved runs, medians, ratio; with bytecode, as installed."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for command in CASES.values():
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(15):
        for name, command in CASES.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print(f"{name:16}{1000 * value:8.0f} ms")
    floor = medians["typer"]
    print(f"ratio to argparse + typer: {medians['specctl --help'] / floor:.2f} (goal: at most 1.5)")


if __name__ == "__main__":
    main()
