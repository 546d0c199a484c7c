"""What doctor found, as `specctl doctor` prints it for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from speccli.core.doctor.base import Check
from speccli.core.views import doctor as view
from speccli.core.views.text import clean
from speccli.tables.whole import Whole

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red bold", "unknown": "magenta", "skip": "dim"}
_NAME_WIDTH = 14


def doctor_table(checks: Sequence[Check]) -> RenderableType:
    """Each check a line, under the machine or the server that it looked at."""
    parts: list[RenderableType] = []
    for subject, group in groupby(view.shown(checks), key=_heading):
        parts += [Text(subject, style="bold"), _lines(list(group))]
    parts.append(Text(view.total(checks), style="bold"))
    return Group(*parts)


def _heading(check: Check) -> str:
    if check.area == "source" and check.subject:
        return clean(check.subject)
    return {"source": "sources"}.get(check.area, check.area)


def _lines(checks: Sequence[Check]) -> RenderableType:
    table = Whole.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, min_width=7)
    table.add_column(no_wrap=True, min_width=_NAME_WIDTH)
    table.add_column(overflow="fold")
    for check in checks:
        style = _STYLES[check.state]
        text = Text(view.sentence(check))
        if check.subject and check.area != "source":
            text.append(f"  {clean(check.subject)}", style="dim")
        if check.fix:
            text.append(f"  → {clean(check.fix)}", style="bold" if check.state != "ok" else "dim")
        table.add_row(
            Text(view.GLYPHS[check.state], style=style),
            Text(check.state, style=style),
            Text(check.name, style="dim"),
            text,
        )
    return Padding(table, (0, 0, 0, 2))
