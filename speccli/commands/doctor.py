"""`specctl doctor`: what is missing or wrong here, with the fix."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from speccli import output
from speccli.options import JUDGES, PRICES, FormatOption, SourceOptions, source_without

if TYPE_CHECKING:
    from rich.console import RenderableType


@source_without("window", "interval", *JUDGES, *PRICES)
def command(
    source: SourceOptions,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Say what is missing or wrong here, with the fix.

    Looks at this machine, the settings and whatever sources are given or configured, within three
    times --deadline. Exits 0 when all is well, 1 with warnings, 2 when something is wrong and 3
    when a source could not be asked.
    """
    import asyncio

    from speccli.core import config
    from speccli.core.doctor import Asked, exit_code, run
    from speccli.core.doctor.machine import Surroundings
    from speccli.core.errors import UsageError
    from speccli.core.sources.targets import parse_targets
    from speccli.core.views.doctor import doctor

    parse_targets(source.endpoint or [])  # what is mistyped is a usage error, not a finding
    around = Surroundings.here(source.profile)
    try:
        settings = config.load(
            asdict(source),
            profile=source.profile,
            environment=around.environment,
            directory=around.directory,
        )
        asked = Asked(settings, source.replay)
    except UsageError as error:
        asked = Asked(config.Settings(), source.replay, refused=error.message)
    checks = asyncio.run(run(asked, around))

    def table() -> RenderableType:
        from speccli.tables.doctor import doctor_table

        return doctor_table(checks)

    output.emit(lambda: doctor(checks, time.time()), table, output_format)
    raise typer.Exit(int(exit_code(checks)))
