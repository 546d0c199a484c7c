"""A plan on a real control plane: findings of the engines, the warm pool, free GPUs, starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube.deploying import Typed
from tests.support.kube.cluster import Behaviour, Cluster

pytestmark = pytest.mark.real_kubernetes

MAIN = {"specctl.dev/pool": "main"}
STANDBY = {"specctl.dev/pool": "standby"}


@pytest.fixture
def typed(cluster: Cluster, tmp_path: Path) -> Typed:
    return Typed(cluster, tmp_path)


def _plan(typed: Typed, *words: str) -> dict[str, Any]:
    done = typed("fallback", "plan", "chat", *words, "-o", "json")
    assert done.exit_code == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_draft_gone_bad_with_a_warm_standby_is_a_switch_of_traffic(typed: Typed) -> None:
    typed.cluster.pods(
        Behaviour(MAIN, acceptance=0.1, rate_per_s=3.0, load_s=2.0), Behaviour(STANDBY)
    )
    typed.deploy("--pool", "standby", "--replicas", "2")
    before = typed.owned()
    told = _plan(typed)
    assert told["advised"], told["words"]
    assert told["move"]["finding"] == "LOW_ACCEPTANCE"
    assert told["findings"][0]["source"] == "live"
    assert told["simulated"] is True
    assert told["batch"]["value"] > 0
    assert told["move"]["rung"] == "ngram"
    means = told["move"]["means"]
    assert means["mechanism"] == "traffic"
    assert means["starts"] == 0, told["running"]
    assert means["start_s"]["how"] == "measured"
    assert 0 < means["start_s"]["low"] <= means["start_s"]["high"] < 60
    assert means["gpus_free"] == 16 - 2 * 3
    assert {each["rung"]: each["warm"] for each in told["down"]} == {
        "k1": False,
        "ngram": True,
        "none": False,
    }
    assert typed.owned() == before, "a plan changes nothing"


def test_without_a_standby_it_is_a_rolling_change_with_the_gpus_there_are(typed: Typed) -> None:
    typed.cluster.pods(Behaviour(MAIN, rate_per_s=6.0))
    typed.deploy("--replicas", "8")
    quiet = _plan(typed)
    assert not quiet["advised"]
    assert quiet["words"].endswith("nothing speaks against it")
    told = _plan(typed, "--finding", "ZERO_ACCEPTANCE")
    means = told["move"]["means"]
    assert (means["mechanism"], means["starts"]) == ("rolling", 8)
    assert (means["gpus_needed"], means["gpus_free"]) == (0, 0)
    assert "7 of 8 serve meanwhile" in means["words"]
    assert means["downtime"] is False


def test_what_alerting_remembers_is_in_the_plan(typed: Typed) -> None:
    typed.cluster.pods(Behaviour(MAIN, rate_per_s=6.0))
    typed.deploy("--replicas", "1")
    place = ("--deployment", "chat", "-n", typed.cluster.namespace)
    checked = typed("alert", "check", *place, "--floor", "0.99", "--hold", "1s")
    assert checked.exit_code == 1, checked.stdout
    told = _plan(typed, "-n", typed.cluster.namespace)
    assert [(f["code"], f["source"].split(",")[0]) for f in told["findings"]] == [
        ("LOW_ACCEPTANCE", "alert check")
    ]
    assert told["move"]["rung"] == "k1"


def test_a_deployment_without_pods_has_a_plan_that_says_what_is_not_known(typed: Typed) -> None:
    typed.deploy("--replicas", "1")
    typed.scale(0)
    told = _plan(typed)
    assert not told["advised"]
    assert told["findings_unknown"]
    assert told["words"].startswith("Whether chat should leave eagle3, K = 3 is not known")
