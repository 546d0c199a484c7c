"""Drawing: scales, axes and marks as SVG text, coloured by classes so that a page's theme decides.

Every chart is drawn at the width of a phone and set several to a row on wider screens, so that its
words keep their size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 360, 262
ROOM = 118.0
"""Pixels for a name at the right, at most."""
_CHAR = 6.3
"""Mean width of a character at the labels' size."""
_WIDE = 7.6
"""The same of a name beside a line, which is bold."""
_GAP = 15.0
"""Between two labels, one below the other."""


def number(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels, straight or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel; what lies outside is put on the border."""
        low, high, here = (
            (math.log(each) for each in (self.low, self.high, max(value, 1e-12)))
            if self.log
            else (self.low, self.high, value)
        )
        share = (here - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, -0.02), 1.02) * (self.end - self.start)


def nice(low: float, high: float, most: int = 6) -> list[float]:
    """Round ticks between two values."""
    span = high - low or 1.0
    raw = span / most
    step = 10 ** math.floor(math.log10(raw))
    step *= next(each for each in (1, 2, 2.5, 5, 10) if each * step >= raw)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: 1, 2 and 5 of each power of ten, or 1 alone over many."""
    many = math.log10(high / low) > 2.5
    steps = (1,) if many else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def plain(value: float) -> str:
    """A tick's text: 0.05, 2.5, 10,000."""
    return f"{value:,.10g}" if value >= 1 or value == 0 else f"{value:.10g}"


@dataclass
class Canvas:
    """What is drawn so far, in a plot area with room for labels at its right."""

    title: str
    note: str
    """What the chart shows, for those who cannot see it."""
    left: float = 40.0
    right: float = 80.0
    top: float = 30.0
    bottom: float = 40.0
    width: float = WIDTH
    height: float = HEIGHT
    parts: list[str] = field(default_factory=list)
    _labels: list[tuple[float, float, str, str]] = field(default_factory=list)

    @property
    def across(self) -> tuple[float, float]:
        """Pixels of the plot area, left to right."""
        return self.left, self.width - self.right

    @property
    def upwards(self) -> tuple[float, float]:
        """Bottom to top."""
        return self.height - self.bottom, self.top

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """A straight line of a class."""
        ends = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
        self.parts.append(f'<line class="{kind}" {ends}/>')

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """A line through points."""
        if len(points) > 1:
            where = "L".join(f"{number(x)},{number(y)}" for x, y in points)
            self.parts.append(f'<path class="{kind}" d="M{where}"/>')

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """Words at a place."""
        self.parts.append(
            f'<text class="{kind}" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">'
            f"{escape(words)}</text>"
        )

    def mark(self, x: float, y: float, shape: str, kind: str, words: str) -> None:
        """A point: `dot`, `ring`, `cross` or `square`, with words for who points at it."""
        told = f"<title>{escape(words)}</title>"
        at_x, at_y = number(x), number(y)
        if shape == "cross":
            d = f"M{number(x - 4)},{number(y - 4)}l8,8m0,-8l-8,8"
            self.parts.append(f'<path class="mark {kind} cross" d="{d}">{told}</path>')
        elif shape == "square":
            self.parts.append(
                f'<rect class="mark {kind}" x="{number(x - 4)}" y="{number(y - 4)}" '
                f'width="8" height="8">{told}</rect>'
            )
        else:
            where = f'cx="{at_x}" cy="{at_y}" r="4.2"'
            self.parts.append(f'<circle class="mark {kind} {shape}" {where}>{told}</circle>')

    def whisker(self, x: float, low: float, high: float, kind: str) -> None:
        """An interval with caps."""
        self.line(x, low, x, high, f"whisker {kind}")
        for y in (low, high):
            self.line(x - 3, y, x + 3, y, f"whisker {kind}")

    def label(self, x: float, y: float, words: str, kind: str) -> None:
        """A direct label at the right of the plot; they are kept apart when the chart is done."""
        self._labels.append((x, y, words, kind))

    def y_axis(self, scale: Scale, ticks: Sequence[float], unit: str) -> None:
        """Grid lines with their values, and the unit above them."""
        for tick in ticks:
            y = scale(tick)
            self.line(self.across[0], y, self.across[1], y, "grid")
            self.text(self.left - 6, y + 4, plain(tick), "tick", "end")
        self.text(4, self.top - 12, unit, "unit")

    def x_axis(self, scale: Scale, ticks: Sequence[tuple[float, str]], unit: str) -> None:
        """Values under the plot."""
        bottom = self.upwards[0]
        self.line(self.across[0], bottom, self.across[1], bottom, "axis")
        last = -math.inf
        for value, words in ticks:
            x = scale(value)
            self.line(x, bottom, x, bottom + 4, "axis")
            if x - last >= len(words) * _CHAR + 8:
                self.text(x, bottom + 17, words, "tick", "middle")
                last = x
        middle = sum(self.across) / 2
        self.text(middle, self.height - 6, unit, "unit", "middle")

    def rule(self, scale: Scale, value: float, words: str, kind: str) -> None:
        """A horizontal reference with its name at its right end."""
        y = scale(value)
        self.line(self.across[0], y, self.across[1], y, kind)
        self.label(self.across[1], y, words, "reference")

    def svg(self) -> str:
        """The chart."""
        self._place_labels()
        body = "\n".join(self.parts)
        return (
            f'<svg class="chart" viewBox="0 0 {number(self.width)} {number(self.height)}" '
            f'role="img" aria-label="{escape(self.title)}. {escape(self.note)}">\n'
            f"{body}\n</svg>"
        )

    def _place_labels(self) -> None:
        """In their order, a row apart, inside of the plot, with a thin line where one moved."""
        ordered = sorted(self._labels, key=lambda each: each[1])
        places = [y for _, y, _, _ in ordered]
        bottom, top = self.upwards
        for i in range(1, len(places)):
            places[i] = max(places[i], places[i - 1] + _GAP)
        over = places[-1] - bottom if places else 0.0
        if over > 0:
            places[-1] -= over
            for i in range(len(places) - 2, -1, -1):
                places[i] = min(places[i], places[i + 1] - _GAP)
        edge = self.across[1]
        for (x, y, words, kind), place in zip(ordered, places, strict=True):
            place = max(place, top)
            if abs(place - y) > 3 or edge - x > 24:
                start = min(x + 6, edge)
                self.path([(start, y), (edge + 6, place)], f"leader {kind}")
            self.text(edge + 9, place + 4, words, f"label {kind}")
        self._labels = []


def beside(names: Iterable[str]) -> float:
    """Pixels at the right of a plot for names of lines; the longest are shortened to ROOM."""
    return 12.0 + min(max((len(each) * _WIDE for each in names), default=0.0), ROOM)


def shortened(words: str, room: float) -> str:
    """A name that fits into so many pixels."""
    most = int(room / _WIDE)
    return words if len(words) <= most else f"{words[: max(most - 1, 1)]}…"
