"""Pictures in text: sparklines, bars and column charts, pooled before dividing.

A column covers a stretch of time; counters that grew in it are added, and only then divided. A
stretch in which nothing can be said is a gap, not a zero. Every chart stands on zero.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from speccli.core.stats.snapshot import TrailPoint
from speccli.core.views.text import Line, Span, fit, line

_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Pooled:
    """What the fleet did in one stretch of time."""

    seconds: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0
    generation_tokens: float = 0.0
    first_tokens: float = 0.0
    decode_steps: float = 0.0
    waiting: float = 0.0
    """Mean over the stretch."""

    @property
    def acceptance(self) -> float | None:
        """Accepted / drafted; None without drafts or where the counters contradict each other."""
        if self.draft_tokens <= 0:
            return None
        value = self.accepted_tokens / self.draft_tokens
        return value if 0 <= value <= 1 else None

    @property
    def tokens_per_step(self) -> float | None:
        """Output tokens per request and decode step; None without steps."""
        if self.decode_steps <= 0:
            return None
        return max(0.0, self.generation_tokens - self.first_tokens) / self.decode_steps

    @property
    def backlog_ms(self) -> float | None:
        """Waiting / departures; None where some wait and none left."""
        if self.seconds <= 0 or math.isnan(self.waiting):
            return None
        if self.waiting <= 0:
            return 0.0
        if self.first_tokens <= 0:
            return None
        return 1000 * self.waiting * self.seconds / self.first_tokens

    @property
    def output_per_s(self) -> float | None:
        """Output tokens per second."""
        return self.generation_tokens / self.seconds if self.seconds > 0 else None


def pool(trail: Sequence[TrailPoint], since: float, until: float) -> Pooled:
    """Everything the trail holds in (since, until]."""
    start = bisect_left(trail, since + 1e-9, key=_at)
    end = bisect_left(trail, until + 1e-9, key=_at)
    return _added(trail[start:end])


def pooled_columns(
    trail: Sequence[TrailPoint], until: float, seconds: float, count: int
) -> list[Pooled]:
    """`count` stretches of equal length that end at `until` and cover `seconds`.

    Stretches lie on a fixed grid of time, so that a chart shifts and never reshapes.
    """
    step = max(seconds / max(1, count), 1e-6)
    last = math.floor(until / step) + 1
    edges = [(last - count + i) * step for i in range(count + 1)]
    fine = _spread(trail[bisect_left(trail, edges[0], key=_at) :], step / 2)
    cuts = [bisect_left(fine, edge, key=_at) for edge in edges]
    return [_added(fine[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]


def _spread(trail: Sequence[TrailPoint], step: float) -> list[TrailPoint]:
    """Growth over a stretch longer than a column's, spread evenly over it: a mean, not a gap."""
    fine: list[TrailPoint] = []
    for point in trail:
        parts = min(200, math.ceil(point.seconds / step))
        if parts < 2:
            fine.append(point)
            continue
        part = TrailPoint(
            point.at,
            point.seconds / parts,
            point.draft_tokens / parts,
            point.accepted_tokens / parts,
            point.drafts / parts,
            point.generation_tokens / parts,
            point.first_tokens / parts,
            point.decode_steps / parts,
            point.waiting,
            point.running,
        )
        back = range(parts - 1, -1, -1)
        fine += [replace(part, at=point.at - part.seconds * i) for i in back]
    return fine


def _at(point: TrailPoint) -> float:
    return point.at


def _added(points: Sequence[TrailPoint]) -> Pooled:
    if not points:
        return Pooled()
    seconds = sum(p.seconds for p in points)
    return Pooled(
        seconds,
        sum(p.draft_tokens for p in points),
        sum(p.accepted_tokens for p in points),
        sum(p.generation_tokens for p in points),
        sum(p.first_tokens for p in points),
        sum(p.decode_steps for p in points),
        sum(p.waiting for p in points) / len(points),
    )


def sparkline(values: Sequence[float | None], top: float) -> str:
    """One row of blocks from 0 to `top`; a gap where nothing is known."""
    return "".join(" " if v is None else _BLOCKS[_eighths(v, top, 1) or 1] for v in values)


def bar(value: float | None, width: int) -> str:
    """A ratio as a bar of at most `width` cells."""
    if value is None:
        return " " * width
    eighths = round(max(0.0, min(1.0, value)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)


def _eighths(value: float, top: float, rows: int) -> int:
    if top <= 0:
        return 0
    return max(0, min(rows * 8, round(value / top * rows * 8)))


def nice(value: float) -> float:
    """The round number at or above `value` that ends an axis."""
    if value <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in (1, 2, 5, 10) if step * scale >= value * (1 - 1e-9))


def chart(
    values: Sequence[float | None],
    *,
    top: float,
    rows: int,
    width: int,
    form: Callable[[float], str],
    style: str = "chart",
) -> list[Line]:
    """Columns over a labelled axis from 0 to `top`; `values` one a cell, newest last."""
    margin = 7
    shown = list(values)[-(width - margin - 1) :]
    heights = [None if v is None else max(1, _eighths(v, top, rows)) for v in shown]
    lines: list[Line] = []
    for row in range(rows - 1, -1, -1):
        cells = "".join(" " if h is None else _BLOCKS[max(0, min(8, h - row * 8))] for h in heights)
        mark = form(top) if row == rows - 1 else "0" if row == 0 else ""
        axis = Span(f"{mark[:margin]:>{margin}}", "dim")
        lines.append(fit(line(axis, Span("┤" if mark else "│", "dim"), Span(cells, style)), width))
    return lines


def chart_width(width: int) -> int:
    """How many values a chart of that width shows."""
    return max(1, width - 8)
