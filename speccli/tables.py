"""A snapshot as rich tables: what `status` and `top --once` print for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from speccli.core.findings.base import Finding
from speccli.core.stats.histogram import quantile
from speccli.core.stats.measures import Metrics
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot
from speccli.core.values import Latency, Number, Quantile
from speccli.core.views import format as fmt
from speccli.core.views.status import BATCH_P99_MIN_N
from speccli.core.views.text import GLYPHS, Span, clean

_STYLES = {"warning": "yellow", "critical": "red bold", "unknown": "dim", "info": "green"}
_STYLES |= {"ok": "green", "stale": "dim", "": "", "dim": "dim"}
_ENGINES = 40
"""Rows printed; `-o json` has every engine."""
_STATE = {"ok": "ok", "no-traffic": "unknown", "partial": "warning", "stale": "warning"}


def status_table(snapshot: Snapshot, findings: Sequence[Finding]) -> RenderableType:
    """The whole answer."""
    parts: list[RenderableType] = [_head(snapshot), *map(_finding, findings), Text()]
    readable = bool(snapshot.pooled_engines or any(e.increase for e in snapshot.engines))
    if readable:
        parts += [_fleet(snapshot.fleet, snapshot), Text()]
    if snapshot.by_batch:
        parts += [Text("p99 of a step by batch size", "dim"), _batches(snapshot), Text()]
    parts.append(_engines(snapshot.engines))
    reasons = _reasons(snapshot.fleet) if readable else []
    if reasons:
        parts += [Text(), *reasons]
    return Group(*parts)


def _head(snapshot: Snapshot) -> Text:
    count = snapshot.pooled_engines or len(snapshot.engines)
    versions = sorted({e.version for e in snapshot.engines if e.version})
    read = [e for e in snapshot.engines if e.increase is not None]
    methods = sorted({f"{e.method} K={e.k}" if e.k else e.method for e in read})
    window = "since each process started" if snapshot.subject.pool.since_start else ""
    if snapshot.covered_s and not window:
        window = f"over {fmt.span_words(round(snapshot.covered_s))}"
    words = [f"{count} engine{'s' * (count != 1)}", ", ".join(methods), window]
    if versions:
        words.insert(1, f"vLLM {', '.join(versions)}" if len(versions) < 4 else "many versions")
    text = Text(clean(" · ".join(word for word in words if word)), style="bold")
    if snapshot.simulated:
        text = Text("SIMULATED  ", style="black on yellow") + text
    return text


def _finding(finding: Finding) -> Text:
    style = _STYLES.get(finding.severity, "")
    text = Text(f"{GLYPHS.get(finding.severity, '○')} {finding.severity.upper():<8} ", style=style)
    text.append(f"{finding.code}  {clean(finding.subject)}\n", style="bold")
    for label, words in (("", finding.evidence), ("cause: ", finding.cause)):
        if words:
            text.append(f"    {label}{clean(words)}\n")
    text.append(f"    do: {clean(finding.action)}" if finding.action else "")
    return text


def _cell(span: Span) -> Text:
    return Text(span.text, style=_STYLES.get(span.style, ""))


def _number(value: Number, form: str, unit: str = "") -> Text:
    forms = {"ratio": fmt.ratio, "2": fmt.hundredths, "1": fmt.tenths, "n": fmt.count}
    forms |= {"ms": fmt.millis, "usd": fmt.usd, "brief": fmt.brief, "%": fmt.percent}
    span = fmt.number(value, forms[form])
    known = value.value is not None
    return _cell(Span(f"{span.text}{unit}" if known else span.text, span.style))


def _latency(value: Latency) -> Text:
    return Text(f"{fmt.interval(value.p50)} / {fmt.interval(value.p99)}")


def _fleet(metrics: Metrics, snapshot: Snapshot) -> Table:
    table = Table.grid(padding=(0, 3))
    for _ in range(4):
        table.add_column()
    positions = " ".join(fmt.number(n, fmt.position).text for n in metrics.acceptance_by_position)
    wait = _number(metrics.queue_wait_ms, "ms", " ms")
    wait.append(
        f"  (seen {_number(metrics.queue_wait_observed_ms, 'ms')}"
        f" · backlog {_number(metrics.queue_wait_backlog_ms, 'ms')})",
        style="dim",
    )
    cost = _number(metrics.cost_per_1m_output_usd, "usd", " USD")
    without = snapshot.pricing.without_speculation_usd
    if without:
        cost.append(f"  (without speculation {fmt.usd(without)})", style="dim")
    rows = (
        ("tokens/step", _number(metrics.tokens_per_step, "2"), "queue wait", wait),
        (
            "acceptance",
            _number(metrics.acceptance_rate, "ratio"),
            "TTFT p50/p99",
            _latency(metrics.ttft_s),
        ),
        (
            "accept. length",
            _number(metrics.acceptance_length, "2"),
            "TPOT p50/p99",
            _latency(metrics.tpot_s),
        ),
        ("by position", Text(positions or "—"), "step p50/p99", _latency(metrics.itl_s)),
        (
            "wasted",
            _number(metrics.wasted_draft_tokens_per_s, "brief", " tok/s"),
            "output",
            _number(metrics.output_tokens_per_s, "n", " tok/s"),
        ),
        ("batch size", _number(metrics.batch_size, "1"), "$/1M output", cost),
    )
    for name, value, other, second in rows:
        table.add_row(Text(name, "dim"), value, Text(other, "dim"), second)
    return table


def _batches(snapshot: Snapshot) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0))
    table.add_column("batch", style="dim")
    for row in snapshot.by_batch:
        table.add_column(row.batch.replace("-", "–"), justify="right")

    def p99(buckets: object) -> str:
        from speccli.core.stats.increase import Buckets

        if not isinstance(buckets, Buckets):
            return "—"
        value: Quantile = quantile(buckets, 0.99, min_n=BATCH_P99_MIN_N)
        return fmt.interval(value)

    table.add_row("p99", *(p99(row.itl) for row in snapshot.by_batch))
    table.add_row("n", *(fmt.brief(row.itl.n if row.itl else 0) for row in snapshot.by_batch))
    return table


def _engines(engines: Sequence[EngineSnapshot]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("engine", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("acc", "tok/step", "batch", "wait ms", "TPOT p99", "tok/s", "$/1M"):
        table.add_column(name, justify="right", no_wrap=True)
    for engine in engines[:_ENGINES]:
        severity, word = _STATE.get(engine.state, "critical"), str(engine.state)
        if word == "ok" and engine.low_since is not None:
            severity, word = "warning", "low acc"
        metrics = engine.metrics
        table.add_row(
            Text(f"{GLYPHS[severity]} {clean(engine.name)}", _STYLES[severity]),
            word,
            _number(metrics.acceptance_rate, "ratio"),
            _number(metrics.tokens_per_step, "2"),
            _number(metrics.batch_size, "1"),
            _number(metrics.queue_wait_ms, "ms"),
            fmt.interval(metrics.tpot_s.p99),
            _number(metrics.output_tokens_per_s, "n"),
            _number(metrics.cost_per_1m_output_usd, "usd"),
        )
        if engine.reason and engine.state not in {"ok"}:
            table.add_row(Padding(Text(clean(engine.reason), "dim"), (0, 0, 0, 2)))
    if len(engines) <= _ENGINES:
        return table
    more = Text(f"… and {len(engines) - _ENGINES} more (-o json has them all)", "dim")
    return Group(table, more)


def _reasons(metrics: Metrics) -> list[Text]:
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
