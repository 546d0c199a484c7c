"""The main screen: a stack of blocks, and the keys that move in the engine table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from speccli.core.views.engines import SORTS
from speccli.core.views.top import TopView, build_view
from tui import bindings
from tui.widgets.lines import Lines

if TYPE_CHECKING:
    from tui.app import TopApp

BLOCKS = (
    "header",
    "banner",
    "verdict",
    "panels",
    "charts",
    "batch",
    "engines",
    "events",
    "spare",
    "keys",
)


class TopScreen(Screen[None]):
    """Everything at a glance. Until the cursor is moved it stays on top, where the trouble is."""

    BINDINGS: ClassVar[list[BindingType]] = bindings.TOP
    app: TopApp

    def __init__(self) -> None:
        """Nothing is shown yet."""
        super().__init__()
        self.view: TopView | None = None
        """What is shown."""

    def compose(self) -> ComposeResult:
        """One widget a block, top to bottom."""
        for name in BLOCKS:
            yield Lines(self.app.palette, id=name)

    def rebuild(self) -> None:
        """Show what is known now."""
        app = self.app
        view = build_view(app.shown, app.ui, app.now(), app.findings)
        self.view = view
        app.ui = replace(app.ui, first=view.first)
        for name in BLOCKS:
            self.query_one(f"#{name}", Lines).show(view.block(name))

    def on_screen_resume(self) -> None:
        """Back from a page: data has gone on meanwhile."""
        self.app.rebuild()

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        view = self.view
        if view is None or not view.order:
            return
        at = view.order.index(view.selected) if view.selected in view.order else 0
        self._select(at + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by screenfuls."""
        self.action_move(by * max(1, (self.view.page if self.view else 1) - 1))

    def action_edge(self, end: int) -> None:
        """Move the cursor to the first or the last engine."""
        self._select(0 if end < 0 else 10**9)

    def _select(self, at: int) -> None:
        view = self.view
        if view is None or not view.order:
            return
        name = view.order[max(0, min(at, len(view.order) - 1))]
        self.app.change(selected=name)

    def action_detail(self) -> None:
        """Open the engine under the cursor."""
        if self.view is not None and self.view.selected is not None:
            self.app.open_detail(self.view.selected)

    def action_sort(self) -> None:
        """Sort by the next key; the cursor goes to the top, where trouble is."""
        at = SORTS.index(self.app.ui.sort)
        self.app.change(sort=SORTS[(at + 1) % len(SORTS)], first=0, selected=None)

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.app.change(reverse=not self.app.ui.reverse, first=0, selected=None)

    def action_filter(self) -> None:
        """Begin to type a filter."""
        self.app.change(filtering=True, note=None)

    def action_clear(self) -> None:
        """Drop the filter, the answer to the last key, and the cursor."""
        self.app.change(filter="", note=None, selected=None, first=0)

    async def action_leave(self, code: int) -> None:
        """Leave the program."""
        self.app.exit(return_code=code)

    def on_key(self, event: events.Key) -> None:
        """While a filter is typed, keys are text."""
        ui = self.app.ui
        if not ui.filtering:
            return
        event.stop()
        event.prevent_default()
        if event.key == "enter":
            self.app.change(filtering=False)
        elif event.key == "escape":
            self.app.change(filtering=False, filter="")
        elif event.key == "backspace":
            self.app.change(filter=ui.filter[:-1], first=0)
        elif event.key == "ctrl+u":
            self.app.change(filter="", first=0)
        elif event.key in ("up", "down"):
            self.action_move(-1 if event.key == "up" else 1)
        elif event.is_printable and event.character:
            self.app.change(filter=ui.filter + event.character, first=0)

    def on_paste(self, event: events.Paste) -> None:
        """A pasted host name is a filter."""
        if self.app.ui.filtering:
            self.app.change(filter=self.app.ui.filter + event.text.split("\n")[0], first=0)
