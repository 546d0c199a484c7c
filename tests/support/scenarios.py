"""Recordings of simulated fleets to which something happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from speccli.core.sim.fleet import build_fleet
from speccli.core.sim.scenario import Scenario
from speccli.core.sources.base import Scrape
from speccli.core.sources.recording import line_of
from tests.support.recordings import AT, failed, written


def played(
    path: Path, scenario: str, seconds: int, *, step: int = 5, method: Any = "eagle3", seed: int = 0
) -> Path:
    """Three servers, scraped every `step` simulated seconds."""
    fleet = build_fleet(
        3,
        method=method,
        fluid=True,
        clock=lambda: AT,
        warmup_s=60.0,
        scenario=Scenario.named(scenario),
        seed=seed,
    )
    lines = []
    for at in range(0, seconds + 1, step):
        fleet.advance(AT + at)
        for replica in fleet.replicas:
            url = f"http://{replica.name}:8000"
            if replica.refusing:
                lines.append(failed(at, "connect refused", url))
            else:
                lines.append(line_of(Scrape(AT + at, url, 200, replica.metrics())))
    return written(path, lines, interval_s=float(step), simulated=True)
