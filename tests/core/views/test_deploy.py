"""The forms of a deployment, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from speccli.core.deploy.look import Deployed
from speccli.core.deploy.look import deployed as look_at
from speccli.core.kube.rollout import look
from speccli.core.views import deploy as view
from speccli.core.views import deployed
from speccli.core.views.document import json_text
from tests.core.deploy.fake_cluster import FakeCluster
from tests.core.deploy.test_cluster import Heard, asked, deploy
from tests.support.golden import assert_golden

_VARIES = frozenset(
    {"at", "by", "uid", "ended", "specctl", "objects_hash", "recipe_hash", "recipe"}
)
_FINDING = ("code", "rule", "severity", "subject", "evidence", "cause", "action", "thread", "since")


def steady(value: Any) -> Any:
    """The same without what differs from run to run, or is the recipe's own form."""
    if isinstance(value, dict):
        return {
            key: "…" if key in _VARIES and value[key] is not None else steady(each)
            for key, each in value.items()
        }
    return [steady(each) for each in value] if isinstance(value, list) else value


def golden(name: str, value: Any) -> None:
    assert_golden(name, json_text(steady(value)) + "\n")


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster()


def test_a_deployment_that_was_proven(fake: FakeCluster) -> None:
    deploy(fake, Heard(), asked(options={"replicas": 2}))
    outcome = deploy(fake, Heard(), asked("draft.K=4", options={"replicas": 2}))
    told = view.deploy(outcome)
    # The words of findings are their rules'.
    assert set(told["findings"][0]) == set(_FINDING)
    golden("deploy.json", told | {"findings": [each["code"] for each in told["findings"]]})
    assert view.state_words(outcome) == ("ok", "PROVEN: 2 pods serve, 2 of 2 asked")
    progress = look(fake, "llm", "chat", ["chat"])  # type: ignore[arg-type]
    found = Deployed(outcome.record, "llm", "fake", progress)
    golden("deployed.json", deployed.deployed(found, None))


def test_one_that_was_not_ready_in_time_says_what_it_waits_for(fake: FakeCluster) -> None:
    fake.ready = lambda _: False
    outcome = deploy(fake, Heard(), asked(timeout_s=0.0))
    style, words = view.state_words(outcome)
    assert style == "unknown"
    assert words.startswith("NOT READY in time: chat-0:")
    assert view.deploy(outcome)["exit"] == 3


def test_nothing_waited_for_is_nothing_proven(fake: FakeCluster) -> None:
    outcome = deploy(fake, Heard(), asked(wait=False))
    assert "nothing was waited for or proven" in view.state_words(outcome)[1]
    assert view.deploy(outcome)["proof"] is None


def test_status_says_which_pool_has_the_requests(fake: FakeCluster) -> None:
    def words(**more: Any) -> str | None:
        deploy(fake, Heard(), asked(options={"pools": ("standby",), **more}, moves=True))
        return deployed.serving_words(look_at(fake, "llm", "chat"))  # type: ignore[arg-type]

    assert (
        words() == "requests go to the pool main (eagle3, K = 3); standby (ngram, K = 3) stands by"
    )
    told = words(traffic="standby")
    assert told == "requests go to the pool standby (ngram, K = 3); main (eagle3, K = 3) stands by"
    deploy(fake, Heard(), asked(moves=True))
    assert deployed.serving_words(look_at(fake, "llm", "chat")) is None  # type: ignore[arg-type]


def test_a_record_that_differs_from_the_service_is_not_believed(fake: FakeCluster) -> None:
    deploy(fake, Heard(), asked(options={"pools": ("standby",)}))
    selector = fake.objects["Service", "chat"]["spec"]["selector"]
    selector["specctl.dev/service"] = "chat-standby"
    assert look_at(fake, "llm", "chat").serves == "standby"  # type: ignore[arg-type]
