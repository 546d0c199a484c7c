"""A report as sections of words, tables and charts, before it is Markdown or HTML."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from speccli.core.bench.compare import Cell, Comparison
from speccli.core.bench.pairing import Load
from speccli.core.bench.results import Statistic
from speccli.core.bench.schedule import Schedule
from speccli.core.report import charts, words
from speccli.core.report.build import Report
from speccli.core.report.charts import Chart
from speccli.core.values import Number
from speccli.core.views import bench as view

_NARROW = "\N{NO-BREAK SPACE}"
MARKS = {"PASS": "●", "INCONCLUSIVE": "○", "FAIL": "✖"}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of words; the first `keys` columns name the row, the others are numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    keys: int = 1
    notes: tuple[str, ...] = ()
    """Under it: why a number is a dash, what a column means."""
    words: bool = False
    """Whether all of it is words, so that nothing is set to the right."""


@dataclass(frozen=True, slots=True)
class Bar:
    """K by batch, drawn as one bar."""

    rows: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to copy."""

    text: str


@dataclass(frozen=True, slots=True)
class Pictures:
    """Charts side by side, and what they show."""

    charts: tuple[Chart, ...]
    caption: str


Block = str | Table | Code | Pictures | Bar | tuple[str, ...]
"""Words, a table, lines to copy, charts, K by batch, or a list of points."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part with a heading."""

    name: str
    """For links."""
    title: str
    kind: str
    """What its numbers are: a key of `KINDS`; empty where it has none."""
    blocks: tuple[Block, ...]


def sections(report: Report) -> list[Section]:
    """All parts after the first page, those without anything to say left out."""
    from speccli.core.report.sections_machine import machine
    from speccli.core.report.sections_more import acceptance, cost, lossless, notes, provenance

    made = [
        _speedup(report),
        _crossover(report),
        _schedule(report),
        _latency(report),
        acceptance(report),
        cost(report),
        machine(report),
        lossless(report),
        notes(report),
        provenance(report),
    ]
    return [section for section in made if section is not None]


def matrix(comparison: Comparison) -> Table:
    """Loads by arms, a verdict each."""
    loads = comparison.loads
    return Table(
        ("batch" if loads[0][0] is not None else "rate", *comparison.arms),
        tuple(
            (
                view.load_words(load),
                *(_verdict(comparison, arm, load) for arm in comparison.arms),
            )
            for load in loads
        ),
        words=True,
    )


def _verdict(comparison: Comparison, arm: str, load: Load) -> str:
    cells = comparison.of(arm, load)
    if not cells:
        return "—"
    word = comparison.word(arm, load)
    values = [cell.speedup.value for cell in cells if cell.speedup.value is not None]
    span = f"{min(values):.2f}" if values else ""
    if values and f"{max(values):.2f}" != span:
        span += f"–{max(values):.2f}"
    return f"{MARKS[word]} {word} {span}".rstrip()


def reasons(told: Iterable[tuple[str, Statistic | Number]]) -> tuple[str, ...]:
    """Why numbers are dashes, one line a reason."""
    found: dict[str, list[str]] = {}
    for name, value in told:
        if value.value is None:
            names = found.setdefault(value.reason or "unknown", [])
            if name not in names:
                names.append(name)
    return tuple(f"— {', '.join(names)}: {why}" for why, names in found.items())


def _speedup(report: Report) -> Section | None:
    comparison = report.comparison
    if comparison is None:
        return None
    hue, base = charts.hues(report), words.plain_name(comparison)
    pictures = Pictures(
        tuple(charts.speedups(comparison, hue)),
        f"{comparison.cells[0].measure} with each arm over that of {base}; bars are "
        "95 % intervals, paired by prompt and repeat. "
        f"●{_NARROW}PASS ○{_NARROW}INCONCLUSIVE ✕{_NARROW}FAIL; the dashed line is the target, "
        f"{comparison.target:g}.",
    )
    return Section(
        "speedup",
        f"Speed-up over {base}",
        report.kind,
        (pictures, *_cells(comparison)),
    )


def _cells(comparison: Comparison) -> Iterable[Table]:
    kind = "batch" if comparison.loads[0][0] is not None else "rate"
    columns = (
        *("dataset", kind, "arm", "speed-up", "verdict"),
        *("TPOT ×", "TTFT ×", "p99 TPOT, ms", "p99 TTFT, ms"),
    )
    order = {name: i for i, name in enumerate(comparison.datasets)}
    arms = {name: i for i, name in enumerate(comparison.arms)}
    cells = sorted(
        comparison.cells,
        key=lambda c: (order[c.dataset], comparison.loads.index(c.load), arms[c.arm]),
    )
    told = [
        pair
        for cell in cells
        for pair in (
            ("speed-up", cell.speedup),
            ("p99 TPOT", cell.tpot_p99.delta),
            ("p99 TTFT", cell.ttft_p99.delta),
        )
    ]
    yield Table(
        columns,
        tuple(_cell(cell) for cell in cells),
        keys=3,
        notes=(
            "× over 1 is better than the baseline; p99 columns are the change in milliseconds, "
            "under 0 is better; [ ] is the 95 % interval of one comparison taken alone",
            *view.doubts(comparison),
            *sorted({f"speed-up: {c.speedup.reason}" for c in cells if c.speedup.reason}),
            *reasons(told),
        ),
    )


def _cell(cell: Cell) -> tuple[str, ...]:
    return (
        cell.dataset,
        view.load_words(cell.load),
        cell.arm,
        view.times(cell.speedup),
        f"{MARKS[cell.verdict.word]} {cell.verdict.word}",
        view.times(cell.tpot),
        view.times(cell.ttft),
        view.delta_ms(cell.tpot_p99.delta),
        view.delta_ms(cell.ttft_p99.delta),
    )


def _crossover(report: Report) -> Section | None:
    comparison = report.comparison
    if comparison is None or not comparison.crossovers:
        return None
    datasets = comparison.datasets
    found = {(arm, dataset): each for arm, dataset, each in comparison.crossovers}

    def cell(arm: str, dataset: str) -> str:
        each = found.get((arm, dataset))
        if each is None:
            return "—"
        return f"~ {each.words}" if each.between else each.words

    return Section(
        "crossover",
        "Where it stops paying",
        report.kind,
        (
            f"The batch from which on an arm is slower than {words.plain_name(comparison)}, with "
            "its 95 % interval. ~ is interpolated between the two measured batches around it, and "
            "its interval is of how runs differ: a step that grows in stairs may turn anywhere "
            "between the two. Nothing is said beyond the largest that was measured.",
            Table(
                ("arm", *datasets),
                tuple((arm, *(cell(arm, d) for d in datasets)) for arm in comparison.arms),
            ),
        ),
    )


def _schedule(report: Report) -> Section | None:
    found = report.schedule
    if found is None:
        return None
    blocks: list[Block] = [_sweep(found)]
    if found.k and found.needed:
        blocks = [Bar(found.rows), *blocks, _changes(found)]
        config = view.schedule(found)["speculative_config"]
        blocks.append(Code(f"--speculative-config {shlex.quote(words.compact(config))}"))
    elif found.k:
        blocks.insert(0, f"One K for every batch that was measured: {found.k}.")
    else:
        blocks.insert(0, "No K was over 3 % faster than none at any batch: serve without.")
    return Section("schedule", "K by batch size", report.kind, (*blocks, *found.notes))


def _sweep(found: Schedule) -> Table:
    return Table(
        ("output tokens/s", *(f"batch {each.batch}" for each in found.measured)),
        tuple(
            (
                f"K={k} ({found.arms[k]})",
                *(
                    f"{each.tokens_per_s[k]:,.0f}{' ◂' if each.chosen == k else ''}"
                    for each in found.measured
                ),
            )
            for k in sorted(found.arms, reverse=True)
        ),
        notes=("◂ the K chosen: smaller than before only where it earns 3 % more",),
    )


def _changes(found: Schedule) -> Table:
    return Table(
        ("change", "after batch", "smaller / larger K below", "above", "confirm at"),
        tuple(
            (
                f"K {change.larger} → {change.smaller}",
                f"~ {change.last}",
                f"{change.below}: {view.times(change.at_below)}",
                f"{change.above}: {view.times(change.at_above)}",
                ", ".join(map(str, change.confirm)),
            )
            for change in found.changes
        ),
    )


def _latency(report: Report) -> Section | None:
    hue = charts.hues(report)
    if not report.waiting:
        return None
    closed = all(each.load[0] is not None for each in report.waiting)
    table = Table(
        (
            *("batch" if closed else "rate", "arm", "requests", "tok/s"),
            *("TPOT p50", "p99", "TTFT p50", "p99", "e2e p50", "p99"),
        ),
        tuple(
            (
                view.load_words(each.load),
                each.arm,
                f"{each.requests:,}",
                "—" if each.tokens_per_s is None else f"{each.tokens_per_s:,.0f}",
                *(
                    view.milliseconds(statistic.value)
                    for spread in (each.tpot_s, each.ttft_s, each.e2e_s)
                    for statistic in (spread.p50, spread.p99)
                ),
            )
            for each in report.waiting
        ),
        keys=2,
        notes=(
            "milliseconds, all datasets and repeats together; TPOT = (e2e − TTFT) / (output tokens "
            "− 1), so that several tokens in one chunk do not mislead",
            *reasons(
                (f"{name} p99", spread.p99)
                for each in report.waiting
                for name, spread in (("TPOT", each.tpot_s), ("TTFT", each.ttft_s))
            ),
        ),
    )
    pictures = Pictures(
        tuple(charts.latencies(report.waiting, hue)),
        "● median, – p99; both axes are logarithmic.",
    )
    return Section("latency", "Latency", report.kind, (pictures, table))


def told(value: Number, form: Callable[[float], str]) -> str:
    """A number, or a dash."""
    return "—" if value.value is None else form(value.value)


def joined(parts: Sequence[str | None]) -> str:
    """What is known of several parts, or a dash."""
    return ", ".join(part for part in parts if part) or "—"
