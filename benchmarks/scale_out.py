"""Three times the load on a deployment that scales by itself, and a chart of it.

`benchmarks/scale_out.py` takes most of an hour at the periods that specctl renders (`--pace 12`
makes every period a twelfth, for looking) and writes docs/evidence/scale-out.json and .svg;
`--draw` only draws what is there. It needs root, Prometheus, etcd and what `make kubernetes`
builds. Real are the control plane, KEDA and Prometheus; engines and GPUs are simulated, so the
shape means something and the duration of a pod's start, which is set, does not.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

DATA = ROOT / "docs" / "evidence" / "scale-out.json"
WIDTH, LEFT, PLOT_W = 940, 64, 790
PANEL_H, GAP, TOP = 140, 56, 72
BLUE, RED, GREEN, GREY = "#1b6ca8", "#d1495b", "#2a9d8f", "#888"
Point = tuple[float, float]


def measure(pace: float) -> None:
    """Run it and keep what was seen."""
    from tests.support.kube.cluster import Cluster, World
    from tests.support.kube.plane import Plane
    from tests.support.kube.scale_out import Pace, scale_out

    with (
        tempfile.TemporaryDirectory() as folder,
        Plane(Path(folder)) as plane,
        World(plane) as world,
    ):
        world.need_keda()
        with Cluster(world) as cluster:
            run = scale_out(cluster, Pace(pace))
        print(f"started in {plane.took}; MiB: {plane.space.memory()}")
    run.save(DATA)


def text(x: float, y: float, said: str, size: int = 12, colour: str = "#222") -> str:
    """A line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}">{escape(said)}</text>'


def line(points: Sequence[Point], colour: str, width: float = 2, dash: str = "") -> str:
    """A line through points."""
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    style = f'fill="none" stroke="{colour}" stroke-width="{width}"{dashed}'
    return f'<polyline points="{joined}" {style}/>'


def steps(points: Sequence[Point]) -> list[Point]:
    """The same points as a staircase: a value holds until the next."""
    found = list(points[:1])
    for (_, before), (x, now) in zip(points, points[1:], strict=False):
        found += [(x, before), (x, now)]
    return found


class Panel:
    """One of the charts, over the time that all share."""

    def __init__(self, index: int, title: str, ticks: Sequence[float], end_s: float) -> None:
        """`ticks`: lines across it, the first at the bottom and the last at the top."""
        self.y0 = TOP + index * (PANEL_H + GAP)
        self.ticks, self.end_s = ticks, end_s
        self.parts = [text(LEFT, self.y0 - 8, title)]
        self._names = 0
        for tick in ticks:
            _, y = self.at(0, tick)
            self.parts.append(line([(LEFT, y), (LEFT + PLOT_W, y)], "#e4e4e4", 1))
            self.parts.append(text(LEFT - 46, y + 4, f"{tick:,g}", 11, GREY))

    def share(self, value: float) -> float:
        """How far up a value is, 0 to 1."""
        low, high = self.ticks[0], self.ticks[-1]
        return (min(max(value, low), high) - low) / (high - low)

    def at(self, seconds: float, value: float) -> Point:
        """Where a value is."""
        y = self.y0 + PANEL_H * (1 - self.share(value))
        return LEFT + PLOT_W * seconds / self.end_s, y

    def name(self, said: str, colour: str) -> None:
        """What a colour is, beside the title."""
        self.parts.append(text(LEFT + 250 + 260 * self._names, self.y0 - 8, said, 12, colour))
        self._names += 1

    def add(self, points: Sequence[Point], colour: str, name: str) -> None:
        """A staircase."""
        self.parts.append(line(steps([self.at(*point) for point in points]), colour))
        self.name(name, colour)

    def dots(self, points: Sequence[Point], colour: str, name: str) -> None:
        """A dot for each point."""
        for x, y in (self.at(*point) for point in points):
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.4" fill="{colour}"/>')
        self.name(name, colour)


class LogPanel(Panel):
    """A chart whose ticks are powers of ten."""

    def share(self, value: float) -> float:
        """How far up the logarithm of a value is; what is below the first tick lies on it."""
        low, high = math.log10(self.ticks[0]), math.log10(self.ticks[-1])
        return (math.log10(min(max(value, self.ticks[0]), self.ticks[-1])) - low) / (high - low)


def rows(table: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """A table of the data file."""
    keys, *values = table
    return [dict(zip(keys, row, strict=True)) for row in values]


def draw(run: dict[str, Any]) -> str:
    """The chart of one run."""
    samples = rows(run["samples"])
    end = samples[-1]["at_s"]

    def series(field: str) -> list[Point]:
        return [(s["at_s"], s[field]) for s in samples if s[field] is not None]

    load = Panel(0, "requests offered a second", (0, 2, 4), end)
    load.add(series("offered_per_s"), BLUE, "offered")
    wait = LogPanel(1, "queue wait, ms", (10, 100, 1_000, 10_000, 100_000), end)
    answers = [
        a for a in rows(run["answers"]) if a["first_s"] is not None and 0 <= a["sent"] <= end
    ]
    seen = [(a["sent"], 1000 * a["first_s"]) for a in answers]
    wait.dots(seen, "#bbb", "first token, as each client saw it")
    wait.add(series("queue_wait_ms"), RED, "recorded: what the autoscaler reads")
    wait.parts.append(line([wait.at(at, run["target_ms"]) for at in (0, end)], "#555", 1, "5 4"))
    _, y = wait.at(0, run["target_ms"])
    wait.parts.append(text(LEFT + PLOT_W + 4, y + 4, f"{run['target_ms']:g}: target", 11, "#555"))
    pods = Panel(2, "pods", range(run["most"] + 1), end)
    pods.add(series("replicas"), BLUE, "wanted by the HPA")
    pods.add(series("ready"), GREEN, "ready")
    parts = [*load.parts, *wait.parts, *pods.parts, *_phases(run, load.at)]
    height = TOP + 3 * (PANEL_H + GAP) + 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            text(12, 20, "SIMULATED engines and GPUs; real control plane, KEDA and Prometheus", 14),
            text(12, 38, _caption(run), 11, GREY),
            *parts,
            *_ticks(end, height - 24),
            "</svg>\n",
        ]
    )


def _caption(run: dict[str, Any]) -> str:
    pace = "periods as rendered" if run["factor"] == 1 else f"every period 1/{run['factor']:g}"
    return (
        f"{run['recipe']}, 16 requests at once a pod; {pace}: scale-down window "
        f"{run['down_window_s']:g} s; a pod was made to load for {run['loading_s']:g} s"
    )


def _phases(run: dict[str, Any], at: Callable[[float, float], Point]) -> list[str]:
    parts = []
    bottom = TOP + 3 * PANEL_H + 2 * GAP
    for name, begins in run["phases"].items():
        x, _ = at(begins, 0)
        parts.append(line([(x, TOP), (x, bottom)], "#bbb", 1, "2 3"))
        parts.append(text(x + 4, TOP + PANEL_H + 16, name, 11, GREY))
    return parts


def _ticks(end_s: float, y: float) -> list[str]:
    step = next(s for s in (30, 60, 120, 300, 600, 1200) if end_s / s <= 12)
    return [
        text(LEFT + PLOT_W * at / end_s - 8, y, f"{at // 60}:{at % 60:02d}", 11, GREY)
        for at in range(0, int(end_s) + 1, step)
    ]


def main() -> None:
    """Measure unless told only to draw, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--draw", action="store_true")
    given = parser.parse_args()
    if not given.draw:
        measure(given.pace)
    DATA.with_suffix(".svg").write_text(draw(json.loads(DATA.read_text())))


if __name__ == "__main__":
    main()
