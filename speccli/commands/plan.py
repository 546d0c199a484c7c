"""`specctl plan RECIPE`: does it fit, what does it run as, what would go wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import output
from speccli.options import FormatOption, SetOption

if TYPE_CHECKING:
    from rich.console import RenderableType


def command(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A built-in recipe's name, or a file.")
    ],
    changes: SetOption = None,
    measured: Annotated[
        list[Path] | None,
        typer.Option(
            "--measured",
            metavar="FILE",
            help="A bench of it: what was measured beats the estimate; repeat for more.",
        ),
    ] = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Say what a recipe would do, before a GPU is asked for.

    Memory and KV room, CUDA graphs by batch, the exact engine line, the pair's pre-flight, an
    estimate of what the draft earns; with --measured what it did earn, and how far the estimate is
    off. Offline. Exits by the worst finding: 2 critical, 1 warning,
    3 where the target's shape is not known.
    """
    from speccli.core.plan import plan
    from speccli.core.recipes.load import load
    from speccli.core.views import plan as view

    bench = None
    if measured:
        from speccli.core.bench.merge import read_all

        bench = read_all(measured)
    made = plan(load(recipe, changes or ()), bench)

    def table() -> RenderableType:
        from speccli.tables.plan import plan_table

        return plan_table(made)

    output.emit(lambda: view.plan(made), table, output_format)
    if output_format is output.Format.TABLE:
        output.text(view.command_lines(made.line.command))
    raise typer.Exit(int(view.exit_code(made.verdicts)))
