"""Reports of several models under one first page: what a manager reads in a minute."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os.path import commonprefix
from pathlib import Path
from typing import Any

from speccli.core.bench.compare import Cell, lent
from speccli.core.bench.crossover import Crossover
from speccli.core.errors import UsageError
from speccli.core.report import advice, words
from speccli.core.report.build import KINDS, Report
from speccli.core.report.sections import MARKS, Block, Section, Table
from speccli.core.report.sections_more import cheapest_words
from speccli.core.report.several_again import Again, apart, section
from speccli.core.views import format as fmt
from speccli.core.views.bench import load_words, times

ESTIMATES = "specctl.lab.estimate/v1"


@dataclass(frozen=True, slots=True)
class Several:
    """Reports by the name they were given."""

    parts: tuple[tuple[str, Report], ...]
    estimates: tuple[Mapping[str, Any], ...] = ()
    """Lines of a file of estimates beside measurements."""
    fitted: str = ""
    """What of the estimates was fitted to what, in words."""
    again: tuple[Again, ...] = ()
    """Other runs of the same."""

    @property
    def kinds(self) -> list[str]:
        """What kinds of numbers there are, for the legend."""
        found = list(dict.fromkeys(report.kind for _, report in self.parts))
        priced = any(report.economics.gpu_hour_usd is not None for _, report in self.parts)
        planned = ["planned"] if self.estimates else []
        return [*found, *(["given"] if priced else []), *planned, "estimated"]


def title(several: Several) -> str:
    """The heading of the first page."""
    count = len(several.parts)
    return f"Is speculation worth it? {count} model{'s' if count > 1 else ''} on one page"


def answers(several: Several) -> list[str]:
    """A sentence a model."""
    return [
        " ".join(
            [
                f"{name}: {words.answer(report)}",
                *(f"Measured: {told}." for told in _sets(report)),
                *apart(several.again, name),
            ]
        )
        for name, report in several.parts
    ]


def _sets(report: Report) -> Iterator[str]:
    """Which batches were measured on fewer datasets than others."""
    best = words.best_arm(report.comparison) if report.comparison else None
    if report.comparison and best:
        told = advice.narrow(report.comparison, advice.advice(report.comparison, best))
        if told is not None:
            yield told


def badges(several: Several) -> list[str]:
    """What no reader may miss, once each; what several begin and end with alike is said once."""
    found: dict[str, list[str]] = {}
    for name, report in several.parts:
        if badge := words.badge(report):
            found.setdefault(badge, []).append(name)
    named = [(", ".join(names), badge) for badge, names in found.items()]
    stands = [(name, badge) for name, badge in named if badge.startswith(words.STAND_IN)]
    others = [badge for _, badge in named if not badge.startswith(words.STAND_IN)]
    return [*others, *_together(stands)]


def _together(stands: list[tuple[str, str]]) -> list[str]:
    split = [badge.split() for _, badge in stands]
    if len(split) < 2:
        return [badge for _, badge in stands]
    first, last = len(commonprefix(split)), len(commonprefix([each[::-1] for each in split]))
    if first < 2 or any(first + last >= len(each) for each in split):
        return [badge for _, badge in stands]
    middles = (each[first : len(each) - last] for each in split)
    told = "; ".join(
        f"({name}) {' '.join(middle).rstrip(':;,')}"
        for (name, _), middle in zip(stands, middles, strict=True)
    )
    end = " ".join(split[0][len(split[0]) - last :])
    return [" ".join([*split[0][:first], told]) + (f": {end}" if end else "")]


def sections(several: Several) -> list[Section]:
    """The first page's tables."""
    made = [_models(several), _batches(several)]
    if several.again:
        made.append(section(several.again, {name: report.mark for name, report in several.parts}))
    if several.estimates:
        made.append(_planned(several))
    return [*made, _what(several)]


def legend(several: Several) -> str:
    """What the marks mean."""
    return " · ".join(f"{KINDS[kind][0]} {KINDS[kind][1]}" for kind in several.kinds)


def _models(several: Several) -> Section:
    rows = []
    for name, report in several.parts:
        figures = {each.name: each for each in words.figures(report)}

        def told(key: str, of: Mapping[str, words.Figure] = figures) -> str:
            return of[key].value if key in of else "—"

        rows.append(
            (
                f"{report.mark} {name}",
                *_use(report),
                told("draft tokens accepted"),
                _cost(figures.get("cost of 1M output tokens")),
            )
        )
    columns = (
        *("model", "it pays", "with", "times as fast as none there"),
        *("off where it is slower", "turns at", "accepted", "$ / 1M"),
    )
    kind = several.kinds[0] if len({r.kind for _, r in several.parts}) == 1 else ""
    fewer = [f"{name}: {told}" for name, report in several.parts for told in _sets(report)]
    table = Table(columns, tuple(rows), words=True, notes=(*fewer, *_priced(several)))
    return Section("models", "What it earns", kind, (table,))


def _use(report: Report) -> tuple[str, str, str, str, str]:
    """Up to where, with which arm, what it earns there, from where it is slower, where it turns."""
    comparison = report.comparison
    best = words.best_arm(comparison) if comparison is not None else None
    if comparison is None or best is None:
        return ("not shown", "—", "—", "—", "—")
    known = advice.advice(comparison, best)
    earns = (
        f"{advice.spans(comparison, best, [load])} at {load_words(load)}" for load in known.faster
    )
    slower = "not seen"
    if known.slower:
        slower = f"{advice.off(known)}: {advice.lost(comparison, known)}"
    turns = known.crossover[1].words if known.crossover else None
    return (
        advice.where(known),
        best,
        ", ".join(earns),
        slower,
        f"~ {turns}" if turns else f"not up to {load_words(known.loads[-1])}",
    )


def _priced(several: Several) -> Iterator[str]:
    """The price that costs are made of, and where the cheapest token lies, draft or none."""
    prices = {report.economics.gpu_hour_usd for _, report in several.parts}
    for price in sorted(each for each in prices if each is not None):
        mark = KINDS["given"][0]
        yield f"{mark} GPU price as given: ${price:g} an hour each, nothing else counted"
    cheapest = [
        f"{name} {cheapest_words(report)[0]}"
        for name, report in several.parts
        if report.economics.why_none is None
    ]
    if cheapest:
        yield f"cheapest where nothing but the rate counts: {'; '.join(cheapest)}"


def _cost(figure: words.Figure | None) -> str:
    """With the load it is of: a dollar at batch 8 is not one at batch 128."""
    return f"{figure.value}: {figure.note}" if figure else "—"


def _batches(several: Several) -> Section:
    """Speed-up by batch, a row an arm and dataset of a model: those of most batches first."""
    found: dict[tuple[str, str, str], dict[int, Cell]] = {}
    for name, report in several.parts:
        here: dict[tuple[str, str, str], dict[int, Cell]] = {}
        for cell in report.comparison.cells if report.comparison else ():
            if cell.load[0] is not None:
                key = (f"{report.mark} {name}", cell.arm, cell.dataset)
                here.setdefault(key, {})[cell.load[0]] = cell
        arms = list(dict.fromkeys(arm for _, arm, _ in here))
        found |= sorted(here.items(), key=lambda each: (arms.index(each[0][1]), -len(each[1])))
    batches = sorted({batch for cells in found.values() for batch in cells})
    rows = [
        (*which, *(_cell(cells.get(batch)) for batch in batches)) for which, cells in found.items()
    ]
    crossovers = [
        f"{name}, {arm}, {dataset}: {_from(place)}"
        for name, report in several.parts
        for arm, dataset, place in (report.comparison.crossovers if report.comparison else ())
    ]
    table = Table(
        ("model", "arm", "dataset", *(f"batch {batch}" for batch in batches)),
        tuple(rows),
        keys=3,
        notes=(
            "× over 1 is faster than without; [ ] is the 95 % interval of one comparison taken "
            "alone; ● PASS, ✖ FAIL and ○ INCONCLUSIVE are held to few false ones over all of a "
            "model's comparisons, which asks for more",
            *_short_of(several),
        ),
    )
    kind = several.kinds[0] if len({r.kind for _, r in several.parts}) == 1 else ""
    blocks = (table, tuple(crossovers)) if crossovers else (table,)
    return Section("batches", "Speed-up by batch", kind, blocks)


def _short_of(several: Several) -> Iterator[str]:
    for name, report in several.parts:
        if not report.result.complete:
            yield f"{name}: the bench did not finish"
        order = report.result.provenance.order
        if order and "interleaved" not in order:
            yield f"{name}: arms were measured in {order}, not in turns"
        if report.comparison and (told := lent(report.comparison.cells)):
            yield f"{name}: {told}"


def _from(place: Crossover) -> str:
    if place.between is None:
        return place.words
    low, high = place.between
    return (
        f"slower than none from batch {place.words} on, interpolated between {low} and {high}: the "
        "interval is of how runs differ"
    )


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "—"
    return f"{MARKS[cell.verdict.word]} {times(cell.speedup)}"


def _planned(several: Several) -> Section:
    """What `specctl plan` says beside what was measured: what is held, and speed by batch."""
    alone = [line for line in several.estimates if not line.get("batch")]
    held = [line for line in alone if not _crosses(line)]
    turns = [line for line in alone if _crosses(line)]
    batches = sorted({line["batch"] for line in several.estimates if line.get("batch")})
    found = (
        _beside(("model", "arm"), held, list(dict.fromkeys(_heading(line) for line in held))),
        _beside(
            ("model", "arm", "what", "dataset"),
            [line for line in several.estimates if line.get("batch")],
            [f"batch {batch}" for batch in batches],
        ),
        _beside(("model", "arm", "dataset"), turns, list(dict.fromkeys(map(_heading, turns)))),
    )
    blocks: list[Block] = [table for table in found if table.rows]
    blocks += [several.fitted] if several.fitted else []
    return Section("planned", "What specctl plan says, beside it", "planned", tuple(blocks))


def _crosses(line: Mapping[str, Any]) -> bool:
    return str(line["what"]).startswith("crossover ")


def _beside(keys: tuple[str, ...], lines: Iterable[Mapping[str, Any]], columns: list[str]) -> Table:
    """A row a thing, a column a batch or a kind of memory; repeats are averaged."""
    grouped: dict[tuple[str, ...], dict[str, list[Mapping[str, Any]]]] = {}
    for line in lines:
        what, _, inside = str(line["what"]).partition(" (")
        told = {
            "model": str(line["shape"]),
            "arm": str(line["arm"]),
            "what": what,
            "dataset": inside.rstrip(")").partition(",")[0],
        }
        column = f"batch {line['batch']}" if line.get("batch") else _heading(line)
        row = tuple(told[key] for key in keys)
        grouped.setdefault(row, {}).setdefault(column, []).append(line)
    rows = [(*row, *(_off(cells.get(each)) for each in columns)) for row, cells in grouped.items()]
    return Table(
        (*keys, *columns),
        tuple(rows),
        keys=len(keys),
        notes=("estimated / measured, and how far the estimate is off",),
    )


def _heading(line: Mapping[str, Any]) -> str:
    unit, what = str(line["unit"]), str(line["what"]).partition(" (")[0]
    return f"{what}, {unit}" if unit not in what else what


def _off(lines: list[Mapping[str, Any]] | None) -> str:
    if lines is None:
        return "—"
    estimated, measured = (
        sum(float(each[side]) for each in lines) / len(lines) for side in ("estimated", "measured")
    )
    off = f"{fmt.signed(100 * (estimated / measured - 1))} %"
    return f"{KINDS['planned'][0]} {_short(estimated)} / {_short(measured)}, {off}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _what(several: Several) -> Section:
    """What was measured, of each, and where the rest is."""
    points = []
    for name, report in several.parts:
        gpu = (report.result.provenance.gpu or {}).get("name") or "GPU not told"
        badge = words.badge(report) or "measured on the model itself"
        points.append(f"{report.mark} {name}: {badge}. {gpu}; {', '.join(report.files)}.")
    return Section("what", "What was measured", "", (tuple(points),))


def names(given: Iterable[str], option: str = "--each") -> dict[str, list[Path]]:
    """`NAME=FILE`, a name as often as it has files.

    Raises:
        UsageError: one is not of that form.
    """
    found: dict[str, list[Path]] = {}
    for text in given:
        name, equals, file = text.partition("=")
        if not equals or not name or "/" in name or not file:
            raise UsageError(
                f"{option} {text!r} is not NAME=FILE", hint=f"write {option} 8b=8b.json"
            )
        found.setdefault(name, []).append(Path(file))
    return found


def read_estimates(path: Path) -> tuple[tuple[Mapping[str, Any], ...], str]:
    """The lines of a file of estimates, and what they were fitted to.

    Raises:
        UsageError: it cannot be read, or is something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--estimates: cannot read {path}: {error}") from error
    if not isinstance(document, Mapping) or document.get("schema") != ESTIMATES:
        raise UsageError(
            f"--estimates: {path} is no {ESTIMATES}", hint="benchmarks/lab/estimate.py --json"
        )
    lines = document.get("lines")
    wanted = {"shape", "arm", "what", "estimated", "measured", "unit"}
    if not isinstance(lines, list) or any(not wanted <= set(each) for each in lines):
        raise UsageError(f"--estimates: a line of {path} lacks one of {', '.join(sorted(wanted))}")
    return tuple(lines), str(document.get("fitted") or "")
