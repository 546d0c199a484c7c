"""Windows, floors and baselines are of one method: n-gram is never judged by EAGLE-3's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from speccli.core.baseline import Baseline, Key
from speccli.core.config import Settings
from speccli.core.fallback.measured import Bench
from speccli.core.fallback.sight import Looking, Sight, baseline_of, settings_of
from speccli.core.fallback.standing import Label, Standing, standing, weighed
from speccli.core.kube.record import as_object
from speccli.core.kube.source import PodSource
from speccli.core.sources.scrape import ScrapeSource
from speccli.core.sources.targets import parse_targets
from speccli.core.values import Number
from tests.core.alert.streams import recorded
from tests.core.fallback.test_carry import World
from tests.core.fallback.test_measured import usual
from tests.core.fallback.watched import Server
from tests.support.engine_page import Engine, serving


@cache
def good() -> Baseline:
    return recorded("steady")


def of(**key: Any) -> Baseline:
    return replace(good(), key=Key(**key))


def stands(world: World, at: float = 0.0) -> Standing:
    server: Any = Server(world.fake)
    return standing(server, None, "chat", at)


@pytest.fixture(scope="module")
def before_and_after() -> tuple[Standing, Standing]:
    world = World("alerts.acceptance_floor=0.45", "alerts.hold=20m")
    before = stands(world)
    world.go()
    return before, stands(world)


Both = tuple[Standing, Standing]


def test_where_a_deployment_stands(before_and_after: Both) -> None:
    before, after = before_and_after
    here = before.situation
    assert [step.name for step in here.ladder] == ["eagle3", "k1", "ngram", "none"]
    assert (here.at, here.standby, here.revision, here.busy) == (0, 2, 1, None)
    assert [step.own for step in here.ladder] == [True, True, False, False]
    here = after.situation
    assert (here.at, here.standby, here.revision) == (2, None, 2)  # what serves is no standby
    assert before.situation.configuration == after.situation.configuration
    assert (str(before.label), str(after.label)) == ("main-eagle3-k3", "standby-ngram-k3")


def test_another_draft_is_another_configuration_and_another_budget_is_none(
    before_and_after: Both,
) -> None:
    same = before_and_after[0].situation.configuration
    assert stands(World("fallback.moves_per_hour=5")).situation.configuration == same
    other = World("draft.revision=0123456789abcdef0123456789abcdef01234567")
    assert stands(other).situation.configuration != same


def test_a_target_that_is_updated_is_looked_at_anew(before_and_after: Both) -> None:
    before = before_and_after[0].label
    new = stands(World("target.revision=0123456789abcdef0123456789abcdef01234567")).label
    assert new != before
    assert str(new) == str(before)


def test_a_revision_under_way_is_busy_and_one_that_was_killed_is_not_for_ever() -> None:
    world = World()
    record = world.record
    begun = record.with_current(state="applying", by="ann@laptop")
    world.fake.objects["ConfigMap", "chat-specctl"]["data"] = as_object(begun, "llm")["data"]
    at = datetime.fromisoformat(begun.current.at).timestamp()
    busy = stands(world, at + 60).situation.busy
    assert busy == "revision 1 is being deployed by ann@laptop"
    assert stands(world, at + 7200).situation.busy is None


def looking(**settings: Any) -> Looking:
    return Looking("chat", "llm", Settings(**settings), 15.0)


def test_the_recipes_floor_is_of_its_own_draft(before_and_after: Both) -> None:
    before, after = before_and_after
    own, ngram = settings_of(looking(), before), settings_of(looking(), after)
    assert (own.method, own.floor, own.hold) == ("eagle3", 0.45, "20m")
    assert (ngram.method, ngram.floor) == ("ngram", 0.0)
    assert (own.deployment, own.namespace) == ("chat", "llm")


def test_a_prometheus_is_asked_for_the_pool_that_serves(before_and_after: Both) -> None:
    _, after = before_and_after
    told = settings_of(looking(prometheus="http://p:9090", selector='cluster="a"'), after)
    assert told.selector == ('cluster="a",namespace="llm",specctl_deployment="chat",pool="standby"')
    assert told.deployment is None


EAGLE3 = Label("main", "eagle3", 3, "head", None)
NGRAM = Label("standby", "ngram", 3, None, None)


def test_ngram_is_never_judged_by_eagle3s_baseline() -> None:
    eagle3, ngram = of(method="eagle3", k=3), of(method="ngram", k=3)
    assert baseline_of([eagle3], NGRAM, own=False) is None
    assert baseline_of([eagle3, ngram], NGRAM, own=False) == ngram
    assert baseline_of([ngram, eagle3], EAGLE3, own=True) == eagle3


def test_another_k_has_another_baseline() -> None:
    assert baseline_of([of(method="eagle3", k=5)], EAGLE3, own=True) is None
    assert baseline_of([of(method="eagle3")], EAGLE3, own=True) is not None


def test_a_baseline_that_does_not_say_is_of_the_recipes_own_draft() -> None:
    assert baseline_of([of()], EAGLE3, own=True) is not None
    assert baseline_of([of()], NGRAM, own=False) is None


def test_a_look_is_at_the_pool_that_serves(before_and_after: Both, tmp_path: Path) -> None:
    _, after = before_and_after
    sight = Sight(replace(looking(), state=tmp_path), after, lambda _: None)
    source = sight._watcher.opened.poller.source
    assert isinstance(source, PodSource)
    assert source.only == "specctl.dev/pool=standby"
    terms = sight._watcher.asked.terms
    assert (terms.baseline, terms.thresholds.acceptance_floor) == (None, 0.0)


def test_what_was_seen_before_a_move_is_forgotten_and_a_restart_goes_on(
    before_and_after: Both, tmp_path: Path
) -> None:
    before, _ = before_and_after
    look = replace(looking(hold="1s"), state=tmp_path)

    async def seen(*, leave: bool) -> list[str]:
        sight = Sight(look, before, lambda _: None)
        source = ScrapeSource(parse_targets([url]), interval_s=0.1, identify_engines=False)
        sight._watcher.opened.poller.source = source
        first = [each.code for each in (await sight.look()).signs]
        await asyncio.sleep(0.3)
        await sight.look()
        await (sight.leave() if leave else sight.aclose(0.0))
        return first

    with serving(Engine(accepted=0.0)) as url:
        assert asyncio.run(seen(leave=False)) == ["ZERO_ACCEPTANCE"]  # since the process began
    with serving(Engine(accepted=0.6)) as url:
        assert asyncio.run(seen(leave=True)) == ["ZERO_ACCEPTANCE"]  # remembered for three looks
        assert asyncio.run(seen(leave=False)) == []


def test_low_acceptance_under_ngram_is_no_sign_and_under_eagle3_it_is(
    before_and_after: Both, tmp_path: Path
) -> None:
    """The same pages, under either label."""

    async def look(standing: Standing, folder: Path) -> list[str]:
        sight = Sight(replace(looking(hold="1s"), state=folder), standing, lambda _: None)
        source = ScrapeSource(parse_targets([url]), interval_s=0.1, identify_engines=False)
        sight._watcher.opened.poller.source = source
        codes: list[str] = []
        for _ in range(30):
            seen = await sight.look()
            codes = [each.code for each in seen.signs]
            if codes:
                break
            await asyncio.sleep(0.1)
        await sight.aclose(0.0)
        return codes

    before, after = before_and_after
    with serving(Engine(accepted=0.2)) as url:
        assert asyncio.run(look(before, tmp_path / "a")) == ["LOW_ACCEPTANCE"]
        assert asyncio.run(look(after, tmp_path / "b")) == []


def test_a_rung_is_passed_over_where_a_lower_one_was_measured_to_be_faster() -> None:
    """As the plan does it: n-gram loses at batch 64, and wins at 8."""
    now = stands(World(standby=False))

    def refused(batch: float) -> list[str]:
        told = weighed(now, Bench(usual(), now.found.top, Number.known(batch)))
        return [step.name for step in told.ladder if step.refusal is not None]

    assert refused(8) == []
    assert refused(64) == ["ngram"]
    warm = stands(World())
    told = weighed(warm, Bench(usual(), warm.found.top, Number.known(64)))
    assert told.ladder[2].refusal is None  # what is warm is not passed over
