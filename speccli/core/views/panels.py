"""The panels over the engine table: what it earns, what users feel, by batch, over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from speccli.core.stats import batch
from speccli.core.stats.histogram import quantile as quantile_of
from speccli.core.stats.measures import Metrics
from speccli.core.stats.snapshot import BatchRow, Snapshot, TrailPoint
from speccli.core.values import Latency, Number
from speccli.core.views import charts
from speccli.core.views import format as fmt
from speccli.core.views.status import BATCH_P99_MIN_N
from speccli.core.views.text import Line, Span, beside, columns, fit, line, rule, width_of

_LABEL = 13
_TREND = 0.005
"""A change of acceptance smaller than this is not shown."""

Points = Sequence[TrailPoint]


def _label(text: str) -> Span:
    return Span(text.ljust(_LABEL), "label")


def trail_span(window_s: float) -> float:
    """Seconds that charts look back: enough to see what the window's number came from."""
    return max(300.0, window_s)


def dimmed(lines: Sequence[Line]) -> list[Line]:
    """The same lines, all of it old."""
    return [tuple(Span(s.text, s.style and "dim" or "stale") for s in each) for each in lines]


def with_notes(head: Line, width: int, *notes: Sequence[Span]) -> Line:
    """The head, and each note in its first form that still fits; what does not fit is left out."""
    out = head
    for forms in notes:
        for form in forms:
            if form.text and width_of(out) + len(form.text) <= width:
                out = line(*out, form)
                break
    return out


def _notes(*forms: str) -> tuple[Span, ...]:
    return tuple(Span(form, "dim") for form in forms)


def speculation(snapshot: Snapshot, width: int) -> list[Line]:
    """Is it right, and what does it earn?"""
    fleet = snapshot.fleet
    note = "since start" if snapshot.subject.pool.since_start else ""
    rows = [rule("speculation", width, note), _acceptance(snapshot, width)]
    k = snapshot.subject.pool.positions
    length = line(_label("length (AL)"), *fmt.told(fleet.acceptance_length, fmt.hundredths))
    if fleet.acceptance_length.value is not None:
        most = f"  of at most {k + 1}" if k else ""
        length = with_notes(length, width, _notes(most), _notes("  tokens a draft"))
    rows.append(length)
    rows.append(_positions(fleet.acceptance_by_position, width))
    step = line(_label("tokens/step"), *fmt.told(fleet.tokens_per_step, fmt.hundredths))
    if fleet.tokens_per_step.value is not None and fleet.batch_size.value is not None:
        size = fmt.tenths(fleet.batch_size.value)
        step = with_notes(step, width, _notes(f"  at batch {size}"))
    rows.append(step)
    wasted = line(_label("wasted"), *fmt.told(fleet.wasted_draft_tokens_per_s, fmt.brief))
    if fleet.wasted_draft_tokens_per_s.value is not None:
        share = fleet.acceptance_rate.value
        tail = f"  {fmt.percent(1 - share)} of drafts" if share is not None else ""
        wasted = with_notes(
            wasted, width, _notes(" tok/s"), _notes(tail, tail.removesuffix(" of drafts"))
        )
    rows.append(wasted)
    return [fit(row, width) for row in rows]


def _acceptance(snapshot: Snapshot, width: int) -> Line:
    rate = snapshot.fleet.acceptance_rate
    head = line(_label("acceptance"), *fmt.told(rate, fmt.ratio))
    if rate.value is None:
        return head
    change = _trend(snapshot, rate)
    cells = width - _LABEL - 5 - 2 - 7
    if cells < 6:
        return head
    cells = min(cells, 60)
    span = trail_span(snapshot.window_s)
    pooled = charts.pooled_columns(snapshot.trail, snapshot.at, span, cells)
    line_ = charts.sparkline([p.acceptance for p in pooled], 1.0)
    return line(*head, "  ", Span(line_, "chart"), " ", change)


def _trend(snapshot: Snapshot, rate: Number) -> Span:
    """The change against the window before this one; nothing where there was none."""
    at, window = snapshot.at, snapshot.window_s
    if window <= 0 or not snapshot.trail or snapshot.trail[0].at > at - 2 * window:
        return Span("")
    before = charts.pool(snapshot.trail, at - 2 * window, at - window).acceptance
    if before is None or rate.value is None:
        return Span("")
    change = rate.value - before
    if abs(change) < _TREND:
        return Span("steady", "dim")
    return Span(f"{'▴' if change > 0 else '▾'} {abs(change):.2f}", "good" if change > 0 else "bad")


def _positions(numbers: Sequence[Number], width: int) -> Line:
    head = _label("by position")
    if not numbers:
        return line(head, fmt.UNKNOWN, Span("  no draft positions are exported", "dim"))
    known = [n for n in numbers if n.value is not None]
    if not known:
        return line(head, *fmt.told(numbers[0], fmt.position))
    room = width - _LABEL
    with_bars = len(numbers) * 6 <= room
    parts: list[Span] = []
    for n in numbers:
        if with_bars and n.value is not None:
            parts.append(Span(charts.sparkline([n.value], 1.0), "chart"))
        parts += [fmt.number(n, fmt.position), Span("  " if with_bars else " ")]
    return line(head, *parts)


def users(snapshot: Snapshot, width: int) -> list[Line]:
    """What do users feel, and what does it cost?"""
    fleet = snapshot.fleet
    note = "since start" if snapshot.subject.pool.since_start else ""
    rows = [
        rule("users feel", width, note),
        _wait(fleet, width),
        _latency("TTFT p50/p99", fleet.ttft_s),
        _latency("TPOT p50/p99", fleet.tpot_s),
        _output(fleet, width),
        _cost(snapshot, width),
    ]
    return [fit(row, width) for row in rows]


def _wait(fleet: Metrics, width: int) -> Line:
    wait = line(_label("queue wait"), *fmt.told(fleet.queue_wait_ms, fmt.millis, " ms"))
    if fleet.queue_wait_ms.value is None:
        return wait
    seen = fmt.number(fleet.queue_wait_observed_ms, fmt.millis).text
    backlog = fmt.number(fleet.queue_wait_backlog_ms, fmt.millis).text
    forms = (f"  observed {seen} · backlog {backlog}", f"  seen {seen} · backlog {backlog}")
    return with_notes(wait, width, _notes(*forms))


def _latency(name: str, value: Latency) -> Line:
    p50, p99 = value.p50, value.p99
    if p50.state == "unknown" and p99.state == "unknown":
        why = p50.reason or "not known"
        return line(_label(name), fmt.UNKNOWN, Span(f"  {why}", "dim"))
    return line(_label(name), fmt.quantile(p50), Span(" / ", "dim"), fmt.quantile(p99))


def _output(fleet: Metrics, width: int) -> Line:
    head = line(_label("output"), *fmt.told(fleet.output_tokens_per_s, fmt.count, " tok/s"))
    if fleet.output_tokens_per_s.value is None:
        return head
    run = fmt.number(fleet.running, fmt.count).text
    queue = fmt.number(fleet.waiting, fmt.count).text
    forms = (f"  {run} running · {queue} waiting", f"  {run} run · {queue} wait")
    return with_notes(head, width, _notes(*forms))


def _cost(snapshot: Snapshot, width: int) -> Line:
    cost = snapshot.fleet.cost_per_1m_output_usd
    head = line(_label("$/1M output"), *fmt.told(cost, fmt.usd))
    without = snapshot.pricing.without_speculation_usd
    if cost.value is None:
        return head
    if without is None or without <= 0:
        return with_notes(head, width, _notes("  without speculation: not measured"))
    change = 1 - cost.value / without
    worth = "good" if change >= 0 else "bad"
    words = f"saves {change * 100:.0f} %" if change >= 0 else f"costs {-change * 100:.0f} % more"
    sign = f"{'−' if change >= 0 else '+'}{abs(change) * 100:.0f} %"
    off = f"without {fmt.usd(without)}"
    long = width_of(head) + len(off) + len(words) + 6 <= width
    return with_notes(
        head,
        width,
        _notes(f"  {off}"),
        (Span(f"  {words}" if long else f"  {sign}", worth),),
    )


def by_batch(snapshot: Snapshot, width: int, rows: int) -> list[Line]:
    """p99 by batch size; `rows` 3 (one latency) to 5 (both, and how many observations)."""
    found = {row.batch: row for row in snapshot.by_batch}
    why = snapshot.unbinned
    if why is None and not found:
        why = "no interval in which the batch size was known yet"
    return batch_table(found, width, rows, why)


def batch_table(
    found: dict[str, BatchRow], width: int, rows: int, why: str | None = None
) -> list[Line]:
    """A column a range of batch sizes, in fixed places."""
    title = rule("p99 by batch size", width, "ms, one engine step · requests in it")
    if why is not None:
        blank = line(Span("batch".ljust(11), "label"), fmt.UNKNOWN, Span(f"  {why}", "dim"))
        return ([title, blank] + [()] * rows)[:rows]
    cell = min(12, (width - 11) // len(batch.LABELS))
    labels = [label.replace("-", "–") for label in batch.LABELS]
    lines = [title, _batch_row("batch", [Span(label, "dim") for label in labels], cell)]
    itl = [_p99(found.get(label), "itl") for label in batch.LABELS]
    ttft = [_p99(found.get(label), "ttft") for label in batch.LABELS]
    counts = [_seen(found.get(label)) for label in batch.LABELS]
    lines.append(_batch_row("step p99", itl, cell))
    lines.append(_batch_row("TTFT p99", ttft, cell))
    lines.append(_batch_row("steps seen", counts, cell))
    return [fit(each, width) for each in lines[:rows]]


def _batch_row(name: str, cells: Sequence[Span], width: int) -> Line:
    label = Span(name.ljust(11), "label")
    return line(label, *(Span(s.text.rjust(width), s.style) for s in cells))


def _p99(row: BatchRow | None, which: str) -> Span:
    buckets = None if row is None else getattr(row, which)
    return (
        Span("·", "dim")
        if buckets is None
        else fmt.quantile(quantile_of(buckets, 0.99, min_n=BATCH_P99_MIN_N), cell=True)
    )


def _seen(row: BatchRow | None) -> Span:
    return Span("·" if row is None or row.itl is None else fmt.brief(row.itl.n), "dim")


def trail_charts(snapshot: Snapshot, width: int, rows: int) -> list[Line]:
    """Acceptance, tokens per step, queue wait and output over time, side by side."""
    span = trail_span(snapshot.window_s)
    k = snapshot.subject.pool.positions
    return chart_row(snapshot.trail, snapshot.at, span, k, width, rows)


def chart_row(trail: Points, at: float, span: float, k: int, width: int, rows: int) -> list[Line]:
    """As many charts as there is room for."""
    wanted = max(1, min(4, (width + 2) // 46)) if width >= 90 else 2 if width >= 70 else 1
    widths = columns(width, wanted)
    pooled = charts.pooled_columns(trail, at, span, charts.chart_width(widths[0]))
    series: list[tuple[str, list[float | None], float | None, Callable[[float], str]]] = [
        ("acceptance", [p.acceptance for p in pooled], 1.0, "{:.1f}".format),
        ("tokens/step", [p.tokens_per_step for p in pooled], float(k + 1), "{:.0f}".format),
        ("queue wait ms", [p.backlog_ms for p in pooled], None, "{:,.0f}".format),
        ("output tok/s", [p.output_per_s for p in pooled], None, "{:,.0f}".format),
    ]
    blocks: list[list[Line]] = []
    for i, (title, values, top, form) in enumerate(series[:wanted]):
        known = [v for v in values if v is not None]
        ceiling = max(top or 0.0, charts.nice(max(known, default=0.0)) if top is None else top)
        ceiling = max(ceiling, 10.0) if title == "queue wait ms" else ceiling
        head = rule(title, widths[i], f"last {fmt.span_words(span)}")
        body = charts.chart(values, top=ceiling, rows=rows - 1, width=widths[i], form=form)
        blocks.append([head, *body])
    return beside(blocks, widths)
