"""`specctl status`: what a pool is doing now, once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.core.errors import ExitCode, UsageError
from speccli.options import FormatOption, SourceOptions, with_source

if TYPE_CHECKING:
    from rich.console import RenderableType

    from speccli.core.oneshot import Answer

DEFAULT_WINDOW_S = 10.0


@with_source
def command(
    source: SourceOptions,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A deployment of specctl's: its record and rollout too, on a cluster or here.",
        ),
    ] = None,
    output_format: FormatOption = output.Format.TABLE,
    since_start: Annotated[
        bool,
        typer.Option(
            "--since-start", help="One scrape: the counters since each engine's process began."
        ),
    ] = False,
) -> None:
    """Say what a pool is doing, once, and what is wrong.

    Exits 0 when at least one engine could be read and 3 when none, whatever the findings
    (`alert check` turns findings into exit codes). Low acceptance is a finding once it has lasted
    for --hold: for a script that looks once, give a short one.
    """
    if name is not None:
        from speccli.commands._deployed import look_at

        raise typer.Exit(look_at(name, source, output_format, since_start=since_start))
    raise typer.Exit(look(source, output_format, since_start=since_start))


def look(source: SourceOptions, output_format: output.Format, *, since_start: bool = False) -> int:
    """Ask once and print; returns the exit code."""
    from speccli.core.views.status import status

    answer = answered(source, since_start=since_start)

    def table() -> RenderableType:
        from speccli.tables.status import status_table

        return status_table(answer.snapshot, answer.shown)

    output.emit(lambda: status(answer.snapshot, answer.findings), table, output_format)
    return told(answer, recorded=source.replay is not None)


def answered(source: SourceOptions, *, since_start: bool = False) -> Answer:
    """Ask once."""
    import asyncio

    from speccli.core.oneshot import ask
    from speccli.core.open import open_source

    settings = source.settings()
    if since_start:
        if source.replay or source.window or settings.prometheus:
            raise UsageError(
                "--since-start is one scrape of a live engine: no --replay, --window, --prometheus",
                hint="give --endpoint http://host:8000",
            )
        settings = dataclasses.replace(settings, window="0")
    opened = open_source(settings, replay=source.replay, default_window_s=DEFAULT_WINDOW_S)
    answer = asyncio.run(ask(opened, progress=diagnostics.watching))
    if answer.note:
        diagnostics.warn(answer.note)
    return answer


def told(answer: Answer, *, recorded: bool = False) -> int:
    """The exit code; that nothing could be read is said."""
    if answer.readable:
        return int(ExitCode.OK)
    from speccli.core.views.unread import unread

    diagnostics.error(*unread(answer.snapshot.engines, recorded=recorded))
    return int(ExitCode.UNKNOWN)
