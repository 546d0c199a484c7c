"""`specctl replay`: look at a recording on the live screen."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from speccli import output
from speccli.options import FormatOption, SourceOptions, with_source


@with_source
def command(
    source: SourceOptions,
    file: Annotated[Path, typer.Argument(help="A recording.", metavar="FILE")],
    output_format: FormatOption = output.Format.TABLE,
    once: Annotated[
        bool, typer.Option("--once", help="Print what the whole recording amounts to.")
    ] = False,
    speed: Annotated[
        float, typer.Option(min=0.1, help="How many times faster than it happened.")
    ] = 1.0,
) -> None:
    """Look at a kept incident again.

    On the live screen, or with --once or -o json as one answer.
    """
    from speccli.commands.status import look
    from speccli.commands.top import screen

    replayed = dataclasses.replace(source, replay=file)
    if once or output_format is not output.Format.TABLE or not sys.stdout.isatty():
        raise typer.Exit(look(replayed, output_format))
    raise typer.Exit(screen(replayed, pace=speed))
