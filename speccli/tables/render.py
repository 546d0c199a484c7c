"""A rendering as `specctl render -o table` prints it for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from speccli.core.manifests.render import Rendering
from speccli.core.views.text import clean
from speccli.tables.plan import verdict_lines
from speccli.tables.whole import Whole


def render_table(rendering: Rendering) -> RenderableType:
    """What is rendered, in the order in which to apply it, and what to know of it."""
    table = Whole.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(overflow="fold")
    table.add_row(*(Text(word, "bold") for word in ("kind", "name", "for")))
    for kind, name, what in rendering.rows:
        table.add_row(kind, clean(name), Text(what, "dim"))
    return Group(table, Text(), *verdict_lines(rendering.verdicts))
