"""Simulated fleets as snapshots over time, and baselines of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from speccli.core.baseline import Baseline
from speccli.core.baseline.record import Profile
from speccli.core.sim.fleet import build_fleet
from speccli.core.sim.scenario import Scenario
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings, Window
from tests.core.findings.bodies import AT


def play(
    name: str, *, n: int = 2, minutes: int = 45, step: int = 30, **fleet: Any
) -> Iterator[Snapshot]:
    """A scenario as one long-lived window sees it."""
    made = build_fleet(
        n, fluid=True, clock=lambda: AT, warmup_s=60.0, scenario=Scenario.named(name), **fleet
    )
    window = Window(Settings())
    for at in range(0, 60 * minutes + 1, step):
        made.advance(AT + at)
        window.push(
            Scrape(AT + at, f"http://{replica.name}:8000", error="connect refused")
            if replica.refusing
            else Scrape(AT + at, f"http://{replica.name}:8000", 200, replica.metrics())
            for replica in made.replicas
        )
        yield window.snapshot()


def recorded(*names: str, **fleet: Any) -> Baseline:
    """A baseline of half an hour of each scenario."""
    profile = Profile(60.0)
    for name in names or ("steady",):
        for snapshot in play(name, minutes=30, **fleet):
            profile.observe(snapshot)
    return profile.baseline("good", "simulator")
