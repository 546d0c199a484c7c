"""How a move would be made: what the cluster has for it, and how long a start takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from speccli.core.fallback.ladder import Ladder, ladder
from speccli.core.fallback.means import Means, Supply, estimated_start, measured_start, of_record
from speccli.core.kube.record import from_object
from speccli.core.plan import plan
from speccli.core.recipes.load import load
from speccli.core.recipes.model import Pool, Recipe
from tests.core.deploy.fake_cluster import FakeCluster
from tests.core.deploy.test_cluster import RECIPE, Heard, asked, deploy

EAGLE = load(RECIPE)
"""Two GPUs a server."""
WARM = replace(EAGLE, pools={"standby": Pool()})


def _deployed(recipe: Recipe, gpus: int = 8, servers: int = 1) -> tuple[FakeCluster, Ladder]:
    fake = FakeCluster(gpus)
    scaled = replace(recipe, scaling=replace(recipe.scaling, min=servers, max=4))
    deploy(fake, Heard(), replace(asked(), recipe=scaled))
    found = ladder(from_object(fake.objects["ConfigMap", "chat-specctl"]))
    return fake, found


def _means(recipe: Recipe, rung: str, running: float | None = None, **given: Any) -> Means:
    fake, found = _deployed(recipe, **given)
    fake.running = None if running is None else running / given.get("servers", 1)
    supply = _supply(fake, found)
    return supply.means(next(step for step in found.down if step.name == rung))


def _supply(fake: FakeCluster, found: Ladder) -> Supply:
    return Supply(fake, "llm", found)  # type: ignore[arg-type]


def test_without_a_standby_it_is_a_rolling_change_with_a_free_gpu() -> None:
    told = _means(EAGLE, "ngram", gpus=4)
    assert told.mechanism == "rolling"
    assert (told.gpus, told.free, told.starts) == (2, 2, 1)
    assert not told.downtime
    assert "no capacity is lost" in told.words


def test_where_no_gpu_is_free_the_downtime_is_told() -> None:
    told = _means(EAGLE, "none", gpus=2)
    assert (told.gpus, told.free) == (0, 0)
    assert told.downtime
    assert "THAT IS DOWNTIME" in told.words


def test_servers_start_one_after_the_other() -> None:
    three = _means(EAGLE, "none", servers=3)
    assert three.starts == 3
    assert three.seconds == (3 * three.start.low_s, 3 * three.start.high_s)


def test_a_warm_standby_takes_the_traffic_at_once() -> None:
    fake, found = _deployed(WARM)
    supply = _supply(fake, found)
    assert supply.warm() == "ngram"
    told = supply.means(found.down[1])
    assert told.mechanism == "traffic"
    assert (told.gpus, told.starts, told.seconds) == (0, 0, (0, 0))
    assert "1 of 1 servers are warm, no restart" in told.words
    assert supply.means(found.down[2]).mechanism == "rolling", "off is not what is warm"


@pytest.mark.parametrize(
    ("running", "starts"),
    [
        pytest.param(None, 2, id="as-many-as-main-where-nobody-tells"),
        pytest.param(10.0, 0, id="one-is-enough-for-ten"),
        pytest.param(150.0, 2, id="three-for-150-of-51-each"),
    ],
)
def test_the_standby_needs_what_the_load_needs(running: float | None, starts: int) -> None:
    told = _means(WARM, "ngram", running, servers=3, gpus=16)
    assert told.starts == starts
    assert told.gpus == 2 * starts
    assert told.seconds == ((told.start.low_s, told.start.high_s) if starts else (0, 0))


def test_a_standby_without_room_is_a_risk() -> None:
    told = _means(WARM, "ngram", servers=3, gpus=8)
    assert told.gpus == 4
    assert told.free == 0
    assert any("the load needs 2 more" in risk for risk in told.risks)


def test_a_standby_that_is_not_ready_is_not_warm() -> None:
    fake, found = _deployed(WARM)
    fake.objects["Deployment", "chat-standby"]["status"]["availableReplicas"] = 0
    assert _supply(fake, found).warm() is None


def test_nodes_that_may_not_be_listed_leave_gpus_unknown() -> None:
    fake, found = _deployed(EAGLE)
    fake.denied = frozenset({"Node"})
    told = _supply(fake, found).means(found.down[0])
    assert (told.gpus, told.free) == (None, None)
    assert "free GPUs are not known" in told.words


# ---- how long a start takes ----


def _pod(began: str, ready: str, **status: Any) -> dict[str, Any]:
    engine = {"name": "engine", "state": {"running": {"startedAt": began}}}
    return {
        "metadata": {"name": "p"},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ready}],
            "containerStatuses": [{"name": "queue"}, engine],
            **status,
        },
    }


def test_a_start_is_measured_from_the_pods_that_serve() -> None:
    pods = [
        _pod("2026-11-30T01:00:00Z", "2026-11-30T01:02:20Z"),
        _pod("2026-11-30T01:05:00Z", "2026-11-30T01:07:50Z"),
        _pod("2026-11-29T01:05:00Z", "2026-11-30T01:07:50Z"),  # unready for a while, a day later
        _pod("", "2026-11-30T01:07:50Z"),
    ]
    told = measured_start(pods)
    assert told is not None
    assert (told.low_s, told.high_s, told.how) == (140.0, 170.0, "measured")
    assert told.words == "2 pods that serve now"
    assert measured_start(pods[2:]) is None


def test_else_from_the_last_rollout_that_came_through() -> None:
    _, found = _deployed(EAGLE)
    record = found.record.with_current(
        at="2026-11-30T01:00:00+00:00", ended="2026-11-30T01:04:00+00:00"
    )
    told = of_record(replace(found, record=record))
    assert told is not None
    assert (told.low_s, told.how) == (240.0, "measured")
    assert told.words == "the rollout of revision 1"
    later = record.with_current(number=2)
    rolled = of_record(replace(found, record=later), replicas=3)
    assert rolled is not None
    assert rolled.low_s == 80.0, "three, one after the other"
    assert of_record(replace(found, record=record.with_current(state="failed"))) is None


def test_else_it_is_an_estimate_and_says_what_it_is_made_of() -> None:
    told = estimated_start(plan(EAGLE))
    assert told.how == "estimate"
    assert told.high_s - told.low_s == 30.0
    assert told.low_s > 125.0 + 300.0, "70 GB do not come at once"
    assert "one H200" in told.words
    assert "assumed" in told.words
    quick = replace(EAGLE, storage=replace(EAGLE.storage, read_mb_s=10_000.0))
    assert estimated_start(plan(quick)).low_s < 140.0
    assert "given" in estimated_start(plan(quick)).words
