"""Start, memory and CPU of three screens on one simulated engine, in turns, in one run."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from terminal import Terminal

from speccli.core.sim.process import simulated_fleet

HERE = Path(sys.executable).parent
OTHERS = Path(__file__).parents[1] / ".bench" / "bin"


@dataclass
class Tool:
    """A screen and how its number of running requests is read."""

    name: str
    command: Callable[[str], list[str]]
    running: str
    starts: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    rss: list[float] = field(default_factory=list)


TOOLS = [
    Tool(
        "specctl top",
        lambda url: [str(HERE / "specctl"), "top", "--endpoint", url, "--interval", "1s"],
        r"(\d+) run",
    ),
    Tool(
        "vllm-htop",
        lambda url: [str(OTHERS / "vllm-htop"), "--url", url, "--interval", "1"],
        r"Running\s*:.*?now\s+(\d+)|[Rr]unning[^\d\n]{1,20}(\d+)",
    ),
    Tool(
        "vllmstat",
        lambda url: [str(OTHERS / "vllmstat"), "-u", url, "-i", "1", "--no-gpu"],
        r"running (\d+)",
    ),
]


def running_now(url: str) -> float:
    """What the engine itself says."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        page = answer.read().decode()
    found = re.search(r"^vllm:num_requests_running\{.*?\} (\S+)$", page, re.MULTILINE)
    assert found is not None
    return float(found.group(1))


def right(tool: Tool, url: str) -> Callable[[str], bool]:
    """Whether the screen shows the engine's number, give or take what changes in between."""

    def seen(text: str) -> bool:
        match = re.search(tool.running, text)
        if match is None:
            return False
        shown = float(next(group for group in match.groups() if group))
        return abs(shown - running_now(url)) <= 5

    return seen


def measure(tool: Tool, url: str, seconds: float) -> None:
    """One start and one stretch of steady running."""
    terminal = Terminal(tool.command(url))
    try:
        start = terminal.until(right(tool, url), 20.0)
        if start is not None:
            tool.starts.append(start)
        terminal.pump(2.0)
        before = terminal.usage()
        terminal.pump(seconds)
        after = terminal.usage()
        tool.cpu.append(100 * (after.cpu_s - before.cpu_s) / seconds)
        tool.rss.append(after.rss_mb)
    finally:
        terminal.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with simulated_fleet(1, ["-k", "4"]) as (url,):
        for _ in range(given.rounds):
            for tool in TOOLS:
                measure(tool, url, given.seconds)
    ours = TOOLS[0]
    print(f"{'':14}{'first right number':>22}{'RSS':>18}{'CPU at 1 Hz':>22}   (ratio to specctl)")
    for tool in TOOLS:
        cells = []
        for unit, theirs, mine, width in (
            ("s", tool.starts, ours.starts, 22),
            ("MB", tool.rss, ours.rss, 18),
            ("%", tool.cpu, ours.cpu, 22),
        ):
            if not theirs:
                cells.append("never".rjust(width))
                continue
            value, base = statistics.median(theirs), statistics.median(mine)
            cells.append(f"{value:.2f} {unit} ({value / base:.2f}x)".rjust(width))
        print(f"{tool.name:14}{''.join(cells)}")


if __name__ == "__main__":
    main()
