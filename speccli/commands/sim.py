"""`specctl sim`: simulated engines with vLLM's real metric families, labelled SIMULATED."""

from __future__ import annotations

from typing import Annotated

import typer

from speccli import diagnostics, output
from speccli.core.errors import UsageError

Acceptance = Annotated[
    str | None,
    typer.Option(
        metavar="P[,P…]", help="Acceptance per position given the one before it: 0.75,0.7,0.6."
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1000,
        help="Requests per second and server (Poisson); 0 for a bench.",
        show_default="4",
    ),
]
OnePort = Annotated[
    bool,
    typer.Option("--one-port", help="All servers on one port, by path; /fleet/metrics has all."),
]
Lasting = Annotated[
    str | None,
    typer.Option("--for", metavar="TIME", help="How long; until Ctrl-C if not given."),
]
Speed = Annotated[
    float, typer.Option(min=0.01, max=1000, help="How many times faster the scenario runs.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="First port; 0: any free ones.")]


def command(
    engines: Annotated[int, typer.Option(min=1, max=5000, help="How many servers.")] = 4,
    method: Annotated[
        str, typer.Option(help="eagle3, p-eagle, ngram, draft_model, mtp or none.")
    ] = "eagle3",
    k: Annotated[int, typer.Option("-k", min=1, max=16, help="Draft tokens per step.")] = 4,
    acceptance: Acceptance = None,
    version: Annotated[str, typer.Option(help="The vLLM version to look like.")] = "0.32.0",
    scenario: Annotated[
        str, typer.Option(help="What befalls them; `list` prints the names.")
    ] = "steady",
    speed: Speed = 1.0,
    rate: Rate = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Port = 9100,
    one_port: OnePort = False,
    seed: Annotated[int, typer.Option(help="Makes a run the same again.")] = 0,
    for_: Lasting = None,
) -> None:
    """Run simulated engines, labelled SIMULATED.

    Real metric names, real laws, no model, no GPU. Prints one URL a line on stdout. Every page,
    model name and answer says SIMULATED.
    """
    import asyncio

    from speccli.core.sim.run import SimRequest, serve
    from speccli.core.sim.scenario import Scenario
    from speccli.core.units import seconds

    if scenario == "list":
        for name in Scenario.names():
            output.text(f"{name:<14} {Scenario.named(name).description}")
        return
    request = SimRequest(
        engines=engines,
        method=method,
        k=k,
        acceptance=_chances(acceptance),
        version=version,
        scenario=scenario,
        speed=speed,
        rate=rate,
        host=host,
        port=port,
        one_port=one_port,
        seed=seed,
        lasting_s=seconds(for_, what="--for") if for_ else None,
    )

    def ready(urls: list[str], fleet_url: str | None) -> None:
        for url in urls:
            output.text(url)
        diagnostics.say(f"SIMULATED: {len(urls)} server(s) of vLLM {version}, scenario {scenario}")
        if fleet_url:
            diagnostics.say(f"one page for all of them: {fleet_url}")

    asyncio.run(serve(request, ready))


def _chances(text: str | None) -> list[float] | None:
    try:
        return [float(part) for part in text.split(",")] if text else None
    except ValueError as error:
        raise UsageError(f"--acceptance {text!r}: {error}", hint="0.75,0.7,0.6") from error
