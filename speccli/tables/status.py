"""A snapshot as text for people: what `status` and `top --once` print, at any width.

A number is shown whole or not at all: where there is no room a column goes, never a digit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from speccli.core.findings._text import plural
from speccli.core.stats.histogram import quantile
from speccli.core.stats.measures import Metrics
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot
from speccli.core.values import Latency, Number, Quantile
from speccli.core.views import format as fmt
from speccli.core.views.state import (
    RANK,
    Finding,
    finding_of,
    kind_name,
    severity_of,
    worst_by_engine,
)
from speccli.core.views.status import BATCH_P99_MIN_N
from speccli.core.views.text import GLYPHS, Span, clean, middle, short

_STYLES = {"warning": "yellow", "critical": "red bold", "unknown": "dim", "info": "green"}
_STYLES |= {"ok": "green", "stale": "dim", "": "", "dim": "dim"}
_ENGINES = 40
"""Rows printed, the worst first where there are more; `-o json` has every engine."""
_METHODS = {"unknown": "method not known", "none": "no speculation"}
_INDENT = " " * 4
_NAME = 16
"""Cells of an engine's name before a column gives way to it."""


def status_table(snapshot: Snapshot, findings: Sequence[Finding]) -> RenderableType:
    """The whole answer."""
    parts: list[RenderableType] = [_head(snapshot)]
    for each in findings:
        parts += _finding(each)
    readable = bool(snapshot.pooled_engines or snapshot.fresh)
    if readable:
        parts += [Text(), _fleet(snapshot.fleet, snapshot)]
    if snapshot.by_batch:
        parts += [Text(), _batches(snapshot)]
    if snapshot.engines:
        parts += [Text(), _Engines(snapshot.engines, worst_by_engine(findings))]
    reasons = _reasons(snapshot.fleet) if readable else []
    return Group(*parts, *([Text(), *reasons] if reasons else []))


def _head(snapshot: Snapshot) -> Text:
    text = Text("SIMULATED  ", style="black on yellow") if snapshot.simulated else Text()
    text.append(clean(" · ".join(_who(snapshot))), style="bold")
    when = "since each process started" if snapshot.subject.pool.since_start else ""
    if snapshot.covered_s and not when:
        when = f"over {fmt.span_words(round(snapshot.covered_s))}"
    if snapshot.at > 0:
        when += f"{', to' if when else 'at'} {fmt.date_time(snapshot.at, UTC)} UTC"
    if when:
        text.append(f"\n{when}", style="dim")
    return text


def _who(snapshot: Snapshot) -> list[str]:
    """How many engines and how they are, model, version, method."""
    engines = snapshot.engines
    count = snapshot.pooled_engines or len(engines)
    thing = "engine" if any(e.engine != "?" for e in engines) or not engines else "target"
    states = Counter(e.state.replace("-", " ") for e in engines)
    words = [plural(count, thing)]
    if set(states) - {"ok"}:
        words[0] += f" ({', '.join(f'{n} {state}' for state, n in states.most_common())})"
    models = sorted({e.model for e in engines if e.model})
    words.append(", ".join(short(m, 40) for m in models) if len(models) < 3 else "several models")
    for kind in sorted({e.kind for e in engines}):
        versions = sorted({e.version for e in engines if e.version and e.kind == kind})
        if versions:
            told = ", ".join(versions) if len(versions) < 4 else f"in {len(versions)} versions"
            words.append(f"{kind_name(kind)} {told}")
    read = [e for e in engines if e.increase is not None]
    named = {_METHODS.get(e.method, e.method): e.k for e in read}
    several = {e.k for e in read if e.k}
    methods = [
        f"{method} K={k}" if k and len(several) == 1 else method for method, k in named.items()
    ]
    return [word for word in (*words, ", ".join(sorted(methods))) if word]


def _finding(finding: Finding) -> Iterator[RenderableType]:
    style = _STYLES.get(finding.severity, "")
    head = Text(f"{GLYPHS.get(finding.severity, '○')} {finding.severity.upper()} ", style=style)
    head.append(f"{finding.code}", style="bold")
    head.append(f"  {clean(finding.subject)}")
    yield head
    for label, words in (
        ("", finding.evidence),
        ("cause: ", finding.cause),
        ("do: ", finding.action),
    ):
        if words:
            yield _Indented(f"{label}{words}")


def _text(span: Span) -> Text:
    return Text(span.text, style=_STYLES.get(span.style, ""))


def _number(value: Number, form: Callable[[float], str], unit: str = "") -> Text:
    span = fmt.number(value, form)
    return _text(Span(f"{span.text}{unit if value.value is not None else ''}", span.style))


def _latency(value: Latency) -> Text:
    return Text(f"{fmt.interval(value.p50)} / {fmt.interval(value.p99)}")


class _Indented:
    """Text with every line set in, and no blanks at its end."""

    def __init__(self, text: str, style: str = "") -> None:
        """`text`: one paragraph from anywhere."""
        self._text = Text(clean(text), style)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for line in self._text.wrap(console, max(10, options.max_width - len(_INDENT))):
            line.rstrip()
            yield Text(_INDENT) + line


class _Pairs:
    """Names and values, two pairs a line where there is room."""

    def __init__(self, rows: Sequence[tuple[str, Text, str, Text]]) -> None:
        """`rows`: a pair for the left half and one for the right."""
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        sizes = [max(len(row[i]) for row in self._rows) + 2 for i in range(4)]
        if sum(sizes) - 2 <= options.max_width:
            for name, value, other, second in self._rows:
                left = Text(name.ljust(sizes[0]), "dim") + value
                left.pad_right(sizes[0] + sizes[1] - len(left))
                yield left + Text(other.ljust(sizes[2]), "dim") + second
            return
        for at in (0, 2):
            for row in self._rows:
                yield Text(str(row[at]).ljust(max(sizes[0], sizes[2])), "dim") + row[at + 1]


def _fleet(metrics: Metrics, snapshot: Snapshot) -> _Pairs:
    positions = " ".join(fmt.number(n, fmt.position).text for n in metrics.acceptance_by_position)
    wait = _number(metrics.queue_wait_ms, fmt.millis, " ms")
    parts = (metrics.queue_wait_observed_ms, metrics.queue_wait_backlog_ms)
    if wait.plain != fmt.UNKNOWN.text:
        seen, backlog = (fmt.number(part, fmt.millis).text for part in parts)
        wait.append(f"  (observed {seen} · backlog {backlog})", style="dim")
    cost = _number(metrics.cost_per_1m_output_usd, fmt.usd, " USD")
    without = snapshot.pricing.without_speculation_usd
    if without:
        cost.append(f"  (without speculation {fmt.usd(without)})", style="dim")
    left = (
        ("tokens/step", _number(metrics.tokens_per_step, fmt.hundredths)),
        ("acceptance", _number(metrics.acceptance_rate, fmt.ratio)),
        ("accept. length", _number(metrics.acceptance_length, fmt.hundredths)),
        ("by position", Text(positions or fmt.UNKNOWN.text)),
        ("wasted", _number(metrics.wasted_draft_tokens_per_s, fmt.brief, " tok/s")),
        ("batch size", _number(metrics.batch_size, fmt.tenths)),
    )
    right = (
        ("queue wait", wait),
        ("TTFT p50/p99", _latency(metrics.ttft_s)),
        ("TPOT p50/p99", _latency(metrics.tpot_s)),
        ("step p50/p99", _latency(metrics.itl_s)),
        ("output", _number(metrics.output_tokens_per_s, fmt.count, " tok/s")),
        ("$/1M output", cost),
    )
    return _Pairs([(*one, *two) for one, two in zip(left, right, strict=True)])


def _batches(snapshot: Snapshot) -> Text:
    rows = [("batch size", "step p99", "n")]
    for row in snapshot.by_batch:
        if row.itl is not None:
            p99 = fmt.interval(quantile(row.itl, 0.99, min_n=BATCH_P99_MIN_N))
            rows.append((row.batch.replace("-", "–"), p99, fmt.brief(row.itl.n)))
    sizes = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ["  ".join(map(str.rjust, row, sizes)) for row in rows]
    return Text(lines[0], "dim").append("\n" + "\n".join(lines[1:]), "not dim")


@dataclass(frozen=True)
class _Column:
    """One number of every engine; the one worth least goes where there is no room for all."""

    title: str
    worth: int
    cell: Callable[[Metrics], Span]


_COLUMNS = (
    _Column("acc", 9, lambda m: fmt.number(m.acceptance_rate, fmt.ratio)),
    _Column("tok/step", 8, lambda m: fmt.number(m.tokens_per_step, fmt.hundredths)),
    _Column("batch", 3, lambda m: fmt.number(m.batch_size, fmt.tenths)),
    _Column("wait ms", 7, lambda m: fmt.number(m.queue_wait_ms, fmt.millis)),
    _Column("TPOT p99", 6, lambda m: fmt.quantile(m.tpot_s.p99)),
    _Column("tok/s", 5, lambda m: fmt.number(m.output_tokens_per_s, fmt.count)),
    _Column("$/1M", 4, lambda m: fmt.number(m.cost_per_1m_output_usd, fmt.usd)),
)


@dataclass(frozen=True)
class _Cells:
    """A column with the numbers of every row."""

    column: _Column
    of: Sequence[Span]
    width: int


class _Engines:
    """A row per engine, and under it why it is not well."""

    def __init__(self, engines: Sequence[EngineSnapshot], worst: Mapping[str, Finding]) -> None:
        """`engines`: in the order of the snapshot; `worst`: each one's gravest finding."""
        self._more = max(0, len(engines) - _ENGINES)
        if self._more:
            engines = sorted(engines, key=lambda e: RANK[severity_of(e, worst)[0]])[:_ENGINES]
        self._engines, self._worst = engines, worst
        self._names = [clean(e.name.removesuffix("/?")) for e in engines]
        self._states = [severity_of(e, worst) for e in engines]
        self._word = max(len("state"), *(len(word) for _, word in self._states))
        self._columns: list[_Cells] = []
        for column in _COLUMNS:
            cells = [column.cell(e.metrics) for e in engines]
            if column.title != "$/1M" or any(cell != fmt.UNKNOWN for cell in cells):
                width = max(len(column.title), *(len(cell.text) for cell in cells))
                self._columns.append(_Cells(column, cells, width))

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        columns, names = self._fitted(options.max_width)
        yield self._line(Span("  "), "engine".ljust(len(names[0])), "state", columns, None)
        for i, engine in enumerate(self._engines):
            severity, word = self._states[i]
            mark = Span(f"{GLYPHS[severity]} ", _STYLES[severity])
            yield self._line(mark, names[i], word, columns, i)
            if note := _note(engine, finding_of(engine, self._worst)):
                yield _Indented(note, "dim")
        if self._more:
            yield Text(f"… and {self._more} more engines (-o json has them all)", "dim")

    def _fitted(self, width: int) -> tuple[list[_Cells], list[str]]:
        """The columns there is room for, and names short enough and still each its own."""
        room = width - 2 - self._word - 2
        whole = _without_common_domain(self._names) if self._wide(room) else self._names
        columns = list(self._columns)
        while True:
            left = max(4, room - sum(cells.width + 2 for cells in columns))
            size = min(max(map(len, whole)), left)
            names = [middle(name, size).ljust(size) for name in whole]
            apart = len(set(names)) == len(set(whole))
            if len(columns) <= 1 or (apart and size >= min(_NAME, max(map(len, whole)))):
                return columns, names
            columns.remove(min(columns, key=lambda cells: cells.column.worth))

    def _wide(self, room: int) -> bool:
        return max(map(len, self._names)) > room - sum(c.width + 2 for c in self._columns)

    def _line(
        self, mark: Span, name: str, word: str, columns: Sequence[_Cells], row: int | None
    ) -> Text:
        style = "dim" if row is None else ""
        text = Text(style=style, no_wrap=True, overflow="ellipsis")
        text.append(f"{mark.text}{name}", mark.style).append(f"  {word.ljust(self._word)}")
        for cells in columns:
            cell = Span(cells.column.title) if row is None else cells.of[row]
            text.append(f"  {cell.text.rjust(cells.width)}", _STYLES.get(cell.style, ""))
        text.rstrip()
        return text


def _without_common_domain(names: Sequence[str]) -> list[str]:
    """`pod-0.vllm.prod:8000/0`, `pod-1.vllm.prod:8000/0` as `pod-0…:8000/0`, `pod-1…:8000/0`."""
    hosts = [name.partition(":")[0].split(".") for name in names]
    if len(names) < 2 or any(len(host) < 2 or host[0].isdigit() for host in hosts):
        return list(names)
    common = 0
    while all(len(host) > common + 1 for host in hosts) and (
        len({host[-1 - common] for host in hosts}) == 1
    ):
        common += 1
    if not common:
        return list(names)
    tails = [name[len(name.partition(":")[0]) :] for name in names]
    return [f"{'.'.join(host[:-common])}…{tail}" for host, tail in zip(hosts, tails, strict=True)]


def _note(engine: EngineSnapshot, worst: Finding | None) -> str:
    """Why it is not well, unless its finding above says so already."""
    notes = []
    said = worst is not None and worst.evidence.startswith(engine.reason or "")
    if engine.reason and not said and engine.state not in {"ok", "no-traffic"}:
        notes.append(engine.reason)
    if engine.resets:
        notes.append(f"restarted {plural(engine.resets, 'time')} since it is watched")
    return "; ".join(notes)


def _reasons(metrics: Metrics) -> list[RenderableType]:
    """Why a number of the fleet is a dash."""
    shown: tuple[tuple[str, Number | Quantile], ...] = (
        ("acceptance", metrics.acceptance_rate),
        ("tokens/step", metrics.tokens_per_step),
        ("batch size", metrics.batch_size),
        ("queue wait", metrics.queue_wait_ms),
        ("output", metrics.output_tokens_per_s),
        ("$/1M output", metrics.cost_per_1m_output_usd),
        *((f"position {i}", n) for i, n in enumerate(metrics.acceptance_by_position)),
        ("TTFT p99", metrics.ttft_s.p99),
        ("TPOT p99", metrics.tpot_s.p99),
    )
    by_reason: dict[str, list[str]] = {}
    for name, value in shown:
        if value.state == "unknown":
            by_reason.setdefault(value.reason or "unknown", []).append(name)
    return [
        Text(clean(f"— {', '.join(names)}: {reason}"), style="dim")
        for reason, names in by_reason.items()
    ]
