"""The simulator's scenarios: each raises what it is about, and a healthy fleet raises nothing."""

from __future__ import annotations

import pytest

from speccli.core.findings import Thresholds, evaluate
from speccli.core.sim.fleet import Fleet, build_fleet
from speccli.core.sim.scenario import Scenario
from speccli.core.sources.base import Scrape
from speccli.core.stats.window import Settings, Window
from tests.core.findings.bodies import AT


def watch(fleet: Fleet, seconds: int, step: int = 5) -> Window:
    """Scrape every server, step after step, for so many simulated seconds."""
    window = Window(Settings())
    for at in range(0, seconds + 1, step):
        fleet.advance(AT + at)
        window.push(
            Scrape(AT + at, f"http://{replica.name}:8000", error="connect refused")
            if replica.refusing
            else Scrape(AT + at, f"http://{replica.name}:8000", 200, replica.metrics())
            for replica in fleet.replicas
        )
    return window


@pytest.mark.parametrize(
    ("name", "method", "seconds", "expected"),
    [
        ("steady", "eagle3", 120, []),
        ("steady", "none", 120, [("SPEC_NOT_ACTIVE", "critical")] * 3),
        ("zero", "eagle3", 120, [("ZERO_ACCEPTANCE", "critical")]),
        ("drop", "eagle3", 120, [("LOW_ACCEPTANCE", "warning")]),
        ("cliff", "p-eagle", 120, [("PARALLEL_DRAFT_CLIFF", "warning")] * 3),
        ("stall", "eagle3", 80, [("STALLED", "critical")]),
        ("down", "eagle3", 60, [("ENGINE_DOWN", "critical")]),
        ("restart", "eagle3", 120, []),
        ("version-skew", "eagle3", 60, [("VERSION_SKEW", "warning")]),
        ("no-traffic", "eagle3", 300, [("NO_TRAFFIC", "info")]),
    ],
)
def test_a_scenario_raises_what_it_is_about(
    name: str, method: str, seconds: int, expected: list[tuple[str, str]]
) -> None:
    fleet = build_fleet(
        3,
        method=method,  # type: ignore[arg-type]
        fluid=True,
        clock=lambda: AT,
        warmup_s=60.0,
        scenario=Scenario.named(name),
    )
    window = watch(fleet, seconds)
    findings = evaluate(window.snapshot(), Thresholds(hold_s=30.0))
    assert [(finding.code, finding.severity) for finding in findings] == expected
