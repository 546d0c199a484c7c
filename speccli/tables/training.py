"""A trained head for people: the check, and acceptance on what it was not trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from speccli.core.values import Number
from speccli.core.views import training as view
from speccli.tables.whole import Whole

if TYPE_CHECKING:
    from rich.console import RenderableType

    from speccli.core.training.flow import Outcome


def training_table(outcome: Outcome) -> RenderableType:
    """The head, what is wrong with it, and a row a test."""
    parts: list[RenderableType] = [Text(f"head: {outcome.head}")]
    parts += [
        Text(f"{verdict.severity}: {verdict.evidence} {verdict.action}")
        for verdict in outcome.verdicts
        if verdict.severity != "info"
    ]
    rows = view.rows(outcome)
    if not rows:
        parts.append(Text("acceptance: not measured"))
        return Group(*parts)
    table = Whole(box=None, pad_edge=False, show_edge=False)
    for name, side in (
        ("head", "left"),
        ("test", "left"),
        ("requests", "right"),
        ("acceptance", "right"),
        ("AL", "right"),
        ("by position", "left"),
        ("tokens/step", "right"),
    ):
        table.add_column(name, justify="right" if side == "right" else "left")
    for row in rows:
        if row.state == "failed":
            table.add_row(row.arm, row.dataset, "", "failed", "", row.reason or "", "")
            continue
        found = row.acceptance
        table.add_row(
            row.arm,
            row.dataset,
            str(row.requests),
            _share(found.rate),
            _number(found.length),
            " ".join(_share(n) for n in found.by_position),
            _number(found.tokens_per_step),
        )
    parts.append(table)
    return Group(*parts)


def _share(number: Number) -> str:
    return "?" if number.value is None else f"{number.value:.3f}"


def _number(number: Number) -> str:
    return "?" if number.value is None else f"{number.value:.2f}"
