"""A row an engine, sorted by trouble: only rows in view are formatted.

A sort key is the number that its column shows, measured alone; the full set of numbers of an engine
is made when its row is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from speccli.core.stats.measures import (
    Subject,
    acceptance_rate,
    batch_size,
    larger,
    queue_backlog_ms,
    queue_observed_ms,
    tokens_per_step,
)
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot
from speccli.core.values import Number
from speccli.core.views import format as fmt
from speccli.core.views.state import RANK, Finding, UiState, severity_of
from speccli.core.views.text import Line, Span, fit, glyph, line, middle, rule, width_of

_Cell = Callable[[EngineSnapshot], Span]
_Name = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table."""

    title: str
    width: int
    cell: _Cell
    priority: int
    """Columns of a low number are kept when room is short."""
    sort: str = ""
    """The sort key it shows; empty where it is not sorted by."""


def _metric(name: str, form: Callable[[float], str]) -> _Cell:
    return lambda engine: fmt.number(getattr(engine.metrics, name), form)


def _p99(name: str) -> _Cell:
    return lambda engine: fmt.quantile(getattr(engine.metrics, name).p99, cell=True)


def _text(value: str | None) -> Span:
    return Span(value) if value else fmt.UNKNOWN


def _method(engine: EngineSnapshot) -> Span:
    if engine.method == "unknown" and engine.k:
        return Span("drafts")
    return Span(engine.method) if engine.method != "unknown" else fmt.UNKNOWN


COLUMNS = (
    Column("acc", 6, _metric("acceptance_rate", fmt.ratio), 1, "acceptance"),
    Column("AL", 6, _metric("acceptance_length", fmt.hundredths), 6),
    Column("tok/step", 9, _metric("tokens_per_step", fmt.hundredths), 3, "tokens/step"),
    Column("batch", 7, _metric("batch_size", fmt.tenths), 5, "batch"),
    Column("wait ms", 9, _metric("queue_wait_ms", fmt.millis), 2, "wait"),
    Column("TTFT p99", 11, _p99("ttft_s"), 9),
    Column("TPOT p99", 10, _p99("tpot_s"), 4),
    Column("tok/s", 9, _metric("output_tokens_per_s", fmt.count), 3, "output"),
    Column("$/1M", 7, _metric("cost_per_1m_output_usd", fmt.usd), 7),
    Column("run", 6, _metric("running", fmt.count), 10),
    Column("queue", 7, _metric("waiting", fmt.count), 10),
    Column("KV", 6, _metric("kv_cache_usage", fmt.percent), 11),
    Column("K", 3, lambda e: Span(str(e.k)) if e.k else fmt.UNKNOWN, 12),
    Column("method", 12, _method, 13),
    Column("version", 9, lambda e: _text(e.version), 14),
    Column("restarts", 9, lambda e: Span(str(e.resets)), 15),
)
STATE_WIDTH = 12
SORTS = ("trouble", "name", "acceptance", "tokens/step", "batch", "wait", "output")
_NAME_LEAST = 14
_NAME_MOST = 40
_FULL = frozenset({"ok", "no-traffic", "partial", "stale"})
"""States in which an engine has numbers; the others show their reason instead."""


def order(
    snapshot: Snapshot, worst: Mapping[str, Finding], ui: UiState
) -> tuple[EngineSnapshot, ...]:
    """The engines that match the filter, sorted; those without the number sorted by come last."""
    words = ui.filter.lower().split()
    chosen = [e for e in snapshot.engines if _matches(e, words, worst)]
    key = _sort_key(ui.sort, worst)
    keyed = [(value, natural(e.name), e) for e in chosen if (value := key(e)) is not None]
    keyed.sort(key=lambda each: each[:2], reverse=ui.reverse)
    known = [engine for _, _, engine in keyed]
    there = {id(engine) for engine in known}
    rest = sorted((e for e in chosen if id(e) not in there), key=lambda e: natural(e.name))
    return (*known, *rest)


def _matches(engine: EngineSnapshot, words: Sequence[str], worst: Mapping[str, Finding]) -> bool:
    if not words:
        return True
    severity, word = severity_of(engine, worst)
    told = (engine.name, engine.model, engine.version, engine.method, engine.state, word, severity)
    text = " ".join(part for part in told if part).lower()
    return all(each in text for each in words)


def _sort_key(sort: str, worst: Mapping[str, Finding]) -> Callable[[EngineSnapshot], float | None]:
    """What engines are compared by; None where it is not known. Equal ones go by name."""
    if sort == "trouble":
        return lambda e: RANK[severity_of(e, worst)[0]]
    if sort == "name":
        return lambda e: 0.0
    worth = _WORTH[sort]
    return lambda e: worth(e.subject) if e.state in _FULL and e.increase is not None else None


@lru_cache(maxsize=8192)
def natural(name: str) -> _Name:
    """The name as people count: 10.0.0.9 before 10.0.0.10."""
    parts = re.split(r"(\d+)", name)
    return tuple((part, 0) if i % 2 == 0 else ("", int(part)) for i, part in enumerate(parts))


def _shown(
    measured: Callable[[Subject], Number], digits: int, *, largest_first: bool = False
) -> Callable[[Subject], float | None]:
    """A number rounded as it is shown, so that noise moves no row."""

    def worth(subject: Subject) -> float | None:
        value = measured(subject).value
        if value is None:
            return None
        return -round(value, digits) if largest_first else round(value, digits)

    return worth


def _wait(subject: Subject) -> float | None:
    value = larger(queue_observed_ms(subject), queue_backlog_ms(subject)).value
    return None if value is None else -round(value, 1 if value < 9.95 else 0)


def _output(subject: Subject) -> float | None:
    rate = subject.pool.rate("generation_tokens")
    return None if rate is None else -round(rate)


_WORTH: dict[str, Callable[[Subject], float | None]] = {
    "acceptance": _shown(acceptance_rate, 3),
    "tokens/step": _shown(tokens_per_step, 2),
    "batch": _shown(batch_size, 1, largest_first=True),
    "wait": _wait,
    "output": _output,
}
"""The troubled end comes first: low acceptance, long waits, large batches, much output."""


def fitting(width: int, longest: int) -> tuple[tuple[Column, ...], int]:
    """The columns there is room for, and the width of the name (`longest`: of any engine)."""
    name_width = min(longest, _NAME_MOST, max(_NAME_LEAST, width // 4, min(21, width - 21)))
    room = width - 2 - STATE_WIDTH - 1 - name_width
    kept: set[str] = set()
    for column in sorted(COLUMNS, key=lambda c: c.priority):
        if column.width > room:
            break
        kept.add(column.title)
        room -= column.width
    return tuple(c for c in COLUMNS if c.title in kept), name_width


def window_of(names: Sequence[str], ui: UiState, rows: int) -> tuple[int, int]:
    """Index of the first row shown and of the selected one; the selected one is always in view."""
    try:
        at = names.index(ui.selected) if ui.selected is not None else 0
    except ValueError:
        at = 0
    first = max(0, min(ui.first, len(names) - rows))
    if at < first:
        first = at
    elif rows > 0 and at >= first + rows:
        first = at - rows + 1
    return first, at


def table(
    ordered: Sequence[EngineSnapshot],
    snapshot: Snapshot,
    worst: Mapping[str, Finding],
    ui: UiState,
    rows: int,
) -> list[Line]:
    """A title, a head and exactly `rows` rows."""
    longest = max((len(e.name) for e in snapshot.engines), default=_NAME_LEAST)
    shown, name_width = fitting(ui.width, max(longest, 6))
    first, at = window_of([e.name for e in ordered], ui, rows)
    lines = [_title(ordered, snapshot, ui, first, rows), _head(shown, name_width, ui)]
    for i, engine in enumerate(ordered[first : first + rows], first):
        row = _row(engine, shown, name_width, worst, ui.width)
        if i == at and ui.selected is not None:
            row = tuple(Span(s.text, _picked(s.style)) for s in row)
        lines.append(row)
    if not ordered:
        lines.append(_none(snapshot, ui))
    return (lines + [()] * (rows + 2))[: rows + 2]


def _picked(style: str) -> str:
    return f"selected {style}".strip()


def _title(
    ordered: Sequence[EngineSnapshot], snapshot: Snapshot, ui: UiState, first: int, rows: int
) -> Line:
    total = len(snapshot.engines)
    arrow = "▴" if ui.reverse else "▾"
    name = "engines"
    if snapshot.pooled is not None:
        name = f"engines: {total} outliers of {snapshot.pooled_engines or '?'}"
    parts = [f"by {ui.sort} {arrow}"]
    if ui.filter:
        parts.append(f"{len(ordered)} of {total} match “{ui.filter}”")
    if len(ordered) > rows:
        parts.append(f"{first + 1}–{min(first + rows, len(ordered))} of {len(ordered)}")
    return rule(name, ui.width, " · ".join(parts))


def _head(shown: Sequence[Column], name_width: int, ui: UiState) -> Line:
    cells = [Span("  " + "engine".ljust(name_width) + " " + "state".ljust(STATE_WIDTH), "label")]
    for column in shown:
        sorted_by = column.sort and column.sort == ui.sort
        cells.append(Span(column.title.rjust(column.width), "head" if sorted_by else "label"))
    return fit(tuple(cells), ui.width)


def _row(
    engine: EngineSnapshot,
    shown: Sequence[Column],
    name_width: int,
    worst: Mapping[str, Finding],
    width: int,
) -> Line:
    severity, word = severity_of(engine, worst)
    name = middle(engine.name, name_width).ljust(name_width)
    head = line(
        glyph(severity),
        Span(f" {name} "),
        Span(word[: STATE_WIDTH - 1].ljust(STATE_WIDTH), "" if severity == "ok" else severity),
    )
    if engine.state not in _FULL:
        reason = engine.reason or "no reason given"
        return fit(line(*head, Span("  " + reason, "dim")), width)
    cells = [fmt.right(column.cell(engine), column.width) for column in shown]
    row = line(*head, *cells)
    left = width - width_of(row)
    if engine.state == "stale" and engine.at is not None and left >= 12:
        row = line(*row, Span(f"  {engine.reason or ''}", "stale"))
    return fit(row, width)


def _none(snapshot: Snapshot, ui: UiState) -> Line:
    if ui.filter and snapshot.engines:
        return line(Span(f"  nothing matches “{ui.filter}”: esc clears the filter", "dim"))
    if snapshot.pooled is not None:
        return line(Span("  no outliers", "dim"))
    return line(Span("  no engine yet", "dim"))
