"""Rows of styled text that repaint only where they changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from speccli.core.views.text import Line, width_of
from tui.palette import Palette


class Lines(Widget):
    """Shows lines as they are: it has no idea what they mean."""

    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, palette: Palette, *, id: str) -> None:
        """`palette`: what style words look like here."""
        super().__init__(id=id)
        self._palette = palette
        self.lines: tuple[Line, ...] = ()
        """What is shown."""
        self.painted = 0
        """How many rows were ever asked to be painted again."""

    def show(self, lines: Sequence[Line]) -> None:
        """Show these lines; rows that stay the same are not touched."""
        new, old = tuple(lines), self.lines
        if new == old:
            return
        self.lines = new
        if len(new) != len(old):
            self.styles.height = len(new)
            self.display = bool(new)
            self.painted += len(new)
            self.refresh()
            return
        width = self.size.width
        changed = [y for y, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        self.painted += len(changed)
        self.refresh(*(Region(0, y, width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """One row."""
        if y >= len(self.lines):
            return Strip.blank(self.size.width)
        spans, palette = self.lines[y], self._palette
        segments = [Segment(palette.text(text), palette.style(word)) for text, word in spans]
        return Strip(segments, width_of(spans)).adjust_cell_length(self.size.width)
