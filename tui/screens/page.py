"""A page to scroll in: an engine in full, events, findings, help. It goes on with the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from speccli.core.views.text import Line, Span, both_ends, fit, line
from speccli.core.views.top import frame_rows
from tui import bindings
from tui.widgets.lines import Lines

if TYPE_CHECKING:
    from tui.app import TopApp

Build = Callable[[], Sequence[Line]]


class PageScreen(Screen[None]):
    """Lines longer than the screen, and where in them the reader is."""

    BINDINGS: ClassVar[list[BindingType]] = bindings.PAGE
    app: TopApp

    def __init__(self, kind: str, build: Build, sibling: Callable[[int], None] | None = None):
        """`build` makes the lines from what is known; `sibling` turns to the next engine."""
        super().__init__()
        self.kind = kind
        self._build = build
        self._sibling = sibling
        self._first = 0

    def compose(self) -> ComposeResult:
        """The screen's own first rows, the page, the keys."""
        for name in ("header", "banner", "page", "keys"):
            yield Lines(self.app.palette, id=name)

    def on_screen_resume(self) -> None:
        """Shown (again)."""
        self.app.rebuild()

    def rebuild(self) -> None:
        """Show what is known now, from where the reader is."""
        app = self.app
        top = frame_rows(app.shown, app.ui, app.now())
        rows = max(1, app.ui.height - len(top) - 1)
        lines = tuple(self._build())
        self._first = max(0, min(self._first, len(lines) - rows))
        shown = lines[self._first : self._first + rows]
        self.query_one("#header", Lines).show(top[:1])
        self.query_one("#banner", Lines).show(top[1:])
        self.query_one("#page", Lines).show((*shown, *[()] * (rows - len(shown))))
        self.query_one("#keys", Lines).show([self._keys(len(lines), rows)])

    def _keys(self, total: int, rows: int) -> Line:
        ui = self.app.ui
        if ui.note:
            return fit(line(Span(ui.note, "note")), ui.width)
        parts = [
            Span("esc", "key"),
            Span(" back  ", "dim"),
            Span("↑↓", "key"),
            Span(" scroll", "dim"),
        ]
        if self._sibling is not None:
            parts += [Span("  ←→", "key"), Span(" other engines", "dim")]
        last = min(total, self._first + rows)
        where = f"{self._first + 1}–{last} of {total}" if total > rows else ""
        return both_ends(tuple(parts), line(Span(where, "dim")), ui.width)

    def action_move(self, by: int) -> None:
        """Scroll by rows."""
        self._first = max(0, self._first + by)
        self.rebuild()

    def action_page(self, by: int) -> None:
        """Scroll by screenfuls."""
        self.action_move(by * max(1, self.app.ui.height - 4))

    def action_edge(self, end: int) -> None:
        """Go to the beginning or the end."""
        self._first = 0 if end < 0 else 10**9
        self.rebuild()

    def action_sibling(self, by: int) -> None:
        """The next or the previous engine."""
        if self._sibling is not None:
            self._sibling(by)

    def action_back(self) -> None:
        """To the main screen."""
        self.app.pop_screen()
