"""`specctl render RECIPE`: the manifests, for GitOps or for `kubectl apply -f -`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands._render_options import RenderFlags
from speccli.options import FormatOption, SetOption, with_options

if TYPE_CHECKING:
    from rich.console import RenderableType


@with_options(RenderFlags)
def command(
    flags: RenderFlags,
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A built-in recipe's name, or a file.")
    ],
    changes: SetOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="A folder for kustomize, a file an object."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --out: replace files that specctl did not write.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit by the worst note: 1 warning, 2 critical.")
    ] = False,
    output_format: FormatOption = output.Format.YAML,
) -> None:
    """Write the manifests of a recipe.

    YAML for kubectl by default, one List with -o json, what is made and what to know of it with
    -o table; with --out a folder for kustomize. The same bytes every time, no secret's value.
    """
    from speccli.core.manifests.folder import write
    from speccli.core.manifests.render import as_list, files, render, stream
    from speccli.core.recipes.load import load
    from speccli.core.views.render import exit_code, remarks

    made = render(load(recipe, changes or ()), flags.options())

    def table() -> RenderableType:
        from speccli.tables.render import render_table

        return render_table(made)

    if out is not None:
        output.text("\n".join(map(str, write(out, files(made), force=force))))
    elif output_format is output.Format.YAML:
        output.text(stream(made.objects).rstrip("\n"))
    else:
        output.emit(lambda: as_list(made.objects), table, output_format)
    for remark in remarks(made.verdicts, told=output_format is output.Format.TABLE and not out):
        diagnostics.warn(remark)
    raise typer.Exit(int(exit_code(made.verdicts, strict=strict)))
