"""What `specctl bench run` measured, as it prints it for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from speccli.core.bench.lengths import other_lengths
from speccli.core.bench.refused import refused
from speccli.core.bench.results import Result, Row, Spread, Statistic
from speccli.core.values import Number
from speccli.core.views.text import clean
from speccli.tables.whole import Whole


def run_table(result: Result) -> RenderableType:
    """A line a row, then what the reader should know."""
    parts: list[RenderableType] = [_head(result), Text(), _rows(result)]
    notes = _notes(result)
    if notes:
        parts += [Text(), *(Text(note, style="yellow") for note in notes)]
    return Group(*parts)


def _head(result: Result) -> Text:
    text = Text()
    if result.simulated:
        text.append("SIMULATED", style="black on yellow")
        text.append("  ")
    text.append(clean(result.name), style="bold")
    done = sum(row.state != "failed" for row in result.rows)
    text.append(f"  {done} of {len(result.rows)} rows measured · {result.provenance.order}")
    if result.stand_in:
        text.append(f"\nstand-in: {clean(result.stand_in)}")
    return text


def _rows(result: Result) -> Table:
    table = Whole(keys=3, box=None, padding=(0, 2, 0, 0), header_style="dim", collapse_padding=True)
    open_ = result.load.kind == "open"
    for name in ("dataset", "rate/s" if open_ else "batch", "arm"):
        table.add_column(name, overflow="fold")
    for name in ("n", "tok/s", "TPOT p50\nms", "TPOT p99\nms", "TTFT p50\nms", "TTFT p99\nms"):
        table.add_column(name, justify="right")
    for name in ("accept.", "tokens\n/step"):
        table.add_column(name, justify="right")
    table.add_column("state", overflow="fold")
    for row in result.rows:
        style = {"failed": "red", "contaminated": "yellow", "partial": "yellow"}.get(row.state, "")
        load = f"{row.rate:g}" if open_ else str(row.batch)
        table.add_row(
            clean(row.dataset), load, clean(row.arm), str(row.requests), *_numbers(row), style=style
        )
    return table


def _numbers(row: Row) -> list[str]:
    return [
        _number(row.output_tokens_per_s, 1),
        *(_ms(each) for each in _quantiles(row.tpot_s)),
        *(_ms(each) for each in _quantiles(row.ttft_s)),
        _number(row.acceptance.rate, 3),
        _number(row.acceptance.tokens_per_step, 2),
        row.state if not row.reason else f"{row.state}: {clean(row.reason)}",
    ]


def _quantiles(spread: Spread) -> tuple[Statistic, Statistic]:
    return spread.p50, spread.p99


def _ms(statistic: Statistic) -> str:
    return "—" if statistic.value is None else f"{1000 * statistic.value:.1f}"


def _number(number: Number, digits: int) -> str:
    return "—" if number.value is None else f"{number.value:.{digits}f}"


def _notes(result: Result) -> list[str]:
    notes = [f"{each.name}: {each.note}" for each in result.datasets if each.note]
    off = other_lengths(result)
    if off is not None:
        notes.append(off)
    notes += refused(result)
    client = result.provenance.client
    if client is not None and client.cpu_s_per_1k_tokens.value is not None:
        cost = 1000 * client.cpu_s_per_1k_tokens.value
        notes.append(f"the client itself used {cost:.1f} ms of CPU per 1,000 tokens")
        if client.saturated:
            notes.append(f"THE CLIENT WAS HELD UP: {client.reason}")
    if any(row.tpot_s.p99.value is None and row.requests for row in result.rows):
        notes.append("—: not known; a p99 needs 100 requests a row")
    return [clean(note) for note in notes]
