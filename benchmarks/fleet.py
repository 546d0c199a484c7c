"""`specctl top` on more and more engines: CPU share, bytes, lag of a round, memory over time."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from terminal import Terminal

from speccli.core.sim.process import simulated_fleet

SPECCTL = str(Path(sys.executable).parent / "specctl")


def measure(engines: int, seconds: float) -> None:
    """One row."""
    with simulated_fleet(engines, ["-k", "4"]) as urls:
        endpoints = [word for url in urls for word in ("-e", url)]
        terminal = Terminal([SPECCTL, "top", "--interval", "1s", *endpoints], 120, 40)
        try:
            start = terminal.until(lambda text: bool(re.search(r"[1-9]\d* run", text)), 60.0)
            terminal.pump(5.0)
            before, began = terminal.usage(), time.monotonic()
            ages: list[float] = []
            middle = None
            while time.monotonic() - began < seconds:
                terminal.pump(0.5)
                if age := re.search(r"(\d+) s ago", terminal.text()):
                    ages.append(float(age.group(1)))
                if middle is None and time.monotonic() - began > seconds / 2:
                    middle = terminal.usage().rss_mb
            after, lasted = terminal.usage(), time.monotonic() - began
        finally:
            terminal.close()
    cpu = 100 * (after.cpu_s - before.cpu_s) / lasted
    rate = (after.loopback_bytes - before.loopback_bytes) / lasted / 1e6
    late = sum(age > 2 for age in ages) / max(1, len(ages))
    shown = f"{start:.2f} s" if start else "never"
    print(
        f"{engines:>7}{shown:>10}{cpu:>9.1f} %{cpu / engines:>10.3f} %{rate:>9.2f} MB/s"
        f"{before.rss_mb:>9.1f}{middle or 0:>9.1f}{after.rss_mb:>9.1f} MB{100 * late:>8.1f} %",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--minutes", type=float, default=1.0)
    given = parser.parse_args()
    print(
        f"{'engines':>7}{'start':>10}{'CPU':>11}{'an engine':>12}{'read':>14}"
        f"{'RSS: begin, middle, end':>30}{'older 2 s':>10}"
    )
    for engines in given.engines:
        measure(engines, given.minutes * 60)


if __name__ == "__main__":
    main()
