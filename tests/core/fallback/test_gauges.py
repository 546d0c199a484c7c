"""What a watch says of itself to Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from speccli.core.fallback.gauges import Gauges
from speccli.core.fallback.terms import Moved, State, Why
from speccli.core.metrics.parse import parse_sample
from tests.core.fallback.situations import NOON, standing


class Clock:
    now = 0.0


def gauges(clock: Clock, name: str = "chat") -> Gauges:
    return Gauges(name, 15.0, clock=lambda: NOON + clock.now, steady=lambda: clock.now)


def test_before_the_first_look_it_claims_nothing_of_the_deployment() -> None:
    page = gauges(Clock()).page()
    assert "last_look" not in page
    assert "rung" not in page
    assert 'specctl_fallback_leader{deployment="chat"} 0' in page


def test_it_is_healthy_while_it_looks_whatever_it_sees() -> None:
    clock = Clock()
    told = gauges(clock)
    clock.now = 61
    assert not told.healthy
    told.looked(leads=False, blind=True, led=True)
    assert told.healthy
    assert f'last_look_timestamp_seconds{{deployment="chat"}} {NOON + 61:.10g}' in told.page()


def test_it_is_unwell_where_nobody_is_known_to_lead_for_minutes() -> None:
    clock = Clock()
    told = gauges(clock)
    for second in range(0, 600, 15):
        clock.now = second
        told.looked(leads=False, blind=False, led=None)  # the cluster is away: no fault of ours
    assert told.healthy
    for second in range(600, 900, 15):
        clock.now = second
        told.looked(leads=False, blind=False, led=False)
    assert not told.healthy
    assert 'specctl_fallback_led{deployment="chat"} 0' in told.page()
    told.looked(leads=False, blind=False, led=True)
    assert told.healthy


def test_moves_are_counted_by_what_they_came_to() -> None:
    told = gauges(Clock())
    for outcome in ("failed", "done", "done"):
        told.moved(Moved(NOON, "down", "eagle3", "ngram", outcome))
    page = told.page()
    labels = 'deployment="chat",kind="down",from="eagle3",to="ngram"'
    assert f'specctl_fallback_moves_total{{{labels},outcome="done"}} 2' in page
    assert f'specctl_fallback_moves_total{{{labels},outcome="failed"}} 1' in page


def test_every_metric_is_in_the_contract() -> None:
    told = gauges(Clock())
    told.looked(leads=True, blind=False, led=True)
    told.moved(Moved(NOON, "down", "eagle3", "ngram", "done"))
    told.stands(State(), standing(), "well")
    contract = (Path(__file__).parents[3] / "docs" / "contracts.md").read_text()
    names = {line.split()[2] for line in told.page().splitlines() if line.startswith("# TYPE")}
    assert len(names) == 12
    assert [name for name in names if f"`{name}" not in contract] == []
    whys = [*get_args(Why), "moving", "follows"]
    assert [why for why in whys if f"`{why}`" not in contract] == []


def test_the_page_is_one_that_prometheus_reads_whatever_the_name() -> None:
    told = gauges(Clock(), 'a"b\\c\nd')
    told.looked(leads=True, blind=False, led=True)
    told.stands(State(refusals=1), standing(2), "waiting")
    samples = [parse_sample(x.encode()) for x in told.page().splitlines() if x[0] != "#"]
    assert {series.labels["deployment"] for series, _ in samples} == {'a"b\\c\nd'}
    assert len(samples) > 10
    rungs = {line for line in told.page().splitlines() if line.startswith("specctl_fallback_rung{")}
    assert sum(line.endswith(" 1") for line in rungs) == 1
