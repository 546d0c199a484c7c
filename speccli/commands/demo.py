"""`specctl demo`: the main job on a fleet that needs nothing else."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.core.errors import ExitCode

if TYPE_CHECKING:
    from speccli.core.demo_vllm import RealEngine
    from speccli.core.findings.base import Finding
    from speccli.core.stats.snapshot import Event, Snapshot

_TITLE = "specctl demo"


class Engine(StrEnum):
    """What the demonstration runs on."""

    SIM = "sim"
    VLLM = "vllm"


def command(
    engine: Annotated[
        Engine,
        typer.Option(help="sim: a simulated fleet; vllm: a real 135M model on this machine's CPU."),
    ] = Engine.SIM,
    headless: Annotated[
        bool, typer.Option("--headless", help="Print instead of opening the screen.")
    ] = False,
) -> None:
    """See a draft go bad, and be found.

    With a terminal it opens the live screen, where the draft goes bad after 20 s (q leaves).
    Without one, or with --headless, it watches for about 15 seconds and prints the status, the
    drop and the finding it raises.
    """
    from speccli.commands.top import has_screen

    on_screen = not headless and has_screen()
    if engine is Engine.VLLM:
        from speccli.core.demo_vllm import real_engine

        with real_engine(diagnostics.say) as real:
            code = _show_real(real) if on_screen else _print_real(real)
        raise typer.Exit(code)
    from speccli.core.demo import ENGINES, SCENARIO
    from speccli.core.sim.process import simulated_fleet

    options = ("--scenario", "drop", "-k", "4") if on_screen else SCENARIO
    with simulated_fleet(ENGINES, options) as urls:
        raise typer.Exit(_screen(urls) if on_screen else _print_simulated(urls))


def _screen(urls: list[str]) -> int:
    from speccli.commands.top import open_screen
    from speccli.core.demo import settings_for

    code = open_screen(settings_for(urls), title=_TITLE)
    if code == ExitCode.OK:
        _next()
    return code


def _show_real(real: RealEngine) -> int:
    from speccli.commands.top import open_screen
    from speccli.core.demo import ON_SCREEN_S, settings_for
    from speccli.core.demo_vllm import FAULT_WORDS

    code = open_screen(
        settings_for(real.urls, real.floor),
        title=_TITLE,
        later=(ON_SCREEN_S, real.fault, FAULT_WORDS),
    )
    if code == ExitCode.OK:
        _next()
    return code


def _print_simulated(urls: list[str]) -> int:
    import asyncio

    from speccli.core.demo import DROP_AT_S, FLOOR, HOLD, LASTING_S, settings_for, watch
    from speccli.core.open import open_source

    output.text(
        f"SIMULATED fleet of {len(urls)} engines (vLLM's metric names, no model, no GPU; prices\n"
        f"are illustrative). In {DROP_AT_S:.0f} s one engine's draft goes bad. Alarm: acceptance\n"
        f"under {FLOOR} for {HOLD}; in production the hold is 1 h.\n"
    )
    opened = open_source(settings_for(urls), replay=None, default_window_s=5.0)
    watched = asyncio.run(watch(opened, before=_before, event=_event, found=_found))
    return _after(watched.after, watched.findings, LASTING_S)


def _print_real(real: RealEngine) -> int:
    import asyncio

    from speccli.core.demo import LASTING_S, settings_for, watch
    from speccli.core.open import open_source

    output.text(real.description)
    opened = open_source(settings_for(real.urls, real.floor), replay=None, default_window_s=5.0)
    lasting = 2 * LASTING_S
    watched = asyncio.run(
        watch(
            opened,
            before=_before,
            event=_event,
            found=_found,
            fault=real.fault,
            drop_at_s=lasting / 2,
            lasting_s=lasting,
        )
    )
    return _after(watched.after, watched.findings, lasting)


def _before(snapshot: Snapshot) -> None:
    from speccli.tables.status import status_table

    output.rich(status_table(snapshot, ()))
    output.text("")


def _event(event: Event) -> None:
    from speccli.core.views.format import clock_time

    output.text(f"{clock_time(event.at, None)}  {event.subject}  {event.text}")


def _found(finding: Finding) -> None:
    output.text(f"          FOUND {finding.severity.upper()} {finding.code}: {finding.evidence}")


def _after(snapshot: Snapshot, findings: tuple[Finding, ...], lasting_s: float) -> int:
    from speccli.tables.status import status_table

    output.text(f"\nafter {lasting_s:.0f} s:\n")
    output.rich(status_table(snapshot, findings))
    from speccli.core.demo import ABOUT_ACCEPTANCE

    if not any(finding.code in ABOUT_ACCEPTANCE for finding in findings):
        diagnostics.error("the drop was not found", "this is a fault of specctl: please report it")
        return int(ExitCode.BUG)
    output.text("")
    _next()
    return int(ExitCode.OK)


def _next() -> None:
    """What to type now, as it works in the reader's shell."""
    called, activate = _called()
    output.text(f"Next: {called} top --endpoint http://HOST:8000, or {called} --help")
    if activate is not None:
        output.text(f"      (after `. {activate}` just specctl, as the documentation writes it)")


def _called() -> tuple[str, str | None]:
    """How this command is called from here, and what puts it on the shell's path."""
    import shutil
    import sys
    from pathlib import Path

    if shutil.which("specctl"):
        return "specctl", None
    program = Path(sys.argv[0])
    if program.name != "specctl":
        return f"{sys.executable} -m speccli", None
    activate = program.with_name("activate")
    return str(program), str(activate) if activate.exists() else None
