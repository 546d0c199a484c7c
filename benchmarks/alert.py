"""`specctl alert check` on a fleet: wall time, quiet and with one engine that hangs."""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from speccli.core.sim.process import simulated_fleet

SPECCTL = str(Path(sys.executable).parent / "specctl")


def check(state: str, *words: str) -> tuple[float, int, str]:
    """Seconds, exit code and first line of one run with an empty environment."""
    command = [SPECCTL, "alert", "check", "--state", state, *words]
    began = time.monotonic()
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    return time.monotonic() - began, done.returncode, done.stdout.partition("|")[0].strip()


def measure(engines: int, runs: int) -> None:
    """One row, and the hanging engine."""
    with (
        simulated_fleet(engines, ["-k", "4"]) as urls,
        tempfile.TemporaryDirectory() as state,
    ):
        endpoints = [word for url in urls for word in ("-e", url)]
        first, code, said = check(state, *endpoints)
        print(f"{engines} engines, first check (looks twice): {first:.2f} s, exit {code}: {said}")
        times = []
        for _ in range(runs):
            time.sleep(2.5)
            seconds, code, said = check(state, *endpoints)
            times.append(seconds)
        print(
            f"{engines} engines, later checks: median {statistics.median(times):.2f} s, "
            f"worst {max(times):.2f} s of {runs}, exit {code}: {said}"
        )
        with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
            hung = f"http://127.0.0.1:{silent.getsockname()[1]}"
            seconds, code, said = check(state, *endpoints, "-e", hung, "--deadline", "10")
        print(f"one of {engines + 1} hangs, --deadline 10: {seconds:.2f} s, exit {code}: {said}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, nargs="+", default=[64])
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for engines in given.engines:
        measure(engines, given.runs)


if __name__ == "__main__":
    main()
