"""Back through a canary: passed, refused, not to be told; cut short, refused again, in the dark."""

from __future__ import annotations

import copy
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from speccli.core.baseline import Baseline, Key
from speccli.core.deploy import cluster as deploying
from speccli.core.deploy.asked import Asked
from speccli.core.errors import ExitCode, SpecctlError, UsageError
from speccli.core.fallback import carry, moving
from speccli.core.fallback.carry import Restored
from speccli.core.fallback.ours import Ours
from speccli.core.fallback.refusals import configuration, refusals
from speccli.core.fallback.serving import serving
from speccli.core.fallback.trial import engine_ended
from speccli.core.fallback.ways import on_cluster
from speccli.core.kube.record import from_object, recipe_of
from speccli.core.manifests.options import RenderOptions
from speccli.core.recipes.load import load
from tests.core.deploy.fake_cluster import FakeCluster, Killed
from tests.core.deploy.test_cluster import PLAIN, RECIPE, leads_to
from tests.core.fallback.test_carry import (
    WITH_STANDBY,
    World,
    away_afterwards,
    quick,
    unanswered,
    without_an_answer,
)

__all__ = ["quick"]

CANARY = "chat-canary"
COUNTERS = ("drafts", "draft_tokens", "accepted", "tokens", "first", "decode_s", "ended", "failed")


class Busy(FakeCluster):
    """One whose servers have traffic: each look at a page is a window later."""

    def __init__(self, gpus: int = 8) -> None:
        super().__init__(gpus)
        self.rng = random.Random(5)
        self.counts: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(COUNTERS, 0.0))
        self.acceptance: dict[str, float] = {}
        """By Deployment; 0.6 where nothing is said."""
        self.slower: dict[str, float] = {}
        self.dark: set[str] = set()
        """Deployments whose pages nobody gives."""
        self.quiet = False
        self.restarted = False
        """Whether the canary's engine has ended, which then starts for long."""

    def proxy(self, *given: Any, **more: Any) -> tuple[int, bytes]:
        _, pod, _, path, *_ = given
        if pod.rpartition("-")[0] in self.dark:
            raise SpecctlError(f"cannot ask pod {pod}")
        answer = super().proxy(*given, **more)
        if path != "/metrics":
            self._ask(pod, 10.0)
            return answer
        if not self.quiet:
            self._ask(pod, 300.0)
        return 200, self._told(pod)

    def _ask(self, pod: str, drafts: float) -> None:
        name = pod.rpartition("-")[0]
        count, speculates = self.counts[pod], self._speculates(pod)
        rate = self.rng.gauss(self.acceptance.get(name, 0.6), 0.02) if speculates else 0.0
        tokens = drafts * (1 + 3 * rate)
        pace = (1 + self.slower.get(name, 0.0)) * self.rng.gauss(1.0, 0.01)
        told = {
            "drafts": drafts if speculates else 0.0,
            "draft_tokens": 3 * drafts if speculates else 0.0,
            "accepted": 3 * drafts * rate,
            "tokens": tokens + 6,
            "first": 6.0,
            "decode_s": tokens * 0.01 * pace,
            "ended": 6.0,
        }
        for key, value in told.items():
            count[key] += max(0.0, value)

    def _told(self, pod: str) -> bytes:
        c = self.counts[pod]
        lines = [
            f'vllm:generation_tokens_total{{engine="0"}} {c["tokens"]:.0f}',
            f'vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf"}} {c["first"]:.0f}',
            f'vllm:time_to_first_token_seconds_count{{engine="0"}} {c["first"]:.0f}',
            f'vllm:time_to_first_token_seconds_sum{{engine="0"}} {c["first"] / 10:.3f}',
            f'vllm:inter_token_latency_seconds_bucket{{engine="0",le="+Inf"}} {c["drafts"]:.0f}',
            f'vllm:inter_token_latency_seconds_count{{engine="0"}} {c["drafts"]:.0f}',
            f'vllm:inter_token_latency_seconds_sum{{engine="0"}} {c["decode_s"]:.3f}',
            f'vllm:request_success_total{{engine="0",finished_reason="stop"}} {c["ended"]:.0f}',
            self._runs(),
        ]
        if self._speculates(pod):
            name = "vllm:spec_decode_num"
            lines += [
                f'{name}_drafts_total{{engine="0"}} {c["drafts"]:.0f}',
                f'{name}_draft_tokens_total{{engine="0"}} {c["draft_tokens"]:.0f}',
                f'{name}_accepted_tokens_total{{engine="0"}} {c["accepted"]:.0f}',
            ]
            lines += [
                f'{name}_accepted_tokens_per_pos_total{{engine="0",position="{i}"}} '
                f"{c['accepted'] * share:.0f}"
                for i, share in enumerate((0.5, 0.3, 0.2))
            ]
        return ("\n".join(lines) + "\n").encode()

    def _made(self) -> Iterator[Any]:
        for each in super()._made():
            if each["kind"] == "Pod" and each["metadata"]["name"].startswith(CANARY):
                count = int(self.restarted)
                each["status"]["containerStatuses"] = [
                    {"name": "engine", "restartCount": count, "state": {"running": {}}}
                ]
                if self.restarted:
                    each["status"]["conditions"][0]["status"] = "False"
            yield each


class Scene(World):
    """A deployment whose warm standby serves, because its draft went bad."""

    def __init__(
        self,
        *changes: str,
        standby: bool = True,
        gpus: int = 16,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            "fallback.canary_drafts=1500",
            *changes,
            standby=standby,
            fake=Busy(gpus),
            options=options,
        )
        assert self.go().end == "moved"
        self.fake.calls.clear()

    @property
    def busy(self) -> Busy:
        assert isinstance(self.fake, Busy)
        return self.fake

    def back(self, **more: Any) -> Restored:
        return carry.restore(
            lambda _: self.fake,  # type: ignore[arg-type,return-value]
            None,
            "chat",
            self.heard,
            clock=lambda: float(next(self.clock)),
            sleep=lambda _: None,
            **more,
        )

    def tried(self) -> Any:
        every = (self.record.current, *self.record.previous)
        return next(each.trial for each in every if each.trial is not None)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_canary_that_is_well_brings_the_traffic_back_and_goes(scene: Scene) -> None:
    told = scene.back()
    assert (told.verdict, told.exit_code) == ("passed", ExitCode.OK)
    assert told.comparison is not None
    assert told.comparison.acceptance == pytest.approx(0.6, abs=0.02)
    assert leads_to(scene.fake) == "chat"
    assert ("Deployment", CANARY) not in scene.fake.objects
    now = scene.record.current
    assert (now.restores, now.state, "traffic" in now.options) == (1, "ready", False)
    assert scene.tried()["verdict"] == "passed"
    assert told.moved is not None
    assert told.moved.mechanism == "switch"
    with pytest.raises(UsageError, match="no fallback led to"):
        scene.back()


def test_the_canary_is_in_the_traffic_of_what_serves(scene: Scene) -> None:
    seen = []
    told = scene.fake.proxy

    def proxy(namespace: str, pod: str, *rest: Any, **more: Any) -> tuple[int, bytes]:
        if pod.startswith(CANARY):
            wanted = scene.fake.objects["Service", "chat"]["spec"]["selector"]
            template = scene.fake.objects["Deployment", CANARY]["spec"]["template"]
            seen.append(wanted.items() <= template["metadata"]["labels"].items())
            seen.append(leads_to(scene.fake) == "chat-standby")
        return told(namespace, pod, *rest, **more)

    scene.fake.proxy = proxy  # type: ignore[method-assign]
    scene.back()
    assert seen
    assert all(seen)


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        pytest.param({"acceptance": {CANARY: 0.3}}, "acceptance 0.3", id="acceptance"),
        pytest.param({"slower": {CANARY: 1.4}}, "slower per token than its siblings", id="speed"),
        pytest.param({"silent": {CANARY}}, "no speculation series", id="does-not-draft"),
        pytest.param({"acceptance": {CANARY: 0.0}}, "accepted", id="garbage"),
    ],
)
def test_a_bad_canary_is_refused_and_taken_away_and_nothing_has_moved(
    scene: Scene, spoilt: dict[str, Any], words: str
) -> None:
    for key, value in spoilt.items():
        setattr(scene.fake, key, value)
    told = scene.back()
    assert (told.verdict, told.exit_code, told.refusals) == ("refused", ExitCode.CRITICAL, 1)
    assert words in told.words
    assert "ngram, K = 3 serves on" in told.words
    assert leads_to(scene.fake) == "chat-standby"
    assert ("Deployment", CANARY) not in scene.fake.objects
    assert scene.record.current.state == "ready"


def test_a_canary_whose_engine_ends_is_refused(scene: Scene) -> None:
    told = scene.fake.proxy
    asked = [0]

    def proxy(namespace: str, pod: str, *rest: Any, **more: Any) -> tuple[int, bytes]:
        asked[0] += pod.startswith(CANARY)
        scene.busy.restarted = asked[0] > 13
        return told(namespace, pod, *rest, **more)

    scene.fake.proxy = proxy  # type: ignore[method-assign]
    found = scene.back()
    assert (found.verdict, found.refusals) == ("refused", 1)
    assert "ended and was started again" in found.words


@pytest.mark.parametrize(
    ("status", "before", "words"),
    [
        pytest.param({"restartCount": 1, "state": {"running": {}}}, 0, "started again", id="again"),
        pytest.param({"restartCount": 1, "state": {"running": {}}}, 1, None, id="before-its-proof"),
        pytest.param(
            {"restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            1,
            "the engine of chat-canary-0 ended: ",
            id="in-a-loop",
        ),
        pytest.param(
            {"restartCount": 0, "state": {"terminated": {"exitCode": 1}}},
            0,
            "the engine of chat-canary-0 ended: ",
            id="just-now",
        ),
    ],
)
def test_an_engine_that_ended_is_seen_though_it_does_not_serve(
    status: dict[str, Any], before: int, words: str | None
) -> None:
    pod: dict[str, Any] = {
        "metadata": {"name": "chat-canary-0", "labels": {"specctl.dev/pool": "canary"}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "containerStatuses": [{"name": "engine", **status}]},
    }
    told = engine_ended([pod], {"chat-canary-0": before})
    assert told is None if words is None else words in str(told)
    sibling = {**pod, "metadata": {**pod["metadata"], "labels": {"specctl.dev/pool": "standby"}}}
    leaving = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-30T03:00:00Z"}}
    evicted = {**pod, "status": {**pod["status"], "phase": "Failed"}}
    assert engine_ended([sibling, leaving, evicted], {}) is None


def test_it_is_not_tried_again_at_once_and_after_two_refusals_not_at_all(scene: Scene) -> None:
    scene.busy.acceptance = {CANARY: 0.3}
    assert scene.back().refusals == 1
    scene.fake.calls.clear()
    kept = scene.back()
    assert kept.verdict == "refused"
    assert "and is tried again from" in kept.words
    assert scene.fake.calls == []
    again = scene.back(force=True)
    assert again.refusals == 2
    assert "refused 2 times, it stays down" in again.words
    scene.fake.calls.clear()
    down = scene.back()
    assert "2 times and stays down until its draft or the recipe changes, or --force" in down.words
    assert (kept.refusals, down.refusals) == (1, 2)
    assert scene.fake.calls == []
    scene.busy.acceptance = {}
    assert scene.back(force=True).verdict == "passed"


def test_the_wait_doubles_with_each_refusal(scene: Scene) -> None:
    scene.busy.acceptance = {CANARY: 0.3}
    scene.back()
    recipe = recipe_of(scene.record.current)
    seen = refusals(scene.record, configuration(recipe))
    assert seen.last is not None
    due = datetime.fromisoformat(seen.last) + timedelta(hours=2)  # restore_after is 1h
    assert due.isoformat() in scene.back().words
    assert due > datetime.now(UTC)


def test_another_draft_is_another_configuration(scene: Scene) -> None:
    recipe = recipe_of(scene.record.current)
    from dataclasses import replace

    mended = replace(recipe, draft=replace(recipe.draft, revision="mended"))
    slower = replace(recipe, alerts=replace(recipe.alerts, acceptance_floor=0.5))
    assert configuration(mended) != configuration(recipe) == configuration(slower)


def test_without_traffic_nothing_is_told_and_nothing_moves(scene: Scene) -> None:
    scene.busy.quiet = True
    told = scene.back(lasting_s=50.0)
    assert (told.verdict, told.exit_code) == ("inconclusive", ExitCode.UNKNOWN)
    assert "not to be told in time: " in told.words
    assert leads_to(scene.fake) == "chat-standby"
    assert told.refusals == 0
    scene.busy.quiet = False
    assert scene.back().verdict == "passed"  # it was no refusal


def test_metrics_that_are_gone_beforehand_change_nothing(scene: Scene) -> None:
    scene.busy.dark = {"chat-standby"}
    before = copy.deepcopy(scene.fake.objects)
    told = scene.back()
    assert told.verdict == "inconclusive"
    assert "metrics are gone: no answer from the servers of the pool standby" in told.words
    assert scene.fake.objects == before


def test_metrics_that_go_in_the_middle_end_the_trial_and_move_nothing(scene: Scene) -> None:
    told, asked = scene.fake.proxy, [0]

    def proxy(namespace: str, pod: str, *rest: Any, **more: Any) -> tuple[int, bytes]:
        asked[0] += pod.startswith(CANARY)
        scene.busy.dark = {"chat-standby"} if asked[0] > 14 else set()
        if "chat-canary" not in [name for _, name in scene.fake.objects]:
            scene.busy.dark = set()
        return told(namespace, pod, *rest, **more)

    scene.fake.proxy = proxy  # type: ignore[method-assign]
    found = scene.back(dark_s=10.0)
    assert found.verdict == "inconclusive"
    assert "metrics are gone" in found.words
    assert leads_to(scene.fake) == "chat-standby"
    assert ("Deployment", CANARY) not in scene.fake.objects


def test_an_api_server_away_for_longer_than_metrics_may_be_is_no_verdict_on_the_canary(
    scene: Scene,
) -> None:
    told, asked = scene.fake.proxy, itertools.count(1)

    def proxy(namespace: str, pod: str, *rest: Any, **more: Any) -> tuple[int, bytes]:
        if pod.startswith(CANARY) and next(asked) == 14:
            scene.fake.away = 40
        return told(namespace, pod, *rest, **more)

    scene.fake.proxy = proxy  # type: ignore[method-assign]
    found = scene.back(dark_s=10.0)
    assert "no answer from https://fake; it is done again" in scene.heard
    assert (found.verdict, found.refusals) == ("passed", 0)
    assert leads_to(scene.fake) == "chat"
    canaries = [each.number for each in scene.record.previous if each.trial is not None]
    assert len(canaries) == 1


def test_a_canary_that_finds_no_gpu_changes_nothing() -> None:
    scene = Scene(gpus=4)
    told = scene.back()
    assert told.verdict == "inconclusive"
    assert "a canary needs 2 GPUs of one node, and 0 are free in all; nothing was" in told.words
    assert scene.fake.calls == []


def test_a_draft_that_was_mended_in_place_is_loaded_before_it_serves(scene: Scene) -> None:
    scene.busy.acceptance = {"chat": 0.35}  # what it loaded before; its first tokens pass
    told = scene.fake.apply

    def apply(obj: Any, dry_run: bool = False, **more: Any) -> Any:
        notes = obj["spec"]["template"]["metadata"]["annotations"] if _is_main(obj) else {}
        if not dry_run and "specctl.dev/restarted-for" in notes:
            scene.busy.acceptance = {}
        return told(obj, dry_run=dry_run, **more)

    scene.fake.apply = apply  # type: ignore[method-assign,assignment]
    assert scene.back().verdict == "passed"
    assert "the main pool is started anew: it accepts 0.3" in scene.heard
    assert leads_to(scene.fake) == "chat"
    number = next(r.number for r in scene.record.previous if r.trial is not None)
    assert scene.record.current.options["restarted"] == {"main": number}


def _is_main(obj: Any) -> bool:
    return bool(obj["kind"] == "Deployment" and obj["metadata"]["name"] == "chat")


def test_without_a_standby_the_canary_is_among_what_was_rolled_and_so_is_the_way_back() -> None:
    scene = Scene(standby=False)
    told = scene.back()
    assert told.verdict == "passed"
    assert told.moved is not None
    assert told.moved.mechanism == "rolling"
    assert scene.drafts_with("chat") == "eagle3"
    assert scene.record.current.restores == 1
    assert ("Deployment", CANARY) not in scene.fake.objects


def test_a_canary_that_serves_is_no_reason_to_lose_the_way_back(scene: Scene) -> None:
    scene.busy.acceptance = {CANARY: 0.3}
    scene.back()
    scene.busy.acceptance = {}
    scene.go()  # further down, behind the standby
    assert scene.drafts_with("chat") == "none"
    told = scene.back(force=True)
    assert told.verdict == "passed"
    assert scene.drafts_with("chat") == "eagle3"
    assert leads_to(scene.fake) == "chat"


def test_a_main_pool_of_a_fixed_number_keeps_it(scene: Scene) -> None:
    scene.fake.running = 80.0
    assert scene.back().verdict == "passed"
    assert scene.replicas("chat") == 1
    assert not [line for line in scene.heard.lines if "the pool main gets" in line]


class Scaled(Scene):
    """One whose autoscalers hold each pool at its minimum; the standby has four servers."""

    def __init__(self, gpus: int, *, standby: int = 4) -> None:
        options = {**WITH_STANDBY, "autoscaler": "hpa"}
        super().__init__("scaling.max=8", gpus=gpus, options=options)
        self.scale("chat-standby", standby)
        self.slow = False
        """Whether servers that are asked for do not come."""
        self.least: list[int] = []
        """Of the main pool, one after the other."""
        told = self.fake.apply

        def apply(obj: Any, dry_run: bool = False, **more: Any) -> Any:
            made = told(obj, dry_run=dry_run, **more)
            if not dry_run and obj["kind"] == "HorizontalPodAutoscaler":
                name, least = obj["spec"]["scaleTargetRef"]["name"], obj["spec"]["minReplicas"]
                if name == "chat" and self.least[-1:] != [least]:
                    self.least.append(least)
                if not self.slow and self.replicas(name) < least:
                    self.scale(name, least)
            return made

        self.fake.apply = apply  # type: ignore[method-assign,assignment]

    def scale(self, name: str, count: int) -> None:
        self.fake.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name, "namespace": "llm"},
                "spec": {"replicas": count},
            },
            force=True,
            manager="kube-controller-manager",
        )


def test_the_main_pool_has_the_servers_for_the_load_before_it_gets_the_traffic_back() -> None:
    scene = Scaled(24)
    scene.fake.running = 40.0  # each of four: 160, 51 a server
    seen: list[int] = []
    told = scene.fake.apply

    def apply(obj: Any, dry_run: bool = False, **more: Any) -> Any:
        if obj["kind"] == "Service" and obj["metadata"]["name"] == "chat" and not dry_run:
            seen.append(scene.replicas("chat"))
        return told(obj, dry_run=dry_run, **more)

    scene.fake.apply = apply  # type: ignore[method-assign,assignment]
    assert scene.back().verdict == "passed"
    assert leads_to(scene.fake) == "chat"
    assert seen[-1] == 4
    assert scene.least == [1, 4, 1], "held until its metrics tell of the load"
    assert "raised" not in scene.record.current.options
    with pytest.raises(UsageError, match="no fallback led to"):
        scene.back()


def test_a_main_pool_that_is_held_is_let_go_by_the_same_again() -> None:
    scene = Scaled(24)
    scene.fake.running = 40.0
    told, away = scene.fake.apply, [False]

    def apply(obj: Any, dry_run: bool = False, **more: Any) -> Any:
        away[0] = away[0] or "its autoscaler decides again in 180 s" in scene.heard
        if away[0]:
            raise SpecctlError("no answer")
        return told(obj, dry_run=dry_run, **more)

    scene.fake.apply = apply  # type: ignore[method-assign,assignment]
    first = scene.back()
    assert first.verdict == "passed"
    assert first.moved is not None
    assert first.moved.notes[-1].startswith("the main pool keeps 4 servers at least until chat is")
    assert scene.record.current.options["raised"] == {"main": 4}
    scene.fake.apply = told  # type: ignore[method-assign]
    assert scene.back().verdict == "passed"
    assert "raised" not in scene.record.current.options
    assert scene.least == [1, 4, 1]
    with pytest.raises(UsageError, match="no fallback led to"):
        scene.back()


def test_what_runs_on_the_canary_is_load_of_those_who_stay() -> None:
    scene = Scaled(24, standby=1)
    scene.fake.running = 40.0  # and as many on the canary
    assert scene.back().verdict == "passed"
    assert scene.least == [1, 2, 1]


def test_a_main_pool_that_finds_no_gpus_gets_no_traffic_and_no_canary_is_made() -> None:
    scene = Scaled(13)
    scene.fake.running = 100.0
    before = copy.deepcopy(scene.fake.objects)
    told = scene.back()
    assert (told.verdict, told.exit_code) == ("inconclusive", ExitCode.UNKNOWN)
    assert "the load needs 8 servers of it" in told.words
    assert "room for 2; nothing was changed" in told.words
    assert scene.fake.objects == before


def test_a_main_pool_that_is_late_gets_no_traffic_and_the_canarys_verdict_is_spent() -> None:
    scene = Scaled(24)
    scene.fake.running, scene.slow = 40.0, True
    told = scene.back()
    assert (told.verdict, told.exit_code) == ("inconclusive", ExitCode.UNKNOWN)
    assert "1 of 4 servers of the pool main were ready in time" in told.words
    assert "ngram, K = 3 serves on; the canary passed" in told.words
    assert leads_to(scene.fake) == "chat-standby"
    assert ("Deployment", CANARY) not in scene.fake.objects
    assert scene.least == [1, 4, 1]
    scene.slow = False
    scene.fake.calls.clear()
    assert scene.back().verdict == "passed"
    assert any(CANARY in call for call in scene.fake.calls)


def test_where_the_standby_died_the_traffic_goes_to_the_main_pool_as_it_is() -> None:
    scene = Scaled(13)
    scene.fake.running = 100.0
    found = on_cluster(scene.fake, None, "chat")[0]  # type: ignore[arg-type]
    here = serving(found, "llm")
    scene.fake.ready = lambda each: each["metadata"]["name"] != "chat-standby"
    mover = moving.Mover(
        lambda _: scene.fake,  # type: ignore[arg-type,return-value]
        here,
        scene.heard,
        moving.Terms(),
        Ours(0.0),
        lambda: float(next(scene.clock)),
        lambda _: None,
    )
    assert mover.switch("main", mover.warm("main")).end == "moved"
    assert leads_to(scene.fake) == "chat"


@pytest.mark.parametrize(
    ("force", "more", "verdict"),
    [
        pytest.param(True, {}, "refused", id="refused-and-insisted-on"),
        pytest.param(False, {}, "refused", id="refused"),
        pytest.param(False, {"lasting_s": 50.0}, "inconclusive", id="inconclusive"),
    ],
)
def test_an_answer_that_never_came_is_no_second_canary_and_no_second_refusal(
    force: bool, more: dict[str, Any], verdict: str
) -> None:
    def begun() -> Scene:
        scene = Scene()
        scene.busy.quiet = verdict == "inconclusive"
        scene.busy.acceptance = {} if scene.busy.quiet else {CANARY: 0.1}
        return scene

    for scene, told in without_an_answer(begun, lambda scene: scene.back(force=force, **more)):
        assert told.verdict == verdict
        assert told.refusals == (verdict == "refused")
        assert told.words.startswith(f"eagle3, K = 3 is {verdict}: ")
        assert told.words.endswith("; ngram, K = 3 serves on"), "and why, whoever was not heard"
        assert canaries(scene) == [verdict]
        assert ("Deployment", CANARY) not in scene.fake.objects
        assert leads_to(scene.fake) == "chat-standby"
        assert scene.record.current.state == "ready"


@pytest.mark.parametrize("slow", [False, True], ids=["passed", "stayed"])
def test_an_answer_that_never_came_after_a_canary_that_passed_is_no_second_canary(
    slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_RAISE_S", 30.0)

    def begun() -> Scaled:
        scene = Scaled(24)
        scene.fake.running, scene.slow = 40.0, slow
        return scene

    for scene, told in without_an_answer(begun, lambda scene: scene.back()):
        assert told.verdict == ("inconclusive" if slow else "passed")
        assert canaries(scene) == ["passed"]
        assert ("Deployment", CANARY) not in scene.fake.objects
        assert leads_to(scene.fake) == ("chat-standby" if slow else "chat")
        assert scene.record.current.state == "ready"
        assert "raised" not in scene.record.current.options
        assert not slow or "1 of 4 servers of the pool main were ready in time" in told.words


def test_a_return_after_which_nobody_answers_is_through(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    away_afterwards(monkeypatch)
    told = scene.back()
    assert (told.verdict, told.exit_code) == ("passed", ExitCode.OK)
    assert "it is done again in 1 s" in scene.heard
    assert canaries(scene) == ["passed"]
    assert leads_to(scene.fake) == "chat"


def canaries(scene: Scene) -> list[Any]:
    """What each that was tried came to."""
    every = (scene.record.current, *scene.record.previous)
    return [each.trial["verdict"] for each in every if each.trial is not None]


def test_a_return_whose_last_write_was_not_answered_is_through(scene: Scene) -> None:
    def last(_: int, obj: Any) -> bool:
        told = from_object(obj).current if obj["metadata"]["name"] == "chat-specctl" else None
        return bool(told and told.trial is None and told.state == "ready")

    unanswered(scene, last)
    told = scene.back()
    assert (told.verdict, told.exit_code) == ("passed", ExitCode.OK)
    assert leads_to(scene.fake) == "chat"
    assert scene.record.current.state == "ready"
    with pytest.raises(UsageError, match="no fallback led to"):
        scene.back()


def _stopped(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary passes, and the process ends before anything is moved."""

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        for way in ("switch", "behind", "roll"):
            patched.setattr(moving.Mover, way, stop)
        with pytest.raises(KeyboardInterrupt):
            scene.back()
    assert scene.tried()["verdict"] == "passed"
    scene.fake.calls.clear()


def _tries(scene: Scene) -> bool:
    scene.busy.acceptance = {CANARY: 0.05}
    told = scene.back()
    return told.verdict == "refused" and any(CANARY in call for call in scene.fake.calls)


def test_a_verdict_is_none_once_something_else_was_served(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped(scene, monkeypatch)
    scene.go("none")
    assert _tries(scene)


def test_a_verdict_is_none_for_another_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(standby=False)
    _stopped(scene, monkeypatch)
    plain: dict[str, Any] = {**PLAIN}
    recipe = load(RECIPE, ["storage.persist=false", "fallback.canary_drafts=1500", "draft.K=2"])
    deploying.deploy(
        lambda _: scene.fake,  # type: ignore[arg-type,return-value]
        Asked(recipe, RenderOptions(**plain)),
        scene.heard,
    )
    scene.go("none")
    assert _tries(scene)


@pytest.mark.parametrize(("hours", "again"), [(0.5, False), (2.0, True)])
def test_a_verdict_holds_for_an_hour(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, hours: float, again: bool
) -> None:
    _stopped(scene, monkeypatch)
    then = (datetime.now(UTC) + timedelta(hours=hours)).isoformat()
    monkeypatch.setattr("speccli.core.fallback.restoring.now", lambda: then)
    scene.busy.acceptance = {CANARY: 0.05}
    assert scene.back().verdict == ("refused" if again else "passed")


@pytest.mark.parametrize(
    ("key", "verdict"),
    [
        pytest.param(Key(method="eagle3", k=3), "refused", id="its-own"),
        pytest.param(Key(), "refused", id="that-does-not-say"),
        pytest.param(Key(method="ngram", k=3), None, id="another-method"),
        pytest.param(Key(method="eagle3", k=5), None, id="another-k"),
    ],
)
def test_a_baseline_of_something_else_is_not_what_a_canary_is_held_against(
    scene: Scene, key: Key, verdict: str | None
) -> None:
    known = Baseline("well", key, 0.9, 3.0, (), 1e4)
    if verdict is not None:
        assert scene.back(baseline=known).verdict == verdict  # 0.6, and 0.81 is wanted
        return
    before = copy.deepcopy(scene.fake.objects)
    with pytest.raises(UsageError, match="baseline well is of .* and chat drafts with eagle3, K ="):
        scene.back(baseline=known)
    assert scene.fake.objects == before


def test_killed_after_any_write_a_main_pool_that_is_raised_is_let_go_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scaled(24)
    scene.fake.running = 40.0
    _stopped(scene, monkeypatch)
    before = scene.fake.objects
    for count in range(80):
        scene.fake.objects, scene.fake.die_after = copy.deepcopy(before), count
        scene.fake.calls.clear()
        try:
            scene.back()
        except Killed:
            scene.fake.die_after = None
            assert scene.back().verdict == "passed", count
            assert leads_to(scene.fake) == "chat", count
            current = scene.record.current
            assert (current.state, current.options.get("raised")) == ("ready", None), count
            assert scene.least[-1] == 1, count
        else:
            assert count > 12
            return
    raise AssertionError("never through")
