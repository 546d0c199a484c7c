"""`specctl record`: keep an incident, to look at again or to mail."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speccli import diagnostics
from speccli.core.errors import ExitCode
from speccli.options import JUDGES, PRICES, SourceOptions, source_without


@source_without("method", *JUDGES, *PRICES)
def command(
    source: SourceOptions,
    file: Annotated[
        Path, typer.Argument(help="Where to write; .gz and .zst compress.", metavar="FILE")
    ],
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="How long; until Ctrl-C if not given."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Keep every metric, not only those specctl reads.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
) -> None:
    """Keep an incident in a file.

    JSON Lines, one scrape a line; labels that look like secrets are removed. Ctrl-C ends it; every
    scrape taken is on disk.
    """
    import asyncio

    from speccli.core.open import open_source
    from speccli.core.recorder import record, refuse_to_lose
    from speccli.core.units import seconds

    refuse_to_lose(file, force=force, replay=source.replay)
    lasting = seconds(for_, what="--for") if for_ else None
    opened = open_source(source.settings(), replay=source.replay, default_window_s=60.0)

    def tell(scrapes: int, failing: int) -> None:
        trouble = f", {failing} target(s) not answering" if failing else ""
        diagnostics.progress(f"specctl: recording to {file}: {scrapes} scrapes{trouble}")

    done = asyncio.run(record(opened, file, lasting_s=lasting, full=full, tell=tell))
    if done.scrapes:
        diagnostics.say(f"{done.scrapes} scrapes in {file}")
    if done.answered == 0:
        diagnostics.error("no target answered", "check the address, the port-forward, credentials")
        raise typer.Exit(int(ExitCode.UNKNOWN))
