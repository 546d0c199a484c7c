"""Recording rules of another version in a real Prometheus, and a reload to those of our own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from speccli.core.poll_prometheus import PrometheusPoller, open_prometheus
from speccli.core.sources.promql import RULES_VERSION
from speccli.core.sources.recorded import complete, rules_text
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings
from tests.e2e.prometheus_server import (
    PROMETHEUS,
    FakeFleet,
    fleet_exporter,
    prometheus,
    reload,
)

pytestmark = [
    pytest.mark.real_prometheus,
    pytest.mark.skipif(
        PROMETHEUS is None and os.environ.get("SPECCTL_REQUIRE_REAL") != "1",
        reason="prometheus is not installed: apt-get install prometheus",
    ),
]
OURS = rules_text().replace("interval: 30s", "interval: 2s")
THEIRS = OURS.replace(f"version: '{RULES_VERSION}'", "version: '1'")


@asynccontextmanager
async def pooled(url: str) -> AsyncIterator[PrometheusPoller]:
    settings = Settings(window_s=10.0, stale_s=2.0)
    poller = open_prometheus(url, settings, mode="pooled", deadline_s=60.0)
    try:
        yield poller
    finally:
        await poller.source.aclose()


async def until(poller: PrometheusPoller, condition: Callable[[Snapshot], bool]) -> Snapshot:
    """The first round of which it holds; the fleet is counted at each."""
    async with asyncio.timeout(120):
        while True:
            poller.source._counted_at = float("-inf")
            taken = await poller.round()
            assert taken is not None
            if condition(taken):
                return taken
            await asyncio.sleep(0.5)


async def test_those_of_another_version_are_told_and_after_a_reload_ours_not_read_at_once(
    tmp_path: Path,
) -> None:
    assert THEIRS != OURS
    fleet = FakeFleet("small", 10)
    with fleet_exporter(fleet) as page, prometheus(tmp_path, [], [page], THEIRS) as url:
        async with pooled(url) as poller:
            before = await until(poller, lambda taken: "recording rules" in str(taken.note))
            assert f"are version 1, this specctl reads {RULES_VERSION}" in str(before.note)
            assert poller.source.census is not None
            assert not poller.source.census.rules
            reload(url, tmp_path, OURS)
            after = await until(
                poller,
                lambda taken: taken.note is None and taken.fleet.drafts.value is not None,
            )
            assert poller.source.census.rules
            # Theirs recorded into the same series a moment ago: what engines count is summed.
            assert (await poller.source.api.query(complete(120))).series == ()
    assert after.window_s < 120
    assert after.fleet.acceptance_rate.value == pytest.approx(fleet.acceptance, rel=1e-6)


async def test_ours_are_read_as_soon_as_they_are_there_where_no_others_were(
    tmp_path: Path,
) -> None:
    fleet = FakeFleet("small", 10)
    with fleet_exporter(fleet) as page, prometheus(tmp_path, [], [page], OURS) as url:
        async with pooled(url) as poller:
            taken = await until(
                poller,
                lambda taken: taken.window_s == 120 and taken.fleet.drafts.value is not None,
            )
    assert taken.note is None
    assert taken.fleet.acceptance_rate.value == pytest.approx(fleet.acceptance, rel=1e-6)
