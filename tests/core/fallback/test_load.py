"""How many servers of a standby the load needs: seats, and the speed that clients have."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from speccli.core.fallback.load import Load, servers_for
from speccli.core.manifests.options import RenderOptions
from speccli.core.manifests.pools import Unit, units
from speccli.core.plan import plan
from speccli.core.recipes.load import load as recipe_named
from tests.core.deploy.test_cluster import RECIPE
from tests.core.fallback.test_carry import WITH_STANDBY, World, quick
from tests.core.fallback.test_measured import usual
from tests.support.benches import RATES

__all__ = ["quick"]


def standby() -> Unit:
    found = units(recipe_named(RECIPE), RenderOptions(**WITH_STANDBY))
    return next(unit for unit in found if unit.pool == "standby")


ONE = RATES[32] * 1.05
"""Tokens a second of one n-gram server at batch 32, and at 20 as nobody measured that."""


@pytest.mark.parametrize(
    ("requests", "speed", "servers", "words"),
    [
        pytest.param(40.0, None, 1, "40 requests run or wait, 51 a server", id="not-looked-at"),
        pytest.param(40.0, 0.9 * ONE, 1, "40 requests run or wait", id="one-is-fast-enough"),
        pytest.param(40.0, 1.5 * ONE, 2, " a server (", id="two-at-half-the-batch"),
        pytest.param(120.0, 1.5 * ONE, 3, "120 requests run or wait", id="seats-are-enough"),
        pytest.param(40.0, 500 * ONE, 1, "; no number of servers measured makes 2,", id="never"),
    ],
)
def test_a_standby_has_the_seats_and_the_speed(
    requests: float, speed: float | None, servers: int, words: str
) -> None:
    count, told = servers_for(Load(requests, speed), standby(), usual())
    assert (count, words in told) == (servers, True)
    assert servers_for(Load(requests, speed), standby(), None)[0] <= servers


def with_seats(seats: int) -> Unit:
    serving = replace(standby().recipe.serving, max_num_seqs=seats)
    return replace(standby(), plan=plan(replace(standby().recipe, serving=serving)))


def test_numbers_of_servers_whose_batch_nobody_measured_are_passed_over() -> None:
    count, words = servers_for(Load(600.0, 4 * ONE), with_seats(999), usual())
    assert count == 4  # at 150 a server, the first near the 128 that were measured
    assert words.endswith(" a server (planted)")


def test_where_no_batch_was_measured_seats_are_counted_and_it_says_so() -> None:
    count, words = servers_for(Load(60_000.0, 10 * ONE), with_seats(99_999), usual())
    assert count == 1
    assert "their speed is not known: measured at batch 1, 8, 32, 64, 128; now it is 6" in words


def test_before_a_move_output_tokens_are_counted_over_a_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(1000.0, 1.0)
    monkeypatch.setattr("speccli.core.fallback.load.time.time", lambda: next(clock))
    told = world.fake.proxy

    def proxy(namespace: str, pod: str, port: int, path: str, *rest: Any, **more: Any) -> Any:
        if path == "/metrics" and pod.startswith("chat-0"):
            made = round(
                1.5 * ONE / 2
            )  # a page is a second after the other, and of two tokens each
            world.fake.drafts[pod] = world.fake.drafts.get(pod, 0) + made
        return told(namespace, pod, port, path, *rest, **more)

    world.fake.proxy = proxy  # type: ignore[method-assign]
    world.fake.running = 40.0
    assert world.go(bench=usual()).end == "moved"
    assert world.replicas("chat-standby") == 2
    assert "tok/s, " in next(line for line in world.heard.lines if "gets 2 servers" in line)


@pytest.fixture
def world() -> World:
    return World()
