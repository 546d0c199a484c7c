"""Growth from one observation to the next: never across what was not counted through."""

from __future__ import annotations

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
