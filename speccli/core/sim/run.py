"""Serving a simulated fleet until told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from speccli.core.errors import UsageError
from speccli.core.sim.config import Method, Traffic, nearest
from speccli.core.sim.fleet import Fleet, build_fleet
from speccli.core.sim.scenario import Scenario
from speccli.core.sim.server import SimServer

_WARMUP_S = 30.0
"""Simulated seconds served before the first scrape: queues and batches are then in balance."""


@dataclass(frozen=True, slots=True)
class SimRequest:
    """What to simulate."""

    engines: int = 4
    method: str = "eagle3"
    k: int = 4
    acceptance: Sequence[float] | None = None
    version: str = "0.32.0"
    scenario: str = "steady"
    speed: float = 1.0
    rate: float | None = None
    host: str = "127.0.0.1"
    port: int = 0
    one_port: bool = False
    seed: int = 0
    lasting_s: float | None = None


def fleet_of(request: SimRequest) -> Fleet:
    """The fleet asked for.

    Raises:
        UsageError: a method, version or scenario there is none of, or impossible chances.
    """
    methods = list(get_args(Method))
    if request.method not in methods:
        raise UsageError(f"unknown method {request.method!r}: {nearest(request.method, methods)}")
    try:
        scenario = Scenario.named(request.scenario, speed=request.speed)
        return build_fleet(
            request.engines,
            method=request.method,  # type: ignore[arg-type]  # checked above
            k=request.k,
            acceptance=request.acceptance,
            version=request.version,
            seed=request.seed,
            traffic=None if request.rate is None else replace(Traffic(), rate_per_s=request.rate),
            warmup_s=_WARMUP_S,
            scenario=scenario,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


async def serve(request: SimRequest, ready: Callable[[list[str], str | None], None]) -> None:
    """Serve until the time is over, SIGINT or SIGTERM; `ready` is told the URLs.

    Raises:
        UsageError: the request cannot be met, or the port cannot be had.
    """
    fleet = fleet_of(request)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = SimServer(fleet, request.host, base_port=request.port, single_port=request.one_port)
    try:
        async with server:
            ready(server.urls, server.fleet_url if request.one_port else None)
            try:
                async with asyncio.timeout(request.lasting_s):
                    await stop.wait()
            except TimeoutError:
                return
    except (OSError, OverflowError) as error:  # the ports of many engines may pass 65535
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot listen at {request.host}:{request.port}: {why}",
            hint="choose another --port, or --port 0 for any free one",
        ) from error
