"""One engine in full: what it is, what was found, its numbers and where each comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from speccli.core.stats.snapshot import EngineSnapshot, Snapshot, TrailPoint, batch_rows
from speccli.core.stats.track import Point
from speccli.core.values import Latency, Number
from speccli.core.views import charts, panels
from speccli.core.views import format as fmt
from speccli.core.views.journal import event_lines, merged
from speccli.core.views.state import (
    RANK,
    Finding,
    UiState,
    concerns,
    severity_of,
    without_scheme,
    worst_by_engine,
)
from speccli.core.views.text import Line, Span, fit, glyph, line, rule, width_of, wrap

_LABEL = 14

_NUMBERS = (
    ("acceptance", "acceptance_rate", fmt.ratio, "", ("accepted_tokens", "draft_tokens")),
    ("length (AL)", "acceptance_length", fmt.hundredths, "", ("accepted_tokens", "drafts")),
    ("tokens/step", "tokens_per_step", fmt.hundredths, "", ("generation_tokens", "itl")),
    ("wasted", "wasted_draft_tokens_per_s", fmt.count, " tok/s", ("draft_tokens",)),
    ("drafts", "drafts", fmt.count, "", ("drafts",)),
    ("draft tokens", "draft_tokens", fmt.count, "", ("draft_tokens",)),
    ("batch", "batch_size", fmt.tenths, "", ("itl", "ttft", "steps")),
    ("queue wait", "queue_wait_ms", fmt.millis, " ms", ()),
    ("  observed", "queue_wait_observed_ms", fmt.millis, " ms", ("queue",)),
    ("  backlog", "queue_wait_backlog_ms", fmt.millis, " ms", ("waiting", "ttft")),
    ("running", "running", fmt.count, "", ("running",)),
    ("waiting", "waiting", fmt.count, "", ("waiting",)),
    ("KV cache", "kv_cache_usage", fmt.percent, "", ("kv_cache_usage",)),
    ("output", "output_tokens_per_s", fmt.count, " tok/s", ("generation_tokens",)),
    ("input", "input_tokens_per_s", fmt.count, " tok/s", ("prompt_tokens",)),
    ("requests", "requests_per_s", fmt.tenths, " /s", ("finished",)),
    ("$/1M output", "cost_per_1m_output_usd", fmt.usd, "", ()),
    ("$/1M total", "cost_per_1m_total_usd", fmt.usd, "", ()),
)
_LATENCIES = (
    ("TTFT", "ttft_s", "ttft"),
    ("step (ITL)", "itl_s", "itl"),
    ("TPOT", "tpot_s", "tpot"),
    ("end to end", "e2e_s", "e2e"),
    ("queue", "queue_s", "queue"),
)


def build_detail(
    snapshot: Snapshot, name: str, ui: UiState, now: float, findings: Sequence[Finding] = ()
) -> tuple[Line, ...]:
    """Everything known of the engine called `name`, as rows of the screen's width."""
    engine = next((e for e in snapshot.engines if e.name == name), None)
    if engine is None:
        gone = Span(f"{name} is gone: it is no longer in the source", "warning")
        return (fit((gone,), ui.width),)
    rows = _head(engine, snapshot, findings, ui, now)
    rows += _findings(engine, findings, ui, now)
    if engine.increase is not None:
        rows += _positions(engine, ui.width)
        rows += _over_time(engine, snapshot, ui.width)
        rows += _numbers(engine, ui.width)
        found = {row.batch: row for row in batch_rows([engine])}
        why = None if found else "no interval in which the batch size was known yet"
        rows += panels.batch_table(found, ui.width, 5 if found else 2, why)
    rows += _events(engine, snapshot, ui)
    return tuple(fit(each, ui.width) for each in rows)


def _pair(label: str, text: str | Span) -> Line:
    return line(Span(label.ljust(_LABEL), "label"), text)


def _known(text: str | None, why: str) -> tuple[Span, Span]:
    if text:
        return Span(text), Span("")
    return fmt.UNKNOWN, Span(f"  {why}", "dim")


def _head(
    engine: EngineSnapshot, snapshot: Snapshot, findings: Sequence[Finding], ui: UiState, now: float
) -> list[Line]:
    severity, word = severity_of(engine, worst_by_engine(findings))
    told = f"  {engine.reason}" if engine.reason else ""
    started = fmt.UNKNOWN, Span("  the server does not tell its start time", "dim")
    if engine.started is not None and engine.started > 1e9:
        age = fmt.duration(max(0.0, snapshot.at - engine.started))
        started = Span(fmt.date_time(engine.started, ui.tz)), Span(f"  {age} ago", "dim")
    sample = fmt.UNKNOWN, Span("  never read", "dim")
    if engine.at is not None:
        age = fmt.duration((now if ui.live else snapshot.at) - engine.at)
        sample = Span(fmt.date_time(engine.at, ui.tz)), Span(f"  {age} ago", "dim")
    untold = "not told by its metrics"
    method = "" if engine.method == "unknown" else engine.method
    rows = [
        rule(engine.name, ui.width, engine.kind),
        line(_pair("state", glyph(severity))[0], glyph(severity), f" {word}{told}"),
        line(*_pair("target", engine.target)),
        line(_pair("model", "")[0], *_known(engine.model, untold)),
        line(_pair("version", "")[0], *_known(engine.version, untold)),
        line(_pair("method", "")[0], *_known(method, untold + "; --method says it")),
        line(_pair("draft", "")[0], *_known(engine.draft, untold)),
        line(_pair("K", "")[0], *_known(str(engine.k) if engine.k else None, untold)),
        line(_pair("started", "")[0], *started),
        line(_pair("last sample", "")[0], *sample),
        _pair("restarts", f"{engine.resets} seen"),
    ]
    if engine.discarded:
        text = f"{engine.discarded} dropped: speculation counters contradicted each other"
        rows.append(_pair("intervals", text))
    if engine.several_api_servers:
        rows.append(_pair("API servers", "several: each counts its own steps"))
    return rows


def _findings(
    engine: EngineSnapshot, findings: Sequence[Finding], ui: UiState, now: float
) -> list[Line]:
    own = [f for f in findings if concerns(f, engine)]
    return finding_lines(own, ui.width, now, "findings", "none for this engine")


def finding_lines(
    findings: Sequence[Finding], width: int, now: float, title: str, none: str
) -> list[Line]:
    """Findings with their evidence, cause and action, worst first."""
    rows = [rule(title, width)]
    if not findings:
        return [*rows, line(Span(none, "dim"))]
    for finding in sorted(findings, key=lambda f: RANK.get(f.severity, 3)):
        since = f"  since {fmt.duration(now - finding.since)}" if finding.since else ""
        who = without_scheme(finding.subject)
        head = line(glyph(finding.severity), " ", Span(finding.code, finding.severity))
        rows.append(line(*head, f"  {who}", Span(since, "dim")))
        told = (("evidence", finding.evidence), ("cause", finding.cause), ("do", finding.action))
        for label, text in told:
            if text:
                parts = wrap(text, max(10, width - 13), 6)
                rows.append(line(Span(f"  {label:<10}", "label"), parts[0]))
                rows += [line(" " * 12, part) for part in parts[1:]]
    return rows


def _positions(engine: EngineSnapshot, width: int) -> list[Line]:
    numbers = engine.metrics.acceptance_by_position
    rows = [rule("acceptance by position", width, "accepted at the position / drafts")]
    if not numbers:
        rate = engine.metrics.acceptance_rate
        why = rate.reason if rate.value is None else None
        why = why or "no draft positions are exported"
        return [*rows, line(fmt.UNKNOWN, Span(f"  {why}", "dim"))]
    cells = min(50, width - 16)
    for i, number in enumerate(numbers):
        label = Span(f"  {i:>2}  ", "label")
        if number.value is None:
            rows.append(line(label, *fmt.told(number, fmt.ratio)))
        else:
            bar = Span(charts.bar(number.value, cells), "chart")
            rows.append(line(label, fmt.number(number, fmt.ratio), "  ", bar))
    return rows


def _over_time(engine: EngineSnapshot, snapshot: Snapshot, width: int) -> list[Line]:
    trail = engine_trail(engine)
    if len(trail) < 2:
        return []
    span = panels.trail_span(snapshot.window_s)
    return panels.chart_row(trail, trail[-1].at, span, engine.k or 0, width, 8)


def engine_trail(engine: EngineSnapshot) -> list[TrailPoint]:
    """One engine's growth from point to point."""
    if engine.increase is None or len(engine.points) < 2:
        return []
    layout = engine.increase.layout
    places = [layout.index.get(name) for name in _TRAIL_SLOTS]
    for name in ("ttft", "itl"):
        at = layout.histograms.get(name)
        places.append(None if at is None else at.start + len(at.bounds) - 1)
    points = [p for p in engine.points if len(p.totals) == layout.size]
    return [_grown(a, b, places) for a, b in zip(points, points[1:], strict=False)]


_TRAIL_SLOTS = ("draft_tokens", "accepted_tokens", "drafts", "generation_tokens")


def _grown(old: Point, new: Point, places: Sequence[int | None]) -> TrailPoint:
    grown = [math.nan if i is None else new.totals[i] - old.totals[i] for i in places]
    drafted, accepted, drafts, generated, first, steps = grown
    return TrailPoint(
        at=new.at,
        seconds=new.at - old.at,
        draft_tokens=drafted,
        accepted_tokens=accepted,
        drafts=drafts,
        generation_tokens=generated,
        first_tokens=first,
        decode_steps=steps,
        waiting=math.nan if new.waiting is None else new.waiting,
        running=new.running or 0.0,
    )


def _numbers(engine: EngineSnapshot, width: int) -> list[Line]:
    metrics = engine.metrics
    covered = engine.increase.seconds if engine.increase else None
    since = engine.increase is not None and engine.increase.since_start
    note = "since the process started" if since else f"over {fmt.duration(covered or 0)}"
    rows = [rule("numbers, and the metrics they are read from", width, note)]
    for label, name, form, unit, fields in _NUMBERS:
        number: Number = getattr(metrics, name)
        head = line(Span(label.ljust(_LABEL), "label"), *fmt.told(number, form, unit))
        known = number.value is not None
        rows += _with_sources(head, number, engine, fields, width) if known else [head]
    rows.append(rule("latency", width, "the bucket each quantile lies in"))
    for label, name, field in _LATENCIES:
        rows += _latency(label, getattr(metrics, name), engine.sources.get(field, ""), width)
    return rows


def _with_sources(
    head: Line, number: Number, engine: EngineSnapshot, fields: Sequence[str], width: int
) -> list[Line]:
    """The number, how many observations stand behind it, and the metrics it was read from."""
    used = width_of(head)
    count = f"n={fmt.brief(number.n)}" if number.n is not None else ""
    left = f"{' ' * max(1, 27 - used)}{count:<8}"
    indent = used + len(left)
    told = [_family(engine.sources[f]) for f in fields if f in engine.sources]
    parts = wrap(" ".join(dict.fromkeys(told)), max(20, width - indent), 6)
    rows = [line(*head, Span(left, "dim"), Span(parts[0], "source"))]
    return rows + [line(" " * indent, Span(part, "source")) for part in parts[1:]]


def _family(name: str) -> str:
    """A histogram's family, whichever part of it was read last."""
    return name.removesuffix("_sum").removesuffix("_count")


def _latency(label: str, value: Latency, source: str, width: int) -> list[Line]:
    head = Span(label.ljust(_LABEL), "label")
    if value.p50.state == "unknown" and value.mean.value is None:
        return [line(head, fmt.UNKNOWN, Span(f"  {value.p50.reason or ''}", "dim"))]
    parts: list[Span] = [head]
    for name, quantile in (("p50", value.p50), ("p95", value.p95), ("p99", value.p99)):
        text = fmt.quantile(quantile)
        parts += [Span(f"{name} ", "dim"), Span(text.text.ljust(13), text.style)]
    if value.mean.value is not None:
        parts += [Span("mean ", "dim"), Span(fmt.seconds(value.mean.value).ljust(9))]
    told = Span(_family(source), "source")
    if width_of(tuple(parts)) + len(told.text) <= width:
        return [line(*parts, told)]
    return [line(*parts), line(" " * _LABEL, told)]


def _events(engine: EngineSnapshot, snapshot: Snapshot, ui: UiState) -> list[Line]:
    host = without_scheme(engine.target)
    own = [e for e in (*snapshot.events, *ui.log) if e.subject in (engine.name, host)]
    rows = [rule("what happened to it", ui.width)]
    if not own:
        return [*rows, line(Span("nothing yet", "dim"))]
    return rows + event_lines(merged(own, ()), ui.width, ui.tz, dates=True)
