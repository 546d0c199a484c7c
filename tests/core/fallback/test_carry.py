"""Moves as deployments: to the warm standby, by replacing pods, undone, completed, waited for."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from speccli.core.deploy import cluster as deploying
from speccli.core.deploy.asked import Asked
from speccli.core.errors import ExitCode, SpecctlError, UsageError
from speccli.core.fallback import carry, rungs
from speccli.core.fallback import pools as going
from speccli.core.fallback.carry import Outcome
from speccli.core.kube.errors import TimedOut
from speccli.core.kube.record import Record, from_object
from speccli.core.manifests import pools
from speccli.core.manifests.options import RenderOptions
from speccli.core.plan import Plan, plan
from speccli.core.recipes.load import load
from speccli.core.recipes.model import Recipe
from tests.core.deploy.fake_cluster import FakeCluster
from tests.core.deploy.test_cluster import PLAIN, RECIPE, Heard, leads_to

WITH_STANDBY: dict[str, Any] = {**PLAIN, "pools": ("standby",)}


class World:
    """A deployment of EAGLE-3 with a warm n-gram standby on a cluster in memory."""

    def __init__(
        self,
        *changes: str,
        standby: bool = True,
        gpus: int = 16,
        fake: FakeCluster | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.fake, self.heard = fake or FakeCluster(gpus), Heard()
        self.clock = itertools.count()
        given = options or (WITH_STANDBY if standby else PLAIN)
        recipe = load(RECIPE, ["storage.persist=false", *changes])
        asked = Asked(recipe, RenderOptions(**given))
        first = deploying.deploy(lambda _: self.fake, asked, self.heard)  # type: ignore[arg-type,return-value]
        assert first.exit_code is ExitCode.OK
        self.fake.calls.clear()

    def go(self, rung: str | None = None, **more: Any) -> Outcome:
        return carry.go(
            lambda _: self.fake,  # type: ignore[arg-type,return-value]
            None,
            "chat",
            rung,
            self.heard,
            clock=lambda: float(next(self.clock)),
            sleep=lambda _: None,
            **more,
        )

    @property
    def record(self) -> Record:
        return from_object(self.fake.objects["ConfigMap", "chat-specctl"])

    def replicas(self, name: str) -> int:
        return int(self.fake.objects["Deployment", name]["spec"]["replicas"])

    def drafts_with(self, name: str) -> str:
        labels = self.fake.objects["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        return str(labels["specctl.dev/spec-method"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plans are made once: there are a hundred of them in a move."""
    made: dict[str, Plan] = {}

    def remembered(recipe: Recipe) -> Plan:
        key = repr(recipe)
        if key not in made:
            made[key] = plan(recipe)
        return made[key]

    for module in (pools, rungs):
        monkeypatch.setattr(module, "plan", remembered)


@pytest.fixture
def world() -> World:
    return World()


def test_a_warm_standby_takes_the_traffic_and_no_pod_is_replaced(world: World) -> None:
    made = world.go()
    assert (made.end, made.mechanism, made.exit_code) == ("moved", "switch", ExitCode.OK)
    assert (made.source, made.target) == ("eagle3, K = 3", "ngram, K = 3")
    assert leads_to(world.fake) == "chat-standby"
    told = world.record.current
    assert (told.number, told.state, told.options["traffic"]) == (2, "ready", "standby")
    assert told.proof is not None
    assert [each["pool"] for each in told.proof["servers"]] == ["standby"]
    assert not [line for line in world.heard.lines if "is rolled" in line]


def test_the_standby_is_asked_before_it_takes_the_traffic(world: World) -> None:
    world.fake.silent = {"chat-standby"}
    made = world.go()
    assert (made.end, made.mechanism, made.target) == ("moved", "rolling", "no speculation")
    assert "the standby is not taken: chat-standby-0: " in made.notes[0]
    assert leads_to(world.fake) == "chat"
    assert world.drafts_with("chat") == "none"


def test_a_standby_that_is_not_ready_is_passed_over(world: World) -> None:
    world.fake.ready = lambda each: each["metadata"]["name"] != "chat-standby"
    made = world.go()
    assert (made.end, made.mechanism, made.target) == ("moved", "rolling", "no speculation")
    assert "the standby is not taken: no server of it is ready" in made.notes[0]
    assert world.drafts_with("chat") == "none"


def test_no_rung_under_a_sick_standby_is_an_error_and_no_circle() -> None:
    world = World("pools.standby={draft: {method: none}}", standby=False)
    world.fake.ready = lambda each: each["metadata"]["name"] != "chat-standby"
    with pytest.raises(UsageError, match="there is no lower rung"):
        world.go()
    assert world.fake.calls == []


def test_a_main_pool_that_crashes_keeps_nobody_from_the_standby(world: World) -> None:
    world.fake.ready = lambda each: each["metadata"]["name"] == "chat-standby"
    assert world.go().end == "moved"
    assert leads_to(world.fake) == "chat-standby"


def test_the_standby_gets_the_servers_that_the_load_needs_first(world: World) -> None:
    world.fake.running = 80.0  # of 0.8 * 64 a server
    made = world.go()
    assert world.replicas("chat-standby") == 2
    lines = "\n".join(world.heard.lines)
    words = "gets 2 servers before it takes the traffic: 80 requests run or wait, 51 a server"
    assert words in lines
    assert lines.index("gets 2 servers") < lines.index("takes the traffic\n")
    assert made.end == "moved"
    assert world.record.current.options["raised"] == {"standby": 2}


UNREADY = {"type": "Ready", "status": "False"}
NO_NODE = {
    "conditions": [
        UNREADY,
        {"type": "PodScheduled", "status": "False", "message": "2 Insufficient nvidia.com/gpu"},
    ]
}
CRASHES = {
    "conditions": [UNREADY],
    "containerStatuses": [
        {
            "name": "engine",
            "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1}},
        }
    ],
}


def lame(monkeypatch: pytest.MonkeyPatch, name: str, status: dict[str, Any]) -> None:
    """The standby's pod of that name never serves."""
    monkeypatch.setattr("speccli.core.fallback.pools.STRAGGLERS_S", 0.0)
    all_pods, rolled_out = FakeCluster._made, FakeCluster._roll_out

    def made(self: FakeCluster) -> Iterator[Any]:
        for each in all_pods(self):
            if each["kind"] == "Pod" and each["metadata"]["name"] == name:
                spec = each["spec"] if "containerStatuses" in status else {}
                yield {**each, "spec": spec, "status": status}
            else:
                yield each

    def roll_out(self: FakeCluster, value: Any) -> None:
        rolled_out(self, value)
        if name == f"{value['metadata']['name']}-{value['spec']['replicas'] - 1}":
            value["status"]["availableReplicas"] -= 1

    monkeypatch.setattr(FakeCluster, "_made", made)
    monkeypatch.setattr(FakeCluster, "_roll_out", roll_out)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        pytest.param(NO_NODE, "2 Insufficient nvidia.com/gpu", id="no-gpu-after-all"),
        pytest.param(CRASHES, "exit 1; 3 restarts", id="crashes"),
    ],
)
def test_a_further_server_that_does_not_come_keeps_no_traffic(
    status: dict[str, Any], why: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fake.running = 150.0
    lame(monkeypatch, "chat-standby-2", status)
    told = world.go()
    assert told.end == "moved"
    assert leads_to(world.fake) == "chat-standby"
    first, second = told.notes
    words = "further servers of the pool standby: 1 of 3 servers do not come: chat-standby-2: "
    assert first.startswith(words)
    assert why in first
    assert second == "2 of 3 servers of the pool standby were ready in time"


def test_a_half_of_a_standby_is_better_than_a_main_pool_that_is_dead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fake.objects["Deployment", "chat-standby"]["spec"]["replicas"] = 2
    world.fake.ready = lambda each: each["metadata"]["name"] == "chat-standby"
    lame(monkeypatch, "chat-standby-1", CRASHES)
    told = world.go()
    assert told.end == "moved"
    assert leads_to(world.fake) == "chat-standby"
    assert any("1 of 2 servers do not come: chat-standby-1" in note for note in told.notes)


def test_a_standby_of_which_one_server_fails_requests_keeps_them_where_main_is_dead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fake.objects["Deployment", "chat-standby"]["spec"]["replicas"] = 3
    world.fake.ready = lambda each: each["metadata"]["name"] == "chat-standby"
    well = FakeCluster.proxy

    def proxy(self: FakeCluster, namespace: str, pod: str, *rest: Any, **named: Any) -> Any:
        if pod == "chat-standby-1" and "chat/completions" in str((rest, named)):
            return 500, b"CUDA error"
        return well(self, namespace, pod, *rest, **named)

    monkeypatch.setattr(FakeCluster, "proxy", proxy)
    told = world.go()
    assert (told.end, told.exit_code) == ("unproven", ExitCode.UNKNOWN)
    assert leads_to(world.fake) == "chat-standby"
    assert "HTTP 500" in told.words


def test_a_move_begun_again_waits_for_the_servers_that_it_asked_for(world: World) -> None:
    world.fake.running = 150.0
    world.fake.objects["Deployment", "chat-standby"]["spec"]["replicas"] = 3  # asked for, late
    looks = itertools.count()
    pods, late = world.fake._made, {"chat-standby-1", "chat-standby-2"}

    def made() -> Iterator[Any]:
        for each in pods():
            starts = each["kind"] == "Pod" and each["metadata"]["name"] in late
            if starts and next(looks) < 40:
                yield {**each, "status": {"conditions": [UNREADY]}}
            else:
                yield each

    world.fake._made = made  # type: ignore[method-assign]
    told = world.go()
    assert told.end == "moved"
    lines = "\n".join(world.heard.lines)
    assert lines.index("gets 3 servers") < lines.index("takes the traffic\n")
    assert next(looks) >= 40, "it moved before they were there"


def test_where_nobody_is_served_the_traffic_does_not_wait_for_further_servers(world: World) -> None:
    world.fake.objects["Deployment", "chat"]["spec"]["replicas"] = 2
    world.fake.ready = lambda each: each["metadata"]["name"] == "chat-standby"
    made = world.go()
    assert made.end == "moved"
    assert made.notes == (
        "no server of the pool main is ready: the pool standby takes the traffic with 1 of 2 "
        "servers, and gets the others meanwhile",
    )
    assert world.record.current.number == 2  # servers and traffic in one
    assert world.replicas("chat-standby") == 2
    assert leads_to(world.fake) == "chat-standby"


def test_servers_that_find_no_gpu_are_told_and_not_waited_for() -> None:
    world = World(gpus=4)
    world.fake.running = 900.0
    made = world.go()
    assert made.end == "moved"
    assert made.notes == (
        "the pool standby would need 18 servers (900 requests run or wait, 51 a server), and there "
        "are GPUs for 1",
    )


def test_a_standby_that_is_refuted_once_it_serves_gives_the_traffic_back(world: World) -> None:
    asked = []
    told = world.fake.proxy

    def proxy(namespace: str, pod: str, *rest: Any, **more: Any) -> tuple[int, bytes]:
        asked.append(pod)
        if leads_to(world.fake) == "chat-standby":
            world.fake.silent = {"chat-standby"}
        return told(namespace, pod, *rest, **more)

    world.fake.proxy = proxy  # type: ignore[method-assign]
    made = world.go()
    assert (made.end, made.exit_code) == ("undone", ExitCode.CRITICAL)
    assert "ngram, K = 3 was refuted" in made.words
    assert leads_to(world.fake) == "chat"
    assert world.record.current.restores == 1


def test_a_standby_that_is_refuted_keeps_the_traffic_where_nobody_else_answers(
    world: World,
) -> None:
    told = world.fake.proxy
    world.fake.ready = lambda each: each["metadata"]["name"] == "chat-standby"

    def proxy(namespace: str, pod: str, *rest: Any, **more: Any) -> tuple[int, bytes]:
        if leads_to(world.fake) == "chat-standby":
            world.fake.silent = {"chat-standby"}
        return told(namespace, pod, *rest, **more)

    world.fake.proxy = proxy  # type: ignore[method-assign]
    made = world.go()
    assert (made.end, made.exit_code) == ("unproven", ExitCode.UNKNOWN)
    assert "which is refuted and kept" in made.words
    assert "no server of the pool main is ready to take it back" in made.words
    assert leads_to(world.fake) == "chat-standby"


def test_a_standby_that_answers_is_taken_where_nobody_else_does(world: World) -> None:
    world.fake.ready = lambda each: each["metadata"]["name"] == "chat-standby"
    world.fake.silent = {"chat-standby"}
    made = world.go()
    assert (made.end, made.mechanism) == ("unproven", "switch")
    assert made.notes[0].startswith("the standby is taken, as no other server answers: chat-stand")
    assert leads_to(world.fake) == "chat-standby"
    world.fake.ready = lambda _: True
    assert world.go("none").mechanism == "rolling"  # and the next rung follows
    assert world.drafts_with("chat") == "none"


def test_a_standby_that_talks_nonsense_is_worse_than_nobody(world: World) -> None:
    told = world.fake.proxy
    world.fake.ready = lambda each: each["metadata"]["name"] == "chat-standby"

    def proxy(*given: Any, **more: Any) -> tuple[int, bytes]:
        status, body = told(*given, **more)
        if leads_to(world.fake) == "chat-standby":
            body = body.replace(b"Cold air falls and warm air rises.", b"!" * 90)
        return status, body

    world.fake.proxy = proxy  # type: ignore[method-assign]
    made = world.go()
    assert made.end == "undone"
    assert "no server of the pool main is ready to take it back" in made.words
    assert leads_to(world.fake) == "chat"


def test_an_undo_says_how_it_went() -> None:
    world = World(standby=False)
    world.fake.stubborn = {"chat"}
    told = world.fake.proxy

    def proxy(namespace: str, pod: str, *rest: Any, **more: Any) -> tuple[int, bytes]:
        if world.drafts_with("chat") == "eagle3" and world.record.current.number > 2:
            world.fake.silent, world.fake.stubborn = {"chat"}, set()
        return told(namespace, pod, *rest, **more)

    world.fake.proxy = proxy  # type: ignore[method-assign]
    made = world.go("none")
    assert made.end == "undone"
    assert "and eagle3, K = 3 was brought back, but chat-0: " in made.words
    assert "serves again" not in made.words


def test_a_rung_that_answers_is_kept_where_nobody_was_served_before() -> None:
    world = World(standby=False)
    world.fake.ready = _drafts_not
    world.fake.stubborn = {"chat"}
    made = world.go("none")
    assert made.end == "unproven"
    assert "no server was ready before" in made.words
    assert world.drafts_with("chat") == "none"


def _drafts_not(deployment: Any) -> bool:
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    return bool(labels["specctl.dev/spec-method"] == "none")


def test_what_waits_is_load_too(world: World) -> None:
    world.fake.running, world.fake.queued = 40.0, 100.0
    world.go()
    assert world.replicas("chat-standby") == 3  # 140 of 51 a server


def test_a_service_that_leads_elsewhere_is_no_move(world: World) -> None:
    world.fake._slices = lambda service: []  # type: ignore[method-assign]
    made = world.go()
    assert made.end == "undone"
    assert "Service chat leads to no server" in made.words
    assert leads_to(world.fake) == "chat"


def test_without_a_standby_pods_are_replaced_and_a_refuted_rung_is_undone() -> None:
    world = World(standby=False)
    world.fake.stubborn = {"chat"}  # drafts although it should not
    made = world.go("none")
    assert (made.end, made.mechanism) == ("undone", "rolling")
    assert world.drafts_with("chat") == "eagle3"
    assert world.record.current.restores == 1
    world.fake.stubborn = set()
    assert world.go("none").end == "moved"


def test_from_the_standby_the_main_pool_is_replaced_behind_it(world: World) -> None:
    world.go()
    world.heard.lines.clear()
    made = world.go()
    assert (made.end, made.source, made.target) == ("moved", "ngram, K = 3", "no speculation")
    assert leads_to(world.fake) == "chat"
    assert (world.drafts_with("chat"), world.drafts_with("chat-standby")) == ("none", "ngram")
    with pytest.raises(UsageError, match="nothing to fall back to"):
        world.go()


def test_an_api_server_that_is_away_for_a_while_is_waited_for(world: World) -> None:
    told = world.fake.apply
    calls = itertools.count()

    def apply(*args: Any, **more: Any) -> Any:
        if next(calls) in {3, 17}:
            world.fake.away = 2
        return told(*args, **more)

    world.fake.apply = apply  # type: ignore[method-assign]
    assert world.go().end == "moved"
    assert "it is done again in" in world.heard
    assert leads_to(world.fake) == "chat-standby"


def test_an_api_server_that_stays_away_is_said_in_a_line_and_the_same_completes_it(
    world: World,
) -> None:
    told, down = world.fake.apply, [False]

    def apply(obj: Any, dry_run: bool = False, **more: Any) -> Any:
        if obj["kind"] == "Service" and not dry_run:
            down[0] = True
        if down[0]:
            world.fake.away = 10**6
        return told(obj, dry_run=dry_run, **more)

    world.fake.apply = apply  # type: ignore[method-assign,assignment]
    with pytest.raises(SpecctlError, match="in the middle of a move") as caught:
        world.go()
    assert caught.value.exit_code is ExitCode.UNKNOWN
    assert caught.value.hint == "what serves goes on; the same command completes what was begun"
    world.fake.apply, world.fake.away = told, 0  # type: ignore[method-assign]
    assert world.go().end == "moved"
    assert leads_to(world.fake) == "chat-standby"


def test_a_cluster_that_is_not_to_be_reached_at_all_is_said_at_once(world: World) -> None:
    def connect(_: float | None) -> Any:
        raise SpecctlError("no answer")

    with pytest.raises(SpecctlError, match="^no answer$"):
        carry.go(connect, None, "chat", None, world.heard)


@pytest.mark.parametrize("rung", [None, "none"], ids=["the-same", "another"])
@pytest.mark.parametrize("write", range(1, 9))
def test_of_two_operators_at_once_one_is_told_and_nothing_is_half_done(
    world: World, write: int, rung: str | None
) -> None:
    """The second comes just before any write of the first."""
    told, count = world.fake.apply, [0]
    other: list[str] = []

    def apply(obj: Any, dry_run: bool = False, **more: Any) -> Any:
        count[0] += not dry_run
        if count[0] == write and not other:
            other.append("begun")
            other[0] = world.go(rung).end
        return told(obj, dry_run=dry_run, **more)

    world.fake.apply = apply  # type: ignore[method-assign,assignment]
    told_so = None
    try:
        assert world.go().end == "moved"
    except SpecctlError as error:
        told_so = error
    if told_so is not None:
        assert re.search("deployed revision|changed Service chat while", told_so.message)
        assert str(told_so.hint).startswith("specctl status chat")
    assert other == ["moved"]
    world.fake.apply = told  # type: ignore[method-assign]
    # What the last of them wanted is there, whole.
    record = world.record.current
    assert record.state == "ready"
    assert leads_to(world.fake) == (
        "chat-standby" if record.options.get("traffic") == "standby" else "chat"
    )


@pytest.mark.parametrize("lost", [False, True], ids=["written-second", "answer-lost"])
def test_of_two_commands_of_one_user_at_the_same_second_one_moves_and_the_other_is_told(
    world: World, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked, and ask for the same: the other's intent comes before this one's."""
    monkeypatch.setattr("speccli.core.deploy.prepare.now", lambda: "2026-11-30T12:00:00+00:00")
    monkeypatch.setattr("speccli.core.deploy.cluster.now", lambda: "2026-11-30T12:00:00+00:00")
    told, others = world.fake.apply, list[Outcome]()

    def apply(obj: Any, dry_run: bool = False, **more: Any) -> Any:
        if not dry_run and not others:
            world.fake.apply = told  # type: ignore[method-assign]
            others.append(world.go())
            if lost:
                raise TimedOut("no answer from https://fake within 10 s")
        return told(obj, dry_run=dry_run, **more)

    world.fake.apply = apply  # type: ignore[method-assign,assignment]
    with pytest.raises(SpecctlError, match=r"^another command of .+ deployed revision 2") as caught:
        world.go()
    assert caught.value.exit_code is ExitCode.UNKNOWN
    assert "\n" not in caught.value.message
    assert str(caught.value.hint).startswith("specctl status chat")
    assert [each.end for each in others] == ["moved"]
    assert (world.record.current.number, world.record.current.state) == (2, "ready")
    assert leads_to(world.fake) == "chat-standby"


def test_who_completes_what_another_has_begun_is_told_so_and_the_other_too(world: World) -> None:
    told, others = world.fake.apply, list[Outcome]()

    def apply(obj: Any, dry_run: bool = False, **more: Any) -> Any:
        if obj["kind"] == "Service" and not dry_run and not others:
            world.fake.apply = told  # type: ignore[method-assign]
            others.append(world.go())
        return told(obj, dry_run=dry_run, **more)

    world.fake.apply = apply  # type: ignore[method-assign,assignment]
    with pytest.raises(SpecctlError, match="somebody changed Service chat while revision 2"):
        world.go()
    assert [each.end for each in others] == ["moved"]
    current = world.record.current
    begun = f"revision {current.number}, begun by {current.by} at {current.at}, is gone on with"
    assert begun in world.heard


@pytest.mark.parametrize("rung", [None, "none"])
@pytest.mark.parametrize("serves", ["main", "standby"])
def test_a_write_whose_answer_never_came_is_no_second_step(rung: str | None, serves: str) -> None:
    def begun() -> World:
        world = World()
        if serves == "standby":
            world.go()
        return world

    down = serves == "standby" or rung is not None
    for world, made in without_an_answer(begun, lambda world: world.go(rung)):
        assert (made.end, made.exit_code) == ("moved", ExitCode.OK)
        assert world.record.current.state == "ready"
        assert leads_to(world.fake) == ("chat" if down else "chat-standby")
        assert world.drafts_with("chat") == ("none" if down else "eagle3")
        assert made.target == ("no speculation" if down else "ngram, K = 3")


@pytest.mark.parametrize("serves", ["main", "standby"])
def test_a_move_after_which_nobody_answers_is_through(
    serves: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    if serves == "standby":
        world.go()
    away_afterwards(monkeypatch)
    made = world.go()
    assert (made.end, made.exit_code) == ("moved", ExitCode.OK)
    assert "it is done again in 1 s" in world.heard
    assert leads_to(world.fake) == ("chat" if serves == "standby" else "chat-standby")


def away_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the Service leads to is asked once without an answer."""
    told = going.leads_astray

    def astray(*given: Any, **more: Any) -> str | None:
        monkeypatch.setattr(going, "leads_astray", told)
        raise TimedOut("no answer from https://fake within 10 s")

    monkeypatch.setattr(going, "leads_astray", astray)


@pytest.mark.parametrize("how", ["switch", "roll", "behind"])
def test_an_undo_whose_answer_never_came_does_not_make_what_was_refuted_again(how: str) -> None:
    def begun() -> World:
        world = World(standby=how != "roll")
        if how == "behind":
            world.go()
        if how == "switch":
            world.fake._slices = lambda service: []  # type: ignore[method-assign]
        else:
            world.fake.stubborn = {"chat"}  # drafts although it should not
        return world

    numbers = []
    for world, made in without_an_answer(
        begun, lambda world: world.go(None if how == "switch" else "none")
    ):
        assert (made.end, made.exit_code) == ("undone", ExitCode.CRITICAL)
        assert leads_to(world.fake) == ("chat-standby" if how == "behind" else "chat")
        assert world.drafts_with("chat") == "eagle3"
        assert "refuted" in made.words
        numbers.append(world.record.current.number)
    assert set(numbers) == {numbers[-1]}, "one move and one undo, as where all is answered"


def unanswered(world: World, which: Callable[[int, Any], bool]) -> list[int]:
    """The server makes one write, and is not heard: the first for whose number and object it is.

    The list has that number once it has happened.
    """
    told, count = world.fake.apply, itertools.count(1)
    lost: list[int] = []

    def apply(obj: Any, dry_run: bool = False, **more: Any) -> Any:
        done = told(obj, dry_run=dry_run, **more)
        if not dry_run and not lost and which(number := next(count), obj):
            lost.append(number)
            raise TimedOut("no answer from https://fake within 10 s")
        return done

    world.fake.apply = apply  # type: ignore[method-assign,assignment]
    return lost


SceneT = TypeVar("SceneT", bound=World)
Made = TypeVar("Made")


def without_an_answer(
    begun: Callable[[], SceneT], do: Callable[[SceneT], Made]
) -> Iterator[tuple[SceneT, Made]]:
    """Do it once for each write that it makes, whose answer is lost; last with every answer."""
    for write in itertools.count(1):
        world = begun()
        lost = unanswered(world, lambda count, _, write=write: count == write)  # type: ignore[misc]
        yield world, do(world)
        if not lost:
            assert write > 5, "hardly anything was written"
            return


@pytest.mark.parametrize("rung", [None, "none"], ids=["the-same", "another"])
def test_who_waited_for_an_answer_while_somebody_else_deployed_is_told_and_changes_nothing(
    rung: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write is not made, its answer does not come, and another operator comes in between."""
    told_so = []
    for write in itertools.count(1):
        world = World()
        told, count = world.fake.apply, itertools.count(1)
        others: list[Outcome] = []
        after: list[dict[Any, Any]] = []

        def apply(obj: Any, dry_run: bool = False, **more: Any) -> Any:
            if dry_run or others or next(count) != write:  # noqa: B023 - it ends with its round
                return told(obj, dry_run=dry_run, **more)  # noqa: B023
            world.fake.apply = told  # type: ignore[method-assign] # noqa: B023
            with monkeypatch.context() as elsewhere:
                elsewhere.setattr("speccli.core.deploy.prepare.who", lambda: "other@elsewhere")
                others.append(world.go(rung))  # noqa: B023
            after.append(copy.deepcopy(world.fake.objects))  # noqa: B023
            raise TimedOut("no answer from https://fake within 10 s")

        world.fake.apply = apply  # type: ignore[method-assign,assignment]
        made, error = _tried(world)
        if error is not None:
            assert error.exit_code is ExitCode.UNKNOWN
            assert "other@elsewhere deployed revision" in error.message
            assert str(error.hint).startswith("specctl status chat")
            assert world.fake.objects == after[0]
            told_so.append(write)
        else:
            # Whoever came in between completed what this one had begun, or nobody did.
            assert made is not None
            assert made.end == "moved"
            assert world.record.current.by != "other@elsewhere"
        assert all(each.end == "moved" for each in others)
        assert world.record.current.state == "ready"
        if not others:
            break
    assert told_so[0] == 1
    assert rung is None or told_so == list(range(1, write))


def _tried(world: World) -> tuple[Outcome | None, SpecctlError | None]:
    try:
        return world.go(), None
    except SpecctlError as error:
        return None, error


def test_a_deployment_that_is_deleted_in_the_middle_of_a_move_is_not_made_again(
    world: World,
) -> None:
    def apply(obj: Any, dry_run: bool = False, **more: Any) -> Any:
        if dry_run:
            return told(obj, dry_run=dry_run, **more)
        world.fake.objects.clear()
        world.fake.objects.update(elsewhere)
        raise TimedOut("no answer from https://fake within 10 s")

    told, world.fake.apply = world.fake.apply, apply  # type: ignore[method-assign,assignment]
    elsewhere = {key: each for key, each in world.fake.objects.items() if key[0] == "Namespace"}
    with pytest.raises(SpecctlError, match="deployment chat was taken away while a move of it"):
        world.go()
    assert world.fake.objects == elsewhere


def test_less_of_a_draft_leaves_the_standby_alone_which_is_then_gone_to(world: World) -> None:
    template = copy.deepcopy(world.fake.objects["Deployment", "chat-standby"]["spec"]["template"])
    assert world.go("k1").target == "eagle3, K = 1"
    assert world.fake.objects["Deployment", "chat-standby"]["spec"]["template"] == template
    made = world.go("ngram")
    assert (made.mechanism, made.end, made.target) == ("switch", "moved", "ngram, K = 3")
