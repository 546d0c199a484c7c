"""Pictures in text: sparklines, bars and column charts, pooled before dividing.

A column covers a stretch of wall time; counters that grew in it are added, whenever they were read,
and only then divided. A stretch in which nothing can be said is a gap, not a zero. Every chart
stands on zero.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from speccli.core.stats.snapshot import TrailPoint
from speccli.core.views.text import Line, Span, fit, line

_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Pooled:
    """What the fleet did in one stretch of time; each ratio of the engines that tell all of it."""

    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0
    later_tokens: float = 0.0
    """Output tokens but each request's first, of engines that tell their decode steps."""
    decode_steps: float = 0.0
    waited: float = 0.0
    """Waiting requests times seconds."""
    departed: float = 0.0
    """First tokens of engines that tell who waits."""
    queue_told: bool = False
    output_tokens: float = 0.0
    output_in: list[tuple[float, float]] = field(default_factory=list)
    """When output was told: parts of the stretch, which may overlap."""

    def add(self, point: TrailPoint, low: float, high: float) -> None:
        """The share of a point's growth that lies between two instants."""
        share = (high - low) / point.seconds
        drafted, accepted = share * point.draft_tokens, share * point.accepted_tokens
        if not math.isnan(drafted + accepted):
            self.draft_tokens += drafted
            self.accepted_tokens += accepted
        output, first = share * point.generation_tokens, share * point.first_tokens
        steps, waited = share * point.decode_steps, point.waiting * (high - low)
        if not math.isnan(output + first + steps):
            self.later_tokens += output - first
            self.decode_steps += steps
        if not math.isnan(waited + first):
            self.waited += waited
            self.departed += first
            self.queue_told = True
        if not math.isnan(output):
            self.output_tokens += output
            self.output_in.append((low, high))

    @property
    def acceptance(self) -> float | None:
        """Accepted / drafted; None without drafts or where the counters contradict each other."""
        if self.draft_tokens <= 0:
            return None
        value = self.accepted_tokens / self.draft_tokens
        return min(1.0, value) if 0 <= value <= 1 + 1e-9 else None

    @property
    def tokens_per_step(self) -> float | None:
        """Output tokens per request and decode step; None without steps or where impossible."""
        if self.decode_steps <= 0 or self.later_tokens < 0:
            return None
        return self.later_tokens / self.decode_steps

    @property
    def backlog_ms(self) -> float | None:
        """Waiting / departures; None where some wait and none left."""
        if not self.queue_told:
            return None
        if self.waited <= 0:
            return 0.0
        return 1000 * self.waited / self.departed if self.departed > 0 else None

    @property
    def output_per_s(self) -> float | None:
        """Output tokens per second of the time that is known; None where none is."""
        seconds, end = 0.0, -math.inf
        for low, high in sorted(self.output_in):
            seconds += max(0.0, high - max(low, end))
            end = max(end, high)
        return self.output_tokens / seconds if seconds > 0 else None


def pool(trail: Sequence[TrailPoint], since: float, until: float) -> Pooled:
    """Everything the trail holds in (since, until]."""
    return _cut(trail, [since, until])[0]


def pooled_columns(
    trail: Sequence[TrailPoint], until: float, seconds: float, count: int
) -> list[Pooled]:
    """`count` stretches of equal length that end at `until` and cover `seconds`.

    Stretches lie on a fixed grid of time, so that a chart shifts and never reshapes.
    """
    step = max(seconds / max(1, count), 1e-6)
    last = math.floor(until / step) + 1
    return _cut(trail, [(last - count + i) * step for i in range(count + 1)])


def _cut(trail: Sequence[TrailPoint], edges: Sequence[float]) -> list[Pooled]:
    """Growth between every two edges: of a point that lies across one, to each side its share.

    Points overlap, and some are longer than a column: engines are not read all at once.
    """
    columns = [Pooled() for _ in edges[1:]]
    for point in trail[bisect_left(trail, edges[0], key=_at) :]:
        start = point.at - point.seconds
        least = min(_SLIVER_S, point.seconds / 2)
        for i in range(max(0, bisect_right(edges, start) - 1), len(columns)):
            low, high = max(start, edges[i]), min(point.at, edges[i + 1])
            if high - low > least:
                columns[i].add(point, low, high)
            if edges[i + 1] >= point.at:
                break
    return columns


_SLIVER_S = 1e-5
"""What is shorter is but the last bits of two times."""


def _at(point: TrailPoint) -> float:
    return point.at


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
