"""How a move of the watch ends, and what that is called."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from speccli.core.deploy import cluster as deploying
from speccli.core.errors import ExitCode
from speccli.core.fallback.begun import through
from speccli.core.fallback.carrying import Ended, came_to, carried
from speccli.core.fallback.policy import after
from speccli.core.fallback.standing import standing
from speccli.core.fallback.terms import Move, State
from tests.core.deploy.test_cluster import leads_to
from tests.core.fallback.test_carry import World
from tests.core.fallback.test_restoring import Scaled, Scene

DOWN = Move("cafe", "down", "eagle3", "ngram", "ZERO_ACCEPTANCE", "", 1, 0.0)


def carry(world: World, move: Move = DOWN, *, continued: bool = False) -> Ended:
    def connect(_: float | None = None) -> Any:
        return world.fake

    return carried(connect, "llm", "chat", move, world.heard, continued=continued)


@pytest.mark.parametrize(("end", "outcome"), [("late", None), ("done", "unproven")])
def test_what_is_not_proven_is_not_done(
    end: Any, outcome: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, deploy = World(standby=False), deploying.deploy

    def unproven(*args: Any) -> Any:
        made = deploy(*args)
        assert made.ended is not None
        ended = replace(made.ended, end=end, why="0 of 8 pods are ready")
        assert made.proof is not None
        proof = replace(made.proof, servers=()) if end == "done" else None
        return replace(made, ended=ended, proof=proof)

    monkeypatch.setattr(deploying, "deploy", unproven)
    assert carry(world).outcome == outcome


def test_a_main_pool_that_is_late_behind_the_standby_has_moved_nothing_and_is_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, deploy = World(), deploying.deploy
    assert world.go().end == "moved"

    def late(*args: Any) -> Any:
        made = deploy(*args)
        assert made.ended is not None
        return replace(made, ended=replace(made.ended, end="late", why="0 of 8 are ready"))

    with monkeypatch.context() as patched:
        patched.setattr(deploying, "deploy", late)
        told = world.go("none")
        ended = carry(world, replace(DOWN, source="ngram", target="none"))
    assert (told.end, told.exit_code, told.under_way) == ("stayed", ExitCode.UNKNOWN, True)
    assert told.words == (
        "chat: the main pool with no speculation is not ready in time: 0 of 8 are ready; "
        "ngram, K = 3 serves on until it is proven, by the same command"
    )
    assert leads_to(world.fake) == "chat-standby"
    assert ended.outcome is None, "the watch goes on with it"
    assert world.go("none").end == "moved"
    assert leads_to(world.fake) == "chat"


def test_a_rung_that_has_too_few_servers_is_none_that_failed() -> None:
    scene = Scaled(13)
    scene.fake.running = 100.0
    ended = carry(scene, replace(DOWN, source="ngram", target="none"))
    assert ended.outcome == "unproven"
    assert "the load needs 8 servers of it" in ended.words
    server: Any = scene.fake
    made = came_to(DOWN, ended, standing(server, None, "chat", 5.0), 5.0)
    assert after(State(), made).failed == ()


def test_a_move_that_is_late_to_the_end_is_unproven_where_its_rung_serves_else_failed() -> None:
    world = World(standby=False)
    server: Any = world.fake
    late = Ended(None, "0 of 8 pods are ready", 900.0)
    made = came_to(DOWN, late, standing(server, None, "chat", 5.0), 5.0)
    assert (made.outcome, made.target) == ("failed", "ngram")
    world.go()
    made = came_to(DOWN, late, standing(server, None, "chat", 5.0), 5.0)
    assert (made.outcome, made.target) == ("unproven", "ngram")


def test_a_return_that_was_through_when_its_leader_was_killed_is_done() -> None:
    scene = Scene()
    move = replace(DOWN, kind="restore", source="ngram", target="eagle3", at=time.time())
    assert not through(standing(scene.busy, None, "chat", 5.0), move)  # type: ignore[arg-type]
    assert scene.back().verdict == "passed"
    number = scene.record.current.number
    ended = carry(scene, move, continued=True)
    assert (ended.outcome, ended.words) == ("done", "it was through already")
    assert scene.record.current.number == number
