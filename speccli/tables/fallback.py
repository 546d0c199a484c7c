"""Ways down from a deployment, for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from speccli.core.fallback.ladder import Ladder
from speccli.core.views import fallback as view
from speccli.core.views.text import clean


def ladder_table(found: Ladder) -> RenderableType:
    """Where it stands, each step with what it does, and the way back."""
    table = Table.grid(padding=(0, 2))
    name = found.record.name
    for step in found.down:
        style = "dim" if step.refusals else ""
        table.add_row(
            Text(f"specctl fallback apply {name} --method {step.method}", style),
            Text(clean(view.words(step)), style),
        )
    if found.back is not None:
        table.add_row(
            Text(f"specctl fallback restore {name}"), Text(f"revision {found.back.number} again")
        )
    parts: list[RenderableType] = [Text(clean(view.now(found)), "bold")]
    if not found.down:
        parts.append(Text("there is nothing to fall back to"))
    if table.row_count:
        parts.append(table)
        parts.append(
            Text(
                "each is a rolling restart, with a trial, a proof and a revision of its own", "dim"
            )
        )
    return Group(*parts)
