"""Pictures of the whole screen: for layout only, every number in them is asserted elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.tui.world import Found, World, plain_app
from tui.app import TopApp
from tui.messages import SnapshotReady

Snap = Callable[..., bool]
DRIFT = Found(
    "LOW_ACCEPTANCE",
    "warning",
    "10.0.0.5:8000/0",
    "acceptance 0.30, floor 0.40",
    "the draft fits this traffic no longer",
    "compare a fresh replica on the same prompts",
)


def app_of(world: World, *found: Found, simulated: bool = False) -> TopApp:
    snapshot = replace(world.window.snapshot(world.at), simulated=simulated)
    app = plain_app(world, judge=lambda _: found)
    app.call_later(app.post_message, SnapshotReady(snapshot))
    return app


def ran(count: int = 3, seconds: int = 240) -> World:
    world = World(count)
    world.run(seconds)
    return world


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (40, 24)])
def test_normal(snap_compare: Snap, size: tuple[int, int]) -> None:
    """Calm: one green verdict, two panels, p99 by batch, three engines, nothing happened."""
    assert snap_compare(app_of(ran()), terminal_size=size)


def test_nothing_yet(snap_compare: Snap) -> None:
    """The same frame, WAITING, dashes with reasons and no zeros."""
    assert snap_compare(plain_app(World(1)), terminal_size=(80, 24))


def test_no_traffic(snap_compare: Snap) -> None:
    """NO TRAFFIC, and what to do; dashes with reasons."""
    world = World(2)
    for server in world.servers:
        server.busy = False
    world.run(70)
    assert snap_compare(app_of(world), terminal_size=(80, 24))


def test_one_down(snap_compare: Snap) -> None:
    """The dead engine is named, on top, with its reason in its row; the others go on."""
    world = ran()
    world.servers[2].error = "connect refused"
    world.run(8)
    assert snap_compare(app_of(world), terminal_size=(80, 24))


def test_all_down(snap_compare: Snap) -> None:
    """UNKNOWN with the commonest reason and what to check; every row has its reason."""
    world = ran()
    for server in world.servers:
        server.error = "connect refused"
    world.run(8)
    assert snap_compare(app_of(world), terminal_size=(80, 24))


def test_drift(snap_compare: Snap) -> None:
    """Amber verdict with outlier, cause and action; charts show the slide; badge SIMULATED."""
    world = ran(3, 120)
    for step in range(120):
        world.servers[1].by_position = tuple(p * (1 - step / 200) for p in (0.75, 0.55, 0.4))
        world.run(1)
    assert snap_compare(app_of(world, DRIFT, simulated=True), terminal_size=(120, 40))


def test_paused(snap_compare: Snap) -> None:
    """PAUSED in the header, how long it has been held, and the key that resumes."""
    assert snap_compare(app_of(ran()), press=["p"], terminal_size=(80, 24))


def test_detail(snap_compare: Snap) -> None:
    """One engine: what it is, bars by position, charts, numbers with their metrics."""
    assert snap_compare(app_of(ran()), press=["enter"], terminal_size=(120, 50))
