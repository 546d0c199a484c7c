"""A move that is only shown: nothing changes, each call is named, files are the same every time."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml

from speccli.core.deploy.gate import GateError
from speccli.core.errors import UsageError
from speccli.core.fallback import preview
from speccli.core.fallback.preview import Preview
from speccli.core.views import fallback_moves as view
from speccli.tables.fallback_moves import moved_table, preview_table, restored_table
from tests.core.deploy.fake_cluster import FakeCluster
from tests.core.fallback.test_carry import WITH_STANDBY, World, quick
from tests.core.fallback.test_restoring import Scaled, Scene

__all__ = ["quick"]


def down(world: World, rung: str | None = None, **more: Any) -> Preview:
    return preview.down(lambda _: world.fake, None, "chat", rung, world.heard, **more)  # type: ignore[arg-type,return-value]


def back(world: World, **more: Any) -> Preview:
    return preview.back(lambda _: world.fake, None, "chat", world.heard, **more)  # type: ignore[arg-type,return-value]


def calls(made: Preview) -> list[list[str]]:
    return [[f"{call.verb} {call.what}" for call in part.calls] for part in made.parts]


def test_a_switch_is_shown_with_the_servers_that_come_first() -> None:
    world = World()
    world.fake.running = 80.0
    before = copy.deepcopy(world.fake.objects)
    made = down(world)
    assert world.fake.objects == before
    assert world.fake.calls == []
    record = "change ConfigMap chat-specctl (revision 2)"
    assert calls(made) == [
        [record, "change Deployment chat-standby"],
        [record, "change Service chat", "change Deployment chat-standby"],
    ]
    assert (made.mechanism, made.source, made.target) == ("switch", "eagle3, K = 3", "ngram, K = 3")


def test_a_rolling_change_says_whose_pods_are_replaced() -> None:
    made = down(World(standby=False), "none")
    assert calls(made)[0][-1] == "change Deployment chat: its pods are replaced"
    with pytest.raises(UsageError, match="no step down"):
        down(World(standby=False), "medusa")


def test_a_way_back_is_shown_with_its_canary() -> None:
    scene = Scene()
    made = back(scene)
    assert scene.fake.calls == []
    assert "create Deployment chat-canary" in calls(made)[0]
    assert calls(made)[1][1:] == ["change Service chat"]


def test_a_way_back_is_shown_with_the_servers_that_come_first_and_what_keeps_it_down() -> None:
    scene = Scaled(24)
    scene.fake.running = 40.0
    made = back(scene)
    assert made.parts[1].words.startswith("the pool main gets 4 servers: 160 requests")
    assert made.notes == ()
    crowded = Scaled(13)
    crowded.fake.running = 100.0
    assert "no canary would be made now: the traffic stays with" in back(crowded).notes[0]
    scene.busy.acceptance = {"chat-canary": 0.3}
    scene.back()
    assert "no canary would be made now: eagle3, K = 3 was refused" in back(scene).notes[0]
    assert view.previewed(back(scene))["move"]["notes"] == list(back(scene).notes)
    assert back(scene, force=True).notes == ()


def test_what_is_shown_holds_a_pool_at_as_many_servers_as_the_move_does() -> None:
    cut_short = {**WITH_STANDBY, "raised": {"standby": 2}}  # a move that got it its servers
    world = World(options=cut_short)
    world.fake.running = 80.0
    shown = down(world).parts[-1].asked.options
    world.go()
    assert dict(shown.raised) == world.record.current.options["raised"] == {"standby": 2}

    scene = Scaled(24)
    scene.fake.running = 40.0
    *_, taken, let_go = back(scene).parts
    assert (taken.asked.options.raised, let_go.asked.options.raised) == ({"main": 4}, {})
    scene.back()
    held = [r.options.get("raised") for r in scene.record.previous if r.options.get("raised")]
    assert taken.asked.options.raised == held[0]


def test_a_move_is_shown_that_only_what_is_accepted_lets_through() -> None:
    fake = FakeCluster(16)
    fake.objects["PriorityClass", "gold"] = {"kind": "PriorityClass", "metadata": {"name": "gold"}}
    world = World("scheduling.priority_class=gold", fake=fake)
    world.go()
    del fake.objects["PriorityClass", "gold"]
    for shown in (down, back):
        with pytest.raises(GateError, match="DEPLOY_MISSING"):
            shown(world)
        assert shown(world, accept=("DEPLOY_MISSING",)).parts


def test_files_are_what_would_serve_and_the_same_every_time() -> None:
    world = World()
    made = down(world)
    world.fake.running = 80.0  # more servers are needed now, which is told and not written
    again = down(world)
    assert len(again.parts) == 2
    assert made.texts == again.texts
    service = yaml.safe_load(made.texts["service-chat.yaml"])
    assert service["spec"]["selector"]["specctl.dev/service"] == "chat-standby"
    assert "deployment-chat-standby.yaml" in made.texts


def test_what_is_printed_has_the_keys_of_a_deployment_and_the_move() -> None:
    world = World()
    shown = json.loads(json.dumps(view.previewed(down(world))))
    assert shown["dry_run"] is True
    outcome = world.go()
    told: dict[str, Any] = json.loads(json.dumps(view.moved(outcome)))
    assert told["move"]["end"] == "moved"
    assert told["proof"]["verdict"] == "proven"
    assert told["exit"] == 0
    preview_table(back(world))
    moved_table(outcome)


def test_a_refusal_is_printed_with_what_the_canary_showed() -> None:
    scene = Scene()
    scene.busy.acceptance = {"chat-canary": 0.3}
    told = scene.back()
    printed = json.loads(json.dumps(view.restored(told)))
    assert printed["restore"]["verdict"] == "refused"
    assert printed["restore"]["comparison"]["acceptance"] == pytest.approx(0.3, abs=0.05)
    assert (printed["move"], printed["exit"]) == (None, 2)
    restored_table(told)
