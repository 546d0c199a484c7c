"""`specctl baseline`: what acceptance is while all is well, to judge drift by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands._alert_options import KeyOptions, StateOption
from speccli.commands._grouped import with_group
from speccli.core.errors import ExitCode, SpecctlError
from speccli.options import FormatOption, SourceOptions, with_source

if TYPE_CHECKING:
    from rich.console import RenderableType

    from speccli.core.baseline.store import Store

_EPILOG = """Exit codes: 0 ok · 3 unknown (too little drafted, unreachable) · 64 usage · 70 a bug in
specctl · 130 interrupted."""

app = typer.Typer(
    help="Keep what a sound pool's acceptance is, to judge drift by.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)


@app.command("record", epilog=_EPILOG)
@with_source
@with_group("key", KeyOptions)
def record(
    source: SourceOptions,
    key: KeyOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long to watch; best a day.")
    ] = "30m",
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Watch a pool without speculation; add its speed to baseline NAME."
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Engines that differ; overwrite NAME.")
    ] = False,
    state: StateOption = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Watch a sound pool and keep its acceptance.

    The longer, the finer the drift it can tell: less than a day has not seen a day's swing. What
    no metric tells of the key (revisions, sampling) is given here. Ctrl-C ends it early with one
    last look (again: without), and what was seen by then is kept if it is enough (exit 0), else
    nothing (130).
    """
    import asyncio

    from speccli.core.baseline.record import Profile, look_seconds
    from speccli.core.baseline.watch import ensure_counted, watch
    from speccli.core.open import open_source
    from speccli.core.units import seconds

    lasting = seconds(for_, what="--for")
    store = _store(state)
    if plain:  # before the watch: it may take a day
        store.to_add_to(name)
    else:
        store.refuse_to_lose(name, force=force)
    store.ensure_writable(name)
    opened = open_source(source.settings(), replay=source.replay, default_window_s=60.0)
    profile = Profile(look_seconds(lasting, opened.thresholds.drift_every_s), key.key())
    watched = asyncio.run(watch(opened, profile, lasting_s=lasting, tell=_tell))
    early = f", stopped after {watched.seconds:.0f} s of {for_}" if watched.stopped else ""
    try:
        ensure_counted(profile, watched)
        if plain:
            kept = store.add_plain(name, profile.speed(), profile.key(force=force), force=force)
        else:
            from_where = str(source.replay or opened.poller.window.source)
            kept = profile.baseline(name, from_where, last=watched.last, force=force)
            store.put(kept, force=force)
    except SpecctlError as error:
        if not watched.stopped:
            raise
        diagnostics.error(f"nothing kept{early}: {error.message}", error.hint)
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from error
    _show(kept, output_format)
    diagnostics.say(f"baseline {name} kept in {store.folder}{early}")


@app.command("list", epilog=_EPILOG)
def list_(state: StateOption = None, output_format: FormatOption = output.Format.TABLE) -> None:
    """List baselines, public references last."""
    found, notes = _store(state).all()
    for note in notes:
        diagnostics.warn(note)

    def table() -> RenderableType:
        from speccli.tables.baseline import list_table

        return list_table(found)

    output.emit(lambda: [each.to_json() for each in found], table, output_format)
    if notes:
        raise typer.Exit(int(ExitCode.USAGE))


@app.command("show", epilog=_EPILOG)
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, or a file.")],
    state: StateOption = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Show one: its key, acceptance, by position and prompt length, scatter, speed."""
    _show(_store(state).get(name), output_format)


@app.command("import", epilog=_EPILOG)
@with_group("key", KeyOptions)
def import_(
    key: KeyOptions,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A baseline, a bench, or `vllm bench serve` --save-result."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="What to call it.", show_default="as the file"),
    ] = None,
    plain: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="FILE is a run without speculation: add its speed to NAME."
        ),
    ] = None,
    arm: Annotated[
        str | None,
        typer.Option(metavar="ARM", help="Of a bench.", show_default="the one that speculates"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite NAME; with --plain, engines that differ.")
    ] = False,
    state: StateOption = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Take a baseline over from a file."""
    from speccli.core.baseline import Key
    from speccli.core.baseline.imported import plain_speed, read_any

    store = _store(state)
    if plain is not None:
        _show(store.add_plain(plain, plain_speed(file), Key(), force=force), output_format)
        return
    found = read_any(file, name, key.key(), arm)
    store.put(found, force=force)
    _show(found, output_format)


def _tell(took: float, drafts: float | None) -> None:
    seen = "nothing counted yet" if drafts is None else f"{drafts:,.0f} drafts so far"
    diagnostics.progress(f"specctl: watching, {took:.0f} s, {seen}")


def _store(state: Path | None) -> Store:
    from speccli.core import config
    from speccli.core.baseline.store import Store
    from speccli.core.state import state_folder

    return Store(state_folder(state, config.here()[0]))


def _show(baseline: object, output_format: output.Format) -> None:
    from speccli.core.baseline import Baseline

    assert isinstance(baseline, Baseline)
    kept = baseline

    def table() -> RenderableType:
        from speccli.tables.baseline import show_table

        return show_table(kept)

    output.emit(kept.to_json, table, output_format)
