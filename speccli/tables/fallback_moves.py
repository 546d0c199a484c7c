"""A move of a deployment, for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from speccli.core.fallback.carry import Outcome, Restored
from speccli.core.fallback.preview import Preview
from speccli.core.views.text import clean
from speccli.tables.deploy import outcome_table
from speccli.tables.whole import Whole

_STYLES = {"moved": "green", "passed": "green", "undone": "red", "refused": "red"}
_VERBS = {"create": "green", "change": "yellow", "remove": "red"}


def moved_table(outcome: Outcome) -> RenderableType:
    """The move in a line, what to know of it, the deployment it came to."""
    head = Text(clean(outcome.words), f"bold {_STYLES.get(outcome.end, 'yellow')}")
    notes = [_indented(Text(clean(note), "yellow")) for note in outcome.notes]
    return Group(head, *notes, outcome_table(outcome.last))


def restored_table(told: Restored) -> RenderableType:
    """What the canary came to; the move, where there was one."""
    end = told.verdict if told.moved is None else told.moved.end
    head = Text(clean(told.words), f"bold {_STYLES.get(end, 'yellow')}")
    if told.moved is None:
        return head
    return Group(head, outcome_table(told.moved.last))


def preview_table(made: Preview) -> RenderableType:
    """Each part of a move that was not made, and its calls."""
    parts: list[RenderableType] = [
        Text(clean(f"{made.name}: {made.source} → {made.target}"), "bold")
    ]
    for number, part in enumerate(made.parts, 1):
        parts.append(Text(clean(f"{number}. {part.words}")))
        table = Whole.grid(padding=(0, 2))
        for call in part.calls:
            table.add_row(Text(call.verb, _VERBS.get(call.verb, "")), clean(call.what))
        parts.append(_indented(table))
    parts.append(Text("tried on the server; nothing was changed", "dim"))
    return Group(*parts)


def _indented(what: RenderableType) -> RenderableType:
    return Padding(what, (0, 0, 0, 3))
