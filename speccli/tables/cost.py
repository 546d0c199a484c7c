"""What a pool costs beside hosted APIs, as `specctl cost` prints it for people."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from speccli.core.values import Number
from speccli.core.views import cost as view
from speccli.core.views import format as fmt
from speccli.core.views.text import clean
from speccli.core.worth import Comparison, PoolCost, Worth
from speccli.tables.whole import Whole


def cost_table(worth: Worth) -> RenderableType:
    """The whole answer."""
    parts: list[RenderableType] = [_head(worth), Text(view.hardware_words(worth.pool))]
    parts.append(Text(view.traffic_words(worth.pool)))
    speculation = view.speculation_words(worth.pool)
    if speculation:
        parts.append(Text(speculation))
    unread = view.unread_words(worth)
    if unread:
        parts.append(Text(f"▲ {unread}", style="yellow"))
    parts += [Text(), _models(worth), Text()]
    notes = [*view.missing_words(worth), *view.price_notes(worth)]
    parts += [Text(note, style="dim") for note in notes]
    return Group(*parts)


def _head(worth: Worth) -> Text:
    pool, snapshot = worth.pool, worth.snapshot
    text = Text()
    if snapshot.simulated:
        text.append("SIMULATED", style="black on yellow")
        text.append("  ")
    output, total = pool.cost_per_1m_output_usd, pool.cost_per_1m_total_usd
    words = f"{_usd(output)} USD per 1M output tokens · {_usd(total)} USD per 1M tokens in and out"
    if snapshot.covered_s:
        words += f" · over {fmt.span_words(round(snapshot.covered_s))}"
    return text.append(words, style="bold")


def _models(worth: Worth) -> Table:
    table = Whole(box=None, padding=(0, 2, 0, 0), header_style="dim", collapse_padding=True)
    table.add_column("USD per\n1M tokens", overflow="fold", min_width=17)
    for name in ("in", "out", "our\nmix", "ours ÷\ntheirs"):
        table.add_column(name, justify="right", no_wrap=True)
    for column in _columns(worth.pool):
        table.add_column(column[0], justify="right", no_wrap=True)
    table.add_row("this pool", "—", "—", _usd(worth.pool.cost_per_1m_total_usd), "", style="bold")
    for each in worth.hosted:
        name = view.provider_model(each.price)
        table.add_row(
            f"{name} (same model)" if each.price.same_model else name,
            fmt.usd(each.tier.input_usd),
            fmt.usd(each.tier.output_usd),
            _usd(each.usd_per_1m_total),
            Text(view.ratio_words(each.ratio), style=_ratio_style(each.ratio)),
            *(cell(each) for _, cell in _columns(worth.pool)),
        )
    return table


def _columns(pool: PoolCost) -> list[tuple[str, Callable[[Comparison], str]]]:
    """Where both cost the same: by load, by share of full load, by price of a GPU."""
    columns: list[tuple[str, Callable[[Comparison], str]]] = []
    if pool.pricing.gpu_hour_usd is not None:
        columns.append(("even at\ntok/s", lambda c: _count(c.break_even_output_tokens_per_s)))
    if pool.capacity_tokens_per_s is not None:
        columns.append(("of full\nload", lambda c: _percent(c.break_even_utilisation)))
    columns.append(("even at\n$/GPU-h", lambda c: _usd(c.break_even_gpu_hour_usd)))
    return columns


def _ratio_style(ratio: Number) -> str:
    if ratio.value is None:
        return "dim"
    return "green" if ratio.value < 1 else "yellow"


def _usd(value: Number) -> str:
    return clean(fmt.number(value, fmt.usd).text)


def _count(value: Number) -> str:
    return fmt.number(value, fmt.count).text


def _percent(value: Number) -> str:
    return fmt.number(value, fmt.percent).text
