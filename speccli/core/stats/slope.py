"""Whether acceptance has slid ever since a process started (vllm#41838: a restart restores it)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_MOST = 48
"""Points kept; beyond it the two neighbours that stand for the fewest looks become one."""
_LEAST_POINTS = 12
_SURE = 5.0
"""Standard errors: one check in 3.5 million, so that a month of checks of a fleet stays silent."""
_STEADY = 0.15
"""Share of the whole fall that each quarter must bring: a step is no slide."""
_KNOWN_MIX_S = 3 * 3600.0
_UNKNOWN_MIX_S = 24 * 3600.0
"""Where the mix is not known, a slide over less than a day may be the day's own swing."""


@dataclass(frozen=True, slots=True)
class Slide:
    """A slide that is there."""

    fall: float
    """Acceptance rate lost over it, 0..1."""
    hours: float
    """How long it has been watched, hours."""
    error: float
    """Standard error of the fall."""
    looks: int


@dataclass(slots=True)
class Slope:
    """Rates since the process started, thinned by merging neighbours."""

    points: list[list[float]] = field(default_factory=list)
    """Seconds, weight (1 / variance), rate less what the mix explains, looks; in order of time."""
    mixed: bool = True
    """Whether the mix was known at every look."""

    def take(self, at: float, value: float, variance: float, *, mix_known: bool) -> None:
        """One look: when it ended, its rate less what was expected, and how exact it is."""
        if self.points and at <= self.points[-1][0]:
            return
        self.mixed = self.mixed and mix_known
        self.points.append([at, 1.0 / max(variance, 1e-9), value, 1.0])
        if len(self.points) > _MOST:
            points = self.points
            i = min(range(len(points) - 1), key=lambda i: points[i][3] + points[i + 1][3])
            points[i : i + 2] = [_merged(points[i], points[i + 1])]

    def slide(self, least: float) -> Slide | None:
        """The slide, where there is one that cost at least so much of the rate."""
        points = self.points
        if sum(p[3] for p in points) < _LEAST_POINTS or len(points) < _LEAST_POINTS:
            return None
        span = points[-1][0] - points[0][0]
        if span < (_KNOWN_MIX_S if self.mixed else _UNKNOWN_MIX_S):
            return None
        slope, error = _line(points)
        fall, error = -slope * span, error * span
        if fall < least or fall < _SURE * error or not _steady(points, fall):
            return None
        return Slide(fall, span / 3600, error, round(sum(p[3] for p in points)))

    def to_json(self) -> dict[str, Any]:
        """Its whole state."""
        return {"points": self.points, "mixed": self.mixed}

    @classmethod
    def from_json(cls, value: Any) -> Slope:
        """The slope of a state; ValueError, TypeError or KeyError where it is none."""
        points = [[float(x) for x in point] for point in value["points"]]
        if any(len(p) != 4 or not all(map(math.isfinite, p)) or p[1] <= 0 for p in points):
            raise ValueError("not points of a slope")
        return cls(points, bool(value["mixed"]))


def _merged(a: Sequence[float], b: Sequence[float]) -> list[float]:
    weight = a[1] + b[1]
    return [
        (a[0] * a[1] + b[0] * b[1]) / weight,
        weight,
        (a[2] * a[1] + b[2] * b[1]) / weight,
        a[3] + b[3],
    ]


def _line(points: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Slope per second by weighted least squares, and its error, widened by the misfit."""
    whole = sum(p[1] for p in points)
    t0 = sum(p[1] * p[0] for p in points) / whole
    y0 = sum(p[1] * p[2] for p in points) / whole
    stt = sum(p[1] * (p[0] - t0) ** 2 for p in points)
    sty = sum(p[1] * (p[0] - t0) * (p[2] - y0) for p in points)
    if stt <= 0:
        return 0.0, math.inf
    slope = sty / stt
    misfit = sum(p[1] * (p[2] - y0 - slope * (p[0] - t0)) ** 2 for p in points)
    return slope, math.sqrt(max(1.0, misfit / (len(points) - 2)) / stt)


def _steady(points: Sequence[Sequence[float]], fall: float) -> bool:
    """Whether each quarter of the time is lower than the one before it."""
    begin, span = points[0][0], points[-1][0] - points[0][0]
    parts: list[list[Sequence[float]]] = [[], [], [], []]
    for point in points:
        parts[min(3, int(4 * (point[0] - begin) / span))].append(point)
    if not all(parts):
        return False
    means = [sum(p[1] * p[2] for p in part) / sum(p[1] for p in part) for part in parts]
    return all(a - b >= _STEADY * fall for a, b in zip(means, means[1:], strict=False))
