"""`specctl replay`: look at a recording on the live screen."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from speccli import output
from speccli.options import READS, FormatOption, SourceOptions, source_without


@source_without(*READS)
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

    Needs a terminal, for the live screen; with --once or -o json it prints one answer for all of
    the recording, and needs none.
    """
    from speccli.commands.status import look
    from speccli.commands.top import refuse_without_terminal, screen

    replayed = dataclasses.replace(source, replay=file)
    if once or output_format is not output.Format.TABLE:
        raise typer.Exit(look(replayed, output_format))
    refuse_without_terminal("replay", file)
    raise typer.Exit(screen(replayed, pace=speed))
