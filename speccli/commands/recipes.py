"""`specctl recipes list|show`: the built-in recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from speccli import output
from speccli.options import FormatOption, SetOption

if TYPE_CHECKING:
    from rich.console import RenderableType

_EPILOG = """Exit codes: 0 ok · 64 usage · 70 a bug in specctl · 130 interrupted."""

app = typer.Typer(
    help="List and show the built-in recipes: targets x methods x GPUs.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("list", epilog=_EPILOG)
def list_(
    match: Annotated[
        str | None, typer.Argument(metavar="[WORD]", help="Only names that hold this.")
    ] = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """List the built-in recipes: targets x methods x GPUs."""
    from speccli.core.views.recipes import listed

    rows = listed(match)

    def table() -> RenderableType:
        from speccli.tables.recipes import recipes_table

        return recipes_table(rows)

    output.emit(lambda: rows, table, output_format)


@app.command("show", epilog=_EPILOG)
def show(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A built-in recipe's name, or a file.")
    ],
    changes: SetOption = None,
    output_format: FormatOption = output.Format.YAML,
) -> None:
    """Print a recipe whole: what it extends and --set changes folded in."""
    from speccli.core.recipes.load import load, plain

    whole = plain(load(recipe, changes or ()))

    def table() -> RenderableType:
        from speccli.tables.recipes import recipe_table

        return recipe_table(whole)

    output.emit(lambda: whole, table, output_format)
