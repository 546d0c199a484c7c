"""The plan of a fallback, for people: the move in words, how it is made, the ladder."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from speccli.core.fallback.measured import Expected
from speccli.core.fallback.moves import Planned
from speccli.core.views import fallback as view
from speccli.core.views.text import clean
from speccli.tables.whole import Whole

_STYLES = {"next": "bold", "refused": "dim", "passed over": "dim"}


def plan_table(plan: Planned) -> RenderableType:
    """What to do first; then everything about it; then the rungs."""
    parts: list[RenderableType] = [Text(clean(plan.words), "bold")]
    if plan.command is not None:
        lead = "" if plan.advised else "if it must: "
        parts.append(Padding(Text(clean(f"{lead}{plan.command}")), (0, 0, 0, 2)))
        parts += [Text(), _move(plan)]
    parts += [Text(), _ladder(plan)]
    parts += [Padding(Text(clean(each), "dim"), (0, 0, 0, 2)) for each in view.remarks(plan)]
    told = list(view.others(plan))
    if told:
        parts += [Text(), Text("also found" if plan.advised else "found", "bold")]
        parts += [Padding(Text(clean(each)), (0, 0, 0, 2)) for each in told]
    return Group(*parts)


def _move(plan: Planned) -> Table:
    table = Whole.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    before = ""
    for name, words in view.headings(plan):
        style = "yellow" if name == "risk" else ""
        table.add_row(Text(f"  {name if name != before else ''}", "dim"), Text(clean(words), style))
        before = name
    return table


def _ladder(plan: Planned) -> Table:
    table = Whole(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for title, right in (
        ("  rung", False),
        ("drafts", False),
        ("tok/s a server", True),
        ("TPOT p99", True),
        ("$/1M", True),
        ("", False),
    ):
        table.add_column(title, justify="right" if right else "left", no_wrap=title != "drafts")
    table.add_row("  now", Text(clean(view.where(plan))), *_numbers(plan.expected), "")
    for place in plan.places:
        mark = view.marks(place, plan)
        table.add_row(
            Text(f"{'▸ ' if mark == 'next' else '  '}{clean(place.step.name)}"),
            Text(clean(place.step.words)),
            *_numbers(place.expected),
            mark,
            style=_STYLES.get(mark, ""),
        )
    return table


def _numbers(expected: Expected) -> tuple[Text, Text, Text]:
    known = expected.tokens_per_s.value is not None
    return (
        Text(view.rate(expected.tokens_per_s) if known else "—"),
        Text(view.milliseconds(expected.tpot_p99_s, interval=False)),
        Text(view.dollars(expected.usd_per_1m, interval=False)),
    )
