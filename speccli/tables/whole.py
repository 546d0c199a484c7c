"""Tables that break no number: where a window is too narrow, columns go below, never digits."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_WORD = 12
"""Cells of a column of words below which it is folded no further."""


class Whole(Table):
    """A table in as many bands as it needs, each with the first `keys` columns again.

    A column that is set to the right holds numbers, and is shown whole. Where the keys leave no
    room for even one of them, every row is a paragraph.
    """

    def __init__(self, *headers: Column | str, keys: int = 1, **settings: Any) -> None:
        """As rich's, and `keys`: columns that name a row."""
        super().__init__(*headers, **settings)
        self._keys = keys

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Any:
        """The bands, an empty line between two."""
        bands = self._bands(console, options)
        if bands is None:
            yield from self._paragraphs()
            return
        for at, band in enumerate(bands):
            if at:
                yield Text()
            yield from Table.__rich_console__(self._of(band, console, options), console, options)

    @property
    def _beside(self) -> int:
        """Blanks between two columns."""
        _, right, _, left = self.padding
        return max(left, right) if self.collapse_padding else left + right

    def _bands(self, console: Console, options: ConsoleOptions) -> list[list[int]] | None:
        """Which columns stand beside each other; None: not even one beside the keys."""
        room, keys = options.max_width, list(range(min(self._keys, len(self.columns))))
        sizes = [self._sizes(each, console, options) for each in self.columns]
        beside = self._beside
        least = [low + beside for low, _ in sizes]
        if sum(least) - beside <= room:
            return [list(range(len(sizes)))]
        named = sum(high + beside for _, high in sizes[: len(keys)])
        if named > room * 0.6:
            named = sum(least[: len(keys)])
        bands, used = list[list[int]](), room
        for at in range(len(keys), len(sizes)):
            if named + least[at] - beside > room:
                return None
            if not bands or used + least[at] - beside > room:
                bands.append(list(keys))
                used = named
            bands[-1].append(at)
            used += least[at]
        return bands or None

    def _sizes(self, column: Column, console: Console, options: ConsoleOptions) -> tuple[int, int]:
        """The cells that a column needs, and would like."""
        wide = options.update(width=10_000)
        shown = [column.header] if self.show_header else []
        cells = [Measurement.get(console, wide, each) for each in (*shown, *column.cells)]
        high = max((column.min_width or 0, *(each.maximum for each in cells)))
        if column.justify == "right":
            return high, high
        return min(max((each.minimum for each in cells), default=0), _WORD), high

    def _of(self, band: Sequence[int], console: Console, options: ConsoleOptions) -> Table:
        """These columns, each as wide as it is to be."""
        columns = [self.columns[place] for place in band]
        sizes = [self._sizes(each, console, options) for each in columns]
        room = options.max_width - self._beside * (len(columns) - 1)
        first = [each.no_wrap or each.justify == "right" for each in columns]
        made = copy.copy(self)
        made.pad_edge = False
        made.columns = [
            replace(column, _index=at, width=width, min_width=None, no_wrap=False, overflow="fold")
            for at, (column, width) in enumerate(
                zip(columns, _widths(sizes, first, room), strict=True)
            )
        ]
        return made

    def _paragraphs(self) -> Iterator[RenderableType]:
        """A line a cell, with its column's name before it."""
        for row, cells in enumerate(zip(*(each.cells for each in self.columns), strict=True)):
            if row:
                yield Text()
            for column, cell in zip(self.columns, cells, strict=True):
                told = _text(cell)
                if told.plain.strip():
                    name = _text(column.header) if self.show_header else Text()
                    name.stylize("dim")
                    yield Text("  ").join(each for each in (name, told) if each.plain)


def _text(cell: RenderableType) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(str(cell))


def _widths(sizes: Sequence[tuple[int, int]], first: Sequence[bool], room: int) -> list[int]:
    """What each gets between its least and its most: those that are `first`, then the small."""
    made = [low for low, _ in sizes]
    left = room - sum(made)
    order = sorted(range(len(sizes)), key=lambda at: (not first[at], sizes[at][1] - sizes[at][0]))
    for done, at in enumerate(order):
        low, high = sizes[at]
        share = left if first[at] else left // (len(order) - done)
        more = max(min(high - low, share), 0)
        made[at] += more
        left -= more
    return made
