"""`specctl cost`: what a million tokens costs here, and what others charge for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.core.errors import ExitCode
from speccli.options import JUDGES, FormatOption, SourceOptions, source_without

if TYPE_CHECKING:
    from rich.console import RenderableType

DEFAULT_WINDOW_S = 10.0


@source_without("method", *JUDGES)
def command(
    source: SourceOptions,
    output_format: FormatOption = output.Format.TABLE,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="A hosted model to compare with: claude-sonnet-5, openai/gpt-5, "
            "PROVIDER:MODEL; repeat for more.",
            show_default="the newest of Anthropic and OpenAI, and the pool's own model",
        ),
    ] = None,
    capacity: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            metavar="TOK/S",
            help="Output tokens/s of the whole pool at full load, for break-even utilisation.",
        ),
    ] = None,
) -> None:
    """Say what a million tokens costs, here and elsewhere.

    Takes --gpu-hour-usd; without it there is no cost, but the GPU price at which this pool would
    be even. Exits 0 when the cost is told and 3 when it cannot be.
    """
    import asyncio

    from speccli.core.oneshot import ask
    from speccli.core.open import open_source
    from speccli.core.prices import PriceBook
    from speccli.core.views.cost import cost
    from speccli.core.worth import pool_cost, worth

    settings = source.settings()
    book = PriceBook.bundled()
    named = [book.find(name) for name in dict.fromkeys(model or ())]
    opened = open_source(settings, replay=source.replay, default_window_s=DEFAULT_WINDOW_S)

    answer = asyncio.run(ask(opened, progress=diagnostics.watching))
    if answer.note:
        diagnostics.warn(answer.note)
    prices = named or book.usual(pool_cost(answer.snapshot).model)
    result = worth(answer.snapshot, prices, book.date, capacity)

    def table() -> RenderableType:
        from speccli.tables.cost import cost_table

        return cost_table(result)

    output.emit(lambda: cost(result), table, output_format)
    measured = result.pool.cost_per_1m_output_usd
    if measured.value is None:
        diagnostics.error(f"no cost: {result.why_none}", result.what_to_do)
        raise typer.Exit(int(ExitCode.UNKNOWN))
