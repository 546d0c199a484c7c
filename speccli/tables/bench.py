"""Comparisons, schedules and losslessness of a bench, as their commands print them for people."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from speccli.core.bench.compare import Cell, Comparison
from speccli.core.bench.lossless import Arm, Lossless
from speccli.core.bench.schedule import Change, Schedule
from speccli.core.bench.verdict import Word
from speccli.core.views import bench as view
from speccli.core.views import format as fmt
from speccli.core.views.text import GLYPHS, clean
from speccli.tables.whole import Whole

_STYLES: dict[Word, str] = {"PASS": "green", "FAIL": "red bold", "INCONCLUSIVE": "yellow"}
_MARKS: dict[Word, str] = {
    "PASS": GLYPHS["ok"],
    "FAIL": GLYPHS["critical"],
    "INCONCLUSIVE": GLYPHS["unknown"],
}
_SHOWN = 8
"""Partings and excluded rows that are listed one by one."""


def compare_table(comparison: Comparison) -> RenderableType:
    """The whole comparison."""
    parts: list[RenderableType] = [_head(comparison), Text()]
    for arm in comparison.arms:
        parts += [_arm(comparison, arm), Text()]
    for arm, dataset, found in comparison.crossovers:
        parts.append(Text(clean(f"crossover {arm}, {dataset}: {found.words}")))
    if comparison.crossovers:
        parts.append(Text())
    parts += [*_excluded(comparison), *_notes(view.doubts(comparison))]
    parts += [*_notes(_dashes(comparison)), *_notes(comparison.notes)]
    return Group(*parts)


def _dashes(comparison: Comparison) -> list[str]:
    """Why numbers are missing, or what they lack, one line a reason."""
    found: dict[str, list[str]] = {}
    for cell in comparison.cells:
        for name, value in (
            ("speed-up", cell.speedup),
            ("p99 TPOT", cell.tpot_p99.delta),
            ("p99 TTFT", cell.ttft_p99.delta),
        ):
            if value.reason is not None and name not in found.setdefault(value.reason, []):
                found[value.reason].append(name)
    return [f"{', '.join(names)}: {why}" for why, names in found.items()]


def _head(comparison: Comparison) -> Text:
    text = Text()
    if comparison.result.simulated:
        text.append("SIMULATED", style="black on yellow")
        text.append("  ")
    elif comparison.result.stand_in:
        text.append("STAND-IN", style="black on yellow")
        text.append("  ")
    measures = " and ".join(dict.fromkeys(cell.measure for cell in comparison.cells))
    words = (
        f"{comparison.result.name}: {measures} beside {comparison.baseline}, "
        f"target speed-up {comparison.target:g}"
    )
    return text.append(clean(words), style="bold")


def _arm(comparison: Comparison, arm: str) -> Table:
    cells = comparison.of(arm)
    opened = all(cell.batch is None for cell in cells)
    table = Whole(keys=2, box=None, padding=(0, 2, 0, 0), header_style="dim", collapse_padding=True)
    table.add_column(clean(arm), style="bold", no_wrap=True)
    table.add_column("rate" if opened else "batch", justify="right")
    table.add_column("verdict", no_wrap=True, min_width=14)
    for name in ("speed-up", "TPOT", "TTFT", "p99 TPOT, ms", "p99 TTFT, ms"):
        table.add_column(name, justify="right", min_width=8)
    shown = None
    for cell in sorted(cells, key=lambda c: (comparison.datasets.index(c.dataset), *_order(c))):
        table.add_row(
            clean(cell.dataset) if cell.dataset != shown else "",
            view.load_words(cell.load),
            Text(f"{_MARKS[cell.verdict.word]} {cell.verdict.word}", _STYLES[cell.verdict.word]),
            view.times(cell.speedup),
            view.interval(cell.tpot),
            view.interval(cell.ttft),
            view.delta_ms(cell.tpot_p99.delta),
            view.delta_ms(cell.ttft_p99.delta),
        )
        shown = cell.dataset
    return table


def _order(cell: Cell) -> tuple[float, float]:
    return float(cell.batch or 0), cell.rate or 0.0


def _excluded(comparison: Comparison) -> Iterable[Text]:
    rows = comparison.excluded
    for each in rows[:_SHOWN]:
        yield Text(
            clean(f"{GLYPHS['warning']} left out: {each.label}: {each.state}, {each.reason}"),
            "yellow",
        )
    if len(rows) > _SHOWN:
        yield Text(f"{GLYPHS['warning']} and {len(rows) - _SHOWN} more rows (-o json)", "yellow")


def _notes(notes: Iterable[str]) -> Iterable[Text]:
    return (Text(clean(note), "dim") for note in notes)


def schedule_table(found: Schedule) -> RenderableType:
    """The measured points, the changes, and what to add to the engine's line."""
    table = Whole(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("tok/s, by batch", no_wrap=True)
    for each in found.measured:
        table.add_column(str(each.batch), justify="right", no_wrap=True)
    for k in sorted(found.arms, reverse=True):
        cells = (
            Text(fmt.count(m.tokens_per_s[k]), "green bold" if m.chosen == k else "")
            for m in found.measured
        )
        table.add_row(clean(f"K={k}  {found.arms[k]}"), *cells)
    head = Text(clean(f"{found.method}{f' {found.draft}' if found.draft else ''}"), "bold")
    parts: list[RenderableType] = [head, table, Text()]
    parts += [Text(_change_words(change)) for change in found.changes]
    if not found.k:
        parts.append(
            Text("no K was over 3 % faster than none at any batch: serve without", "yellow")
        )
    elif not found.needed:
        parts.append(Text(f"one K for all of them: {found.k}"))
    return Group(*parts, *_notes(found.notes))


def _change_words(change: Change) -> str:
    confirm = ",".join(map(str, change.confirm))
    return (
        f"K {change.larger} → {change.smaller} after batch {change.last}: with "
        f"{change.smaller} the rate is {view.times(change.at_below)} times at {change.below}, "
        f"{view.times(change.at_above)} times at {change.above}; confirm with --batch {confirm}"
    )


def config_lines(found: Schedule) -> list[str]:
    """What to add to `--speculative-config`, as JSON, a line each; none: nothing to configure.

    Where the version that was measured does not start with it, what it does start with too.
    """
    config = found.config()
    if config is None:
        return []
    line = json.dumps(config, separators=(",", ":"))
    if found.refused is None:
        return ["add to --speculative-config:", line]
    one = json.dumps({"num_speculative_tokens": found.alone}, separators=(",", ":"))
    here = [one] if found.alone else ["serve without a draft"]
    return ["add to --speculative-config, on what was measured:", *here, "else:", line]


def lossless_table(found: Lossless) -> RenderableType:
    """Shares, then the partings, the worst first."""
    if found.why_none is not None:
        return Text(clean(f"{GLYPHS['unknown']} answers cannot be compared: {found.why_none}"))
    table = Whole(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("greedy answers", no_wrap=True)
    for name in ("as the baseline's", "as its own", "wrong", "unknown", "numeric"):
        table.add_column(name, justify="right", no_wrap=True)
    itself = view.share_words(found.baseline_itself)
    table.add_row(clean(found.baseline), "", itself, "", "", "", style="dim")
    for arm in found.arms:
        table.add_row(
            clean(arm.name),
            view.share_words(arm.beside),
            view.share_words(arm.itself),
            *(_count(arm, kind) for kind in ("wrong", "unknown", "numeric")),
        )
    return Group(table, *(line for arm in found.arms for line in _partings(arm)))


def _count(arm: Arm, kind: str) -> Text:
    if arm.texts is None:
        return Text("—", "dim")
    count = arm.kinds.get(kind, 0)  # type: ignore[call-overload]
    return Text(str(count), "red bold" if kind == "wrong" and count else "")


def _partings(arm: Arm) -> Iterable[Text]:
    if arm.unlocated:
        yield Text(clean(f"{arm.name}: {view.unlocated(arm)}"))
    for each in arm.partings[:_SHOWN]:
        style = "red" if each.parting.kind == "wrong" else ""
        words = f"{arm.name}, {each.prompt}: {each.parting.kind}, {each.parting.words}"
        yield Text(clean(words), style)
    if len(arm.partings) > _SHOWN:
        yield Text(clean(f"{arm.name}: and {len(arm.partings) - _SHOWN} more (-o json)"), "dim")
