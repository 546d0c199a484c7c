"""Growth from one observation to the next: never across what was not counted through."""

from __future__ import annotations

import json
from typing import Any

import pytest

from speccli.core.sources.base import Scrape
from speccli.core.stats.growth import Growth, Meter
from speccli.core.stats.window import Settings, Window
from tests.core.pages import STARTED, scrape, spec_page

NOW = STARTED + 1000


def page(n: float, started: float) -> str:
    told = f"process_start_time_seconds {started}"
    return spec_page(drafts=n, drafted=3 * n, accepted=2 * n, more=[told])


def test_a_history_that_began_anew_does_not_go_on_from_the_old_totals() -> None:
    """The new process, on a clock that lags, has counted more than the old one had."""
    window, meter = Window(Settings()), Meter()
    grown: list[Growth] = []
    for i in range(8):
        new = i >= 2
        body = page(90_000 + i if new else 10 * i, NOW - 30 if new else STARTED)
        window.push([scrape(NOW + i, body)])
        grown += meter.take(window.snapshot())
    cut = [growth for growth in grown if growth.cut]
    assert [growth.look for growth in cut] == [None]
    assert max(growth.look.drafts for growth in grown if growth.look) == 10


@pytest.mark.parametrize("told", [True, False], ids=["start-time", "counters-fell"])
def test_a_restart_between_two_runs_counts_what_the_new_process_counted(told: bool) -> None:
    """As cron sees it: each run has the page of the last one, its own page, and a kept meter."""
    state: Any = None
    kept: list[Scrape] = []
    counted = []
    for run, (n, process) in enumerate([(1000, 0), (1300, 0), (400, 1), (900, 1)]):
        started = f"process_start_time_seconds {STARTED + 1450 * process}" if told else ""
        text = spec_page(drafts=n, drafted=3 * n, accepted=2 * n, more=[started] if told else [])
        here = scrape(NOW + 300 * run, text)
        window, meter = Window(Settings()), Meter(state)
        window.push(kept)
        window.push([here])
        (growth,) = meter.take(window.snapshot())
        state, kept = json.loads(json.dumps(meter.to_json())), [here]
        counted.append((growth.look.drafts if growth.look else None, growth.cut))
    assert counted == [(None, False), (300, False), (400, True), (500, False)]
