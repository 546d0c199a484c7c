"""A move or a return, killed before any of its calls: it serves on, the same again completes it.

A kill leaves what the cluster had at that moment, and nothing else: no line of the command runs
after it. So what there is before each call is kept from one run, looks included, and from each such
state the same command is begun anew. On a control plane, with real kills: tests/e2e/kube.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.core.deploy.fake_cluster import FakeCluster, Object
from tests.core.deploy.test_cluster import leads_to
from tests.core.fallback.test_carry import World, quick
from tests.core.fallback.test_restoring import CANARY, Scene

__all__ = ["quick"]
CALLS = ("version", "get", "list", "events", "logs", "proxy", "apply", "delete")


@dataclass
class Left:
    """What a kill leaves: the same before `calls` calls in a row."""

    objects: dict[tuple[str, str], Object]
    writes: int
    calls: int = 1


def left(fake: FakeCluster, command: Callable[[], Any]) -> list[Left]:
    """What a kill before each call of a command would leave, and what its end does."""
    found: list[Left] = []
    lock = threading.Lock()

    def look() -> None:
        with lock:
            if found and found[-1].objects == fake.objects:
                found[-1].calls += 1
            else:
                found.append(Left(copy.deepcopy(fake.objects), len(fake.calls)))

    def heard(call: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*given: Any, **more: Any) -> Any:
            look()
            return call(*given, **more)

        return asked

    before = copy.deepcopy(fake.objects)
    with pytest.MonkeyPatch.context() as patched:
        for name in CALLS:
            patched.setattr(fake, name, heard(getattr(fake, name)))
        command()
    look()
    assert found[0].objects == before
    return found


def killed(world: World, command: Callable[[], Any], see: Callable[[Any], None]) -> int:
    """The command from everything that a kill before one of its calls leaves; how many calls.

    `see` is given what came of it, and looks at the world.
    """
    fake = world.fake
    *states, end = left(fake, command)
    for state in states:
        fake.objects = copy.deepcopy(state.objects)
        assert serves(world), f"after {state.writes} writes"
        try:
            see(command())
        except Exception as error:
            error.add_note(f"killed after {state.writes} writes")
            raise
        assert serves(world)
    fake.objects = end.objects  # killed at its last looks: it was through
    assert serves(world)
    assert len(states) >= 4
    return sum(state.calls for state in states)


def serves(world: World) -> bool:
    """Whether the address leads to servers that are ready."""
    live = world.fake.objects["Deployment", leads_to(world.fake)]
    return int(live["spec"]["replicas"]) > 0 and bool(world.fake.ready(live))


def moved(world: World, to: str) -> Callable[[Any], None]:
    """It came to this end, and the way back is there."""

    def see(made: Any) -> None:
        assert made.end == "moved"
        assert leads_to(world.fake) == to
        record = world.record
        assert record.current.state == "ready"
        assert "eagle3" in {each.recipe["draft"]["method"] for each in record.previous}

    return see


def test_a_switch_to_the_standby() -> None:
    world = World()
    calls = killed(world, world.go, moved(world, "chat-standby"))
    assert calls > 60


def test_a_switch_before_which_the_standby_gets_servers() -> None:
    world = World()
    world.fake.running = 80.0
    killed(world, world.go, moved(world, "chat-standby"))
    assert world.replicas("chat-standby") == 2


def test_a_change_of_pods() -> None:
    world = World(standby=False)
    killed(world, lambda: world.go("ngram"), moved(world, "chat"))
    assert world.drafts_with("chat") == "ngram"


def test_a_change_of_pods_behind_the_standby() -> None:
    world = World()
    world.go()
    killed(world, world.go, moved(world, "chat"))
    assert (world.drafts_with("chat"), world.drafts_with("chat-standby")) == ("none", "ngram")


def test_past_a_standby_that_is_sick() -> None:
    world = World()
    world.fake.ready = lambda each: each["metadata"]["name"] != "chat-standby"
    killed(world, world.go, moved(world, "chat"))
    assert world.drafts_with("chat") == "none"


@pytest.mark.parametrize("acceptance", [0.6, 0.3], ids=["well", "bad"])
@pytest.mark.parametrize("standby", [True, False], ids=["standby", "alone"])
def test_a_return(acceptance: float, standby: bool) -> None:
    scene = Scene(standby=standby)
    scene.busy.acceptance = {CANARY: acceptance}
    well = acceptance > 0.5
    method = scene.drafts_with("chat")

    def see(told: Any) -> None:
        assert (told.verdict, told.refusals) == (("passed", 0) if well else ("refused", 1))
        assert leads_to(scene.fake) == ("chat" if well or not standby else "chat-standby")
        assert scene.drafts_with("chat") == ("eagle3" if well else method)
        assert ("Deployment", CANARY) not in scene.fake.objects
        assert scene.record.current.state == "ready"

    calls = killed(scene, scene.back, see)
    assert calls > 100


def test_a_standby_that_is_refuted_once_it_serves() -> None:
    """It is undone; killed where that is in the record and not yet done about, it goes on down."""
    world = World()
    told = world.fake.proxy

    def proxy(*given: Any, **more: Any) -> tuple[int, bytes]:
        world.fake.silent = {"chat-standby"} if leads_to(world.fake) == "chat-standby" else set()
        return told(*given, **more)

    world.fake.proxy = proxy  # type: ignore[method-assign]

    def see(made: Any) -> None:
        assert leads_to(world.fake) == "chat"
        found = (made.end, made.target, world.drafts_with("chat"))
        assert found in {
            ("undone", "ngram, K = 3", "eagle3"),
            ("moved", "no speculation", "none"),
        }
        ends.add(made.end)

    ends: set[str] = set()
    killed(world, world.go, see)
    assert ends == {"undone", "moved"}
