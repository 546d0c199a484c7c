"""How a move would be made: what the cluster has for it, and how long a start takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from speccli.core.fallback.ladder import Ladder, ladder
from speccli.core.fallback.means import Means, Supply, estimated_start, measured_start, of_record
from speccli.core.kube.record import Record, from_object
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


def test_a_pod_that_was_unready_for_a_while_says_nothing_of_a_start() -> None:
    pods = [
        _pod("2026-11-30T01:00:00Z", "2026-11-30T01:02:20Z"),
        _pod("2026-11-30T01:00:00Z", "2026-11-30T01:09:00Z"),
    ]
    told = measured_start(pods)
    assert told is not None
    assert (told.low_s, told.high_s, told.words) == (140.0, 140.0, "the pod that serves now")
    probe = {"initialDelaySeconds": 10, "periodSeconds": 10, "failureThreshold": 29}
    late = pods[1] | {"spec": {"containers": [{"name": "engine", "startupProbe": probe}]}}
    assert measured_start([late]) is None, "it would have been ended after five minutes"


def test_else_from_the_last_rollout_that_came_through() -> None:
    _, found = _deployed(EAGLE)
    record = found.record.with_current(
        at="2026-11-30T01:00:00+00:00", ended="2026-11-30T01:04:00+00:00"
    )
    told = of_record(replace(found, record=record))
    assert told is not None
    assert (told.low_s, told.how) == (240.0, "measured")
    assert told.words == "the rollout of revision 1"
    rolled = of_record(replace(found, record=_next(record, "2026-11-30T02:03:00+00:00", K=1)), 3)
    assert rolled is not None
    assert (rolled.low_s, rolled.words) == (60.0, "the rollout of revision 2"), "one by one"
    assert of_record(replace(found, record=record.with_current(state="failed"))) is None


def _next(record: Record, ended: str, **changes: Any) -> Record:
    """One more revision, from two o'clock on."""
    draft = {**record.current.recipe["draft"], **changes}
    made = replace(
        record.current,
        number=record.current.number + 1,
        recipe={**record.current.recipe, "draft": draft},
        at="2026-11-30T02:00:00+00:00",
        ended=ended,
    )
    return replace(record, current=made, previous=(record.current, *record.previous))


def test_a_rollout_in_which_no_server_started_measures_no_start() -> None:
    _, found = _deployed(EAGLE)
    first = found.record.with_current(
        at="2026-11-30T01:00:00+00:00", ended="2026-11-30T01:04:00+00:00"
    )
    soon = "2026-11-30T02:00:02+00:00"
    switched = _next(first, soon).with_current(options={"traffic": "standby"})
    tried = _next(switched, soon, K=1).with_current(trial={"from": 2})
    taken_away = _next(tried, soon, K=3)
    for record in (switched, tried, taken_away):
        told = of_record(replace(found, record=record))
        assert told is not None
        assert told.words == "the rollout of revision 1"
    forgotten = replace(switched, previous=())
    assert of_record(replace(found, record=forgotten)) is None, "what was before is not known"


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
