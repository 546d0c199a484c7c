"""`specctl top`: the live screen."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.core.errors import UsageError
from speccli.options import FormatOption, SourceOptions, with_source

if TYPE_CHECKING:
    from speccli.core.config import Settings

DEFAULT_WINDOW_S = 60.0


@with_source
def command(
    source: SourceOptions,
    output_format: FormatOption = output.Format.TABLE,
    once: Annotated[
        bool, typer.Option("--once", help="Print once and leave, without the screen.")
    ] = False,
    ansi: Annotated[
        bool, typer.Option("--ansi", help="Only the terminal's own 16 colours.")
    ] = False,
) -> None:
    """Watch a pool live, on one screen.

    Is speculation on, is it right, what does it earn, what do users feel, where, what happened.

    Needs a terminal; with --once or -o json it prints what `status` prints, and needs none.
    """
    if once or output_format is not output.Format.TABLE:
        from speccli.commands.status import look

        raise typer.Exit(look(source, output_format))
    refuse_without_terminal("top", source.replay)
    raise typer.Exit(screen(source, ansi=ansi))


def refuse_without_terminal(command: str, replay: Path | None) -> None:
    """The screen is shown on standard output and typed at on standard input.

    Raises:
        UsageError: one of them is no terminal.
        RecordingError: the same, and the recording is none: no terminal would show it.
    """
    if replay is not None and not has_screen():
        from speccli.core.sources.recording import Recording

        Recording(replay)
    if _is_terminal() and not has_screen():
        raise UsageError(
            f"{command} needs a terminal that can place text; TERM says that this one cannot",
            hint="use `specctl status`",
        )
    if not _is_terminal():
        raise UsageError(
            f"{command} needs a terminal",
            hint="add --once, or use `specctl status`, where there is none",
        )


def has_screen() -> bool:
    """Whether there is a terminal on which a screen can be drawn."""
    return _is_terminal() and diagnostics.can_place_text()


def _is_terminal() -> bool:
    return sys.stdout.isatty() and sys.stdin.isatty()


def screen(source: SourceOptions, *, ansi: bool = False, pace: float = 1.0) -> int:
    """Open the screen on the source asked for; returns the exit code."""
    settings = source.settings()
    title = source.profile or settings.deployment or ""
    return open_screen(settings, replay=source.replay, title=title, ansi=ansi, pace=pace)


def open_screen(
    settings: Settings,
    *,
    replay: Path | None = None,
    title: str = "",
    ansi: bool = False,
    pace: float = 1.0,
    later: tuple[float, Callable[[], None], str] | None = None,
) -> int:
    """Open the screen; returns the exit code.

    `later`: after how many seconds what is done, and how the screen tells of it.
    """
    from speccli.core.open import open_source

    opened = open_source(settings, replay=replay, default_window_s=DEFAULT_WINDOW_S, pace=pace)
    # An exported COLUMNS or LINES would pin the screen to the size of some earlier terminal.
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    # Textual takes a third of a second to import: usage errors above must not wait for it.
    from speccli.core.findings import evaluate, so_far
    from speccli.core.views.status import status_text
    from tui.app import run_top
    from tui.outside import Later

    return run_top(
        opened.poller,
        judge=lambda snapshot: so_far(snapshot, opened.thresholds),
        as_json=lambda snapshot: status_text(snapshot, evaluate(snapshot, opened.thresholds)),
        title=title,
        ansi=ansi,
        later=Later(later[0], later[1], title, later[2]) if later else None,
    )
