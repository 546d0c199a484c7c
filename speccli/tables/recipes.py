"""Recipes, as `specctl recipes` prints them for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from speccli.core.views.text import clean
from speccli.tables.whole import Whole


def recipes_table(rows: Sequence[Mapping[str, str]]) -> RenderableType:
    """A line a recipe."""
    table = Whole(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("name", "gpus", "what for"):
        table.add_column(name, no_wrap=name != "what for")
    for row in rows:
        table.add_row(row["name"], row["gpu"], Text(row["summary"], "dim"))
    words = f"{len(rows)} recipes" if rows else "no such recipe"
    return Group(table, Text(f"{words}; specctl plan NAME", "dim"))


def recipe_table(whole: Mapping[str, Any]) -> RenderableType:
    """A recipe, a line a key."""
    table = Whole(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in _flat(whole, ()):
        table.add_row(key, Text(clean(str(value))))
    return table


def _flat(value: Any, path: tuple[str, ...]) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        return [row for key, each in value.items() for row in _flat(each, (*path, str(key)))]
    return [(".".join(path), value)]
