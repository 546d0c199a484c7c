"""A fleet of simulated servers, each with one or more engines, and a quick way to build one."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from speccli.core.sim.base import Clock
from speccli.core.sim.config import (
    PREFIX,
    Method,
    SimConfig,
    StepCost,
    Traffic,
    default_acceptance,
    nearest,
)
from speccli.core.sim.engine import SimEngine
from speccli.core.sim.exposition import FleetPage, Page
from speccli.core.sim.faults import Fault
from speccli.core.sim.fluid import FluidEngine
from speccli.core.sim.scenario import Scenario

Engine = SimEngine | FluidEngine

GPU_FACTORS: Final = {"H100": 1.0, "H200": 0.78, "A100": 1.75, "B200": 0.5}
"""How long a step takes beside an H100; illustrative."""
FLUID_FROM: Final = 300
"""Servers from which on a fleet is fluid unless asked otherwise."""


class ScaledClock:
    """A clock that runs faster or slower than another, from the same instant."""

    def __init__(self, scale: float = 1.0, clock: Clock = time.time) -> None:
        if scale <= 0:
            raise ValueError(f"a time scale must be above 0, got {scale}")
        self.scale = scale
        self._clock = clock
        self._origin = clock()

    def __call__(self) -> float:
        """Return the scaled time."""
        return self._origin + (self._clock() - self._origin) * self.scale


class Replica:
    """One HTTP server of the fleet."""

    def __init__(self, name: str, engines: Sequence[Engine]) -> None:
        self.name = name
        self.engines = engines
        self.fault = Fault.NONE
        """What is wrong with its HTTP side."""
        self._page = Page(engines)

    @property
    def version(self) -> str:
        """The version its engines run."""
        return self.engines[0].version

    @property
    def config(self) -> SimConfig:
        """The configuration its engines share, but for the label `engine`."""
        return self.engines[0].config

    @property
    def refusing(self) -> bool:
        """Whether connections are refused, for a fault or because the process is down."""
        return self.fault is Fault.REFUSE or self.engines[0].down

    def advance(self, to: float | None = None) -> None:
        """Bring every engine to an instant, by default the clock's present."""
        for engine in self.engines:
            engine.advance(to)

    def metrics(self) -> bytes:
        """Return the /metrics body as the engines stand; `advance` first for the present."""
        return self._page.body()


class Fleet:
    """The simulated servers of one deployment and the clock they share."""

    def __init__(self, replicas: Sequence[Replica], clock: Clock, time_scale: float = 1.0) -> None:
        self.replicas = replicas
        self.clock = clock
        self.time_scale = time_scale
        self._pages: dict[tuple[int, int], FleetPage] = {}

    @property
    def engines(self) -> list[Engine]:
        """Every engine of every server."""
        return [engine for replica in self.replicas for engine in replica.engines]

    def advance(self, to: float | None = None) -> None:
        """Bring every engine to an instant, by default the clock's present."""
        until = self.clock() if to is None else to
        for replica in self.replicas:
            replica.advance(until)

    def play(self, scenario: Scenario, at: float | None = None) -> None:
        """Let a scenario begin, by default now.

        Args:
            scenario: What will happen.
            at: The instant from which its times count.

        Raises:
            ValueError: If the scenario names a server the fleet does not have.
        """
        begin = self.clock() if at is None else at
        for event in scenario.events:
            for replica in self.chosen(event.target):
                for engine in replica.engines:
                    engine.schedule(begin + event.at_s, event.change)

    def chosen(self, target: str) -> Iterable[Replica]:
        """Return the servers a target names: `all`, `first`, `last` or a server's name.

        Raises:
            ValueError: If there is no such server.
        """
        if target == "all":
            return self.replicas
        if target in ("first", "last"):
            return [self.replicas[0 if target == "first" else -1]]
        for replica in self.replicas:
            if replica.name == target:
                return [replica]
        names = ["all", "first", "last", *(replica.name for replica in self.replicas[:50])]
        raise ValueError(f"no simulated server {target!r}: {nearest(target, names)}")

    def metrics(self, shard: int = 0, shards: int = 1) -> bytes:
        """Return one page for many engines, told apart by `instance`.

        Args:
            shard: Which part of the fleet, from 0.
            shards: In how many parts the fleet is cut.
        """
        key = (shard, shards)
        if key not in self._pages:
            self._pages[key] = FleetPage(
                (replica.name, engine)
                for replica in self.replicas[shard::shards]
                for engine in replica.engines
            )
        return self._pages[key].body()


def build_fleet(
    n: int,
    *,
    method: Method = "eagle3",
    k: int = 3,
    acceptance: float | Sequence[float] | None = None,
    version: str = "0.32.0",
    seed: int = 0,
    gpu: str = "H100",
    model: str = "llama-3.3-70b",
    engines_per_server: int = 1,
    traffic: Traffic | None = None,
    fluid: bool | None = None,
    clock: Clock | None = None,
    time_scale: float = 1.0,
    warmup_s: float = 0.0,
    scenario: Scenario | None = None,
) -> Fleet:
    """Build a fleet of like servers, a 70B model on four GPUs each; figures are illustrative.

    Args:
        n: Servers.
        method: How drafts are made; `none` for no speculation.
        k: Draft tokens a step; ignored for `none`.
        acceptance: Conditional acceptance of each position, or one figure; None for a usual one.
        version: The engines' version.
        seed: Makes the fleet the same again.
        gpu: Which GPU, a key of GPU_FACTORS.
        model: Name of the target; SIMULATED/ is put before it.
        engines_per_server: Engines (labels engine="0", "1", …) behind each server.
        traffic: What each engine serves; None for about 15 requests in flight, ±15 % a server.
        fluid: Whether counters advance by expectation; None for large fleets only.
        clock: The time, in seconds since the epoch; None for the system's.
        time_scale: How many simulated seconds pass in one.
        warmup_s: Simulated seconds the fleet has been serving when it is handed over.
        scenario: What befalls it, counted from its being handed over.

    Returns:
        The fleet, warmed up, with the scenario begun.
    """
    if n < 1 or engines_per_server < 1:
        raise ValueError("a fleet has at least one server with one engine")
    config = replace(
        _config(method, k, acceptance, gpu, model), version=version, traffic=traffic or Traffic()
    )
    present = ScaledClock(time_scale, clock or time.time)
    handed_over = present()

    def begin() -> float:
        return handed_over - warmup_s

    make: Callable[[SimConfig, Clock, int], Engine] = SimEngine
    if n > FLUID_FROM if fluid is None else fluid:
        make = partial(FluidEngine, tick_s=max(1.0, n / 1000))
    rng = random.Random(seed)
    replicas = []
    for index in range(n):
        own = config
        if traffic is None:
            usual = replace(config.traffic, rate_per_s=4.0 * rng.uniform(0.85, 1.15))
            own = replace(config, traffic=usual)
        engines = [
            make(replace(own, engine=str(label)), begin, rng.getrandbits(48))
            for label in range(engines_per_server)
        ]
        for engine in engines:
            engine.clock = present
        replicas.append(Replica(f"sim-{index}", engines))
    fleet = Fleet(replicas, present, time_scale)
    fleet.advance(handed_over)
    if scenario is not None:
        fleet.play(scenario, handed_over)
    return fleet


def _config(
    method: Method, k: int, acceptance: float | Sequence[float] | None, gpu: str, model: str
) -> SimConfig:
    """What every engine of a fleet is.

    Raises:
        ValueError: no such GPU, or acceptance that is none.
    """
    if gpu not in GPU_FACTORS:
        raise ValueError(f"unknown GPU {gpu!r}: {nearest(gpu, list(GPU_FACTORS))}")
    positions = 0 if method == "none" else k
    name = model.removeprefix(PREFIX)
    return SimConfig(
        method=method,
        k=positions,
        acceptance=default_acceptance(method, positions, acceptance if positions else None),
        model=PREFIX + name,
        draft=f"{PREFIX}{name}-{method}" if method not in ("ngram", "none") else None,
        gpu=gpu,
        cost=StepCost().scaled(GPU_FACTORS[gpu]),
    )
