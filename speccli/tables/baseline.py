"""Baselines as `specctl baseline` prints them for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from rich.console import Group, RenderableType
from rich.text import Text

from speccli.core.baseline import Baseline, Key
from speccli.core.baseline.model import BatchSpeed
from speccli.core.stats.drift import Dispersion
from speccli.core.views.text import clean
from speccli.tables.whole import Whole

_NONE = "-"


def list_table(baselines: Sequence[Baseline]) -> RenderableType:
    """One a line."""
    table = Whole(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("NAME", "TARGET", "METHOD", "K"):
        table.add_column(column, overflow="fold")
    for column in ("RATE", "LENGTH", "DRAFTS"):
        table.add_column(column, justify="right")
    table.add_column("FROM", overflow="fold")
    for each in baselines:
        key = each.key
        table.add_row(
            clean(each.name),
            clean(key.target or _NONE),
            clean(key.method or _NONE),
            _NONE if key.k is None else str(key.k),
            f"{each.rate:.3f}",
            f"{each.length:.2f}",
            f"{each.drafts:,.0f}" if each.drafts else _NONE,
            _origin(each),
        )
    return table


def show_table(baseline: Baseline) -> RenderableType:
    """One, whole."""
    head = Text("SIMULATED  ", style="black on yellow") if baseline.simulated else Text()
    if baseline.stand_in:
        head.append(f"STAND-IN: {clean(baseline.stand_in)}  ", style="black on yellow")
    head.append(clean(baseline.name), style="bold")
    head.append(f"  {_origin(baseline)}", style="dim")
    table = Whole(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in _rows(baseline):
        table.add_row(name, Text(clean(value)))
    return Group(head, table)


def _origin(baseline: Baseline) -> str:
    if baseline.origin == "reference":
        return "public reference"
    return " ".join(part for part in (baseline.origin, (baseline.created or "")[:10]) if part)


def _rows(base: Baseline) -> Iterator[tuple[str, str]]:
    yield "source", base.source or _NONE
    for part in fields(Key):
        value = getattr(base.key, part.name)
        if value is not None:
            yield part.name.replace("_", " "), str(value)
    yield "acceptance rate", f"{base.rate:.4f}  accepted / draft tokens"
    yield "acceptance length", f"{base.length:.3f}  1 + accepted / drafts"
    if base.positions:
        yield "by position", " ".join(f"{p:.3f}" for p in base.positions)
    yield "drafts", f"{base.drafts:,.0f}" if base.drafts else "not told"
    if base.tolerance is not None:
        yield "tolerance", f"{100 * base.tolerance:g} % of the length, on the same prompts"
    if base.prompt_tokens is not None:
        yield "mean prompt", f"{base.prompt_tokens:,.0f} tokens"
    if base.output_tokens is not None:
        yield "mean output", f"{base.output_tokens:,.0f} tokens"
    for each in base.bins:
        told = f"{each.rate:.4f}, n={each.drafts:,.0f} drafts in {each.looks} looks"
        yield f"prompts {each.low:,.0f}-{each.high:,.0f}", told
    yield "scatter, fleet", _scatter(base.fleet)
    yield "scatter, engine", _scatter(base.engine)
    for row in base.latency:
        if row.itl_p99_s is not None:
            low, high = (1000 * bound for bound in row.itl_p99_s)
            yield f"batch {row.batch}", f"step p99 {low:g}-{high:g} ms, n={row.n:,}"
    yield from _speeds("speed", base.speed)
    yield from _speeds("speed, plain", base.plain)


def _scatter(scatter: Dispersion) -> str:
    how = (
        f"{scatter.looks} looks over {scatter.span_s / 3600:.1f} h" if scatter.looks else "assumed"
    )
    return f"clustering {scatter.clustering:.1f}, swing {100 * scatter.wander:.1f} points ({how})"


def _speeds(name: str, rows: Sequence[BatchSpeed]) -> Iterator[tuple[str, str]]:
    for row in rows:
        yield f"{name} at {row.batch:.0f}", f"{row.output_tokens_per_s:,.0f} output tokens/s"
