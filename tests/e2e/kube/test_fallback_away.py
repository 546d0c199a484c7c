"""Moves while the API server or the metrics are away, with KEDA and Prometheus, under load."""

from __future__ import annotations

import json
import re
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.e2e.kube.clients import Answer, Clients
from tests.e2e.kube.operators import SERVES, Operators
from tests.support.kube.cluster import Cluster, until
from tests.support.kube.monitor import Prometheus

pytestmark = [pytest.mark.real_kubernetes, pytest.mark.slow]
Object = dict[str, Any]
RATE = 6.0
"""Requests a second."""
ANSWER_S = 5.0
"""How long a call is waited for: 10 s in life."""
BACK_S = ANSWER_S + 3.0
"""After how long one that comes back is there: within the second call."""
DARK = """
from speccli.core.fallback.carry import restore
restore.__kwdefaults__["dark_s"] = 5.0  # two minutes in life
"""
RESTORE = ("fallback", "restore", "chat", "--window", "1s")


def impatient(away_s: float) -> str:
    """Calls and absences that are waited for this long."""
    return f"""
import speccli.core.kube.client as client
from speccli.core.fallback.retry import persistently
client.DEADLINE_S = {ANSWER_S}
persistently.__kwdefaults__["away_s"] = {away_s}  # five minutes in life
"""


def all_well(answers: list[Answer]) -> None:
    assert [each for each in answers if each.status != 200] == []


def given_up(done: CompletedProcess[str], traffic: str) -> None:
    """Exit 3, nothing on stdout, and one line that says what happened and what to do."""
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    said = done.stderr.strip().splitlines()
    last = [line for line in said if "in the middle of a move" in line]
    assert len(last) == 1, said
    assert f"within {ANSWER_S:g} s" in last[0]
    assert "the same command completes what was begun" in "\n".join(said[said.index(last[0]) :])


def moved(done: CompletedProcess[str]) -> Object:
    assert done.returncode == 0, done.stderr
    told: Object = json.loads(done.stdout)
    assert told["move"]["end"] == "moved", told
    return told


def scales(operators: Operators, prometheus: Prometheus) -> None:
    """KEDA reads the metric of the deployment again, of a Prometheus that sees its servers."""

    def active() -> bool:
        found = operators.api.objects("HorizontalPodAutoscaler")
        conditions = [each["status"].get("conditions", []) for each in found]
        said = [c["status"] for each in conditions for c in each if c["type"] == "ScalingActive"]
        return len(found) == 2 and said == ["True"] * 2

    until(active, "both autoscalers to read their metric")
    assert (prometheus.value('count(up{job=~".*chat.*"} == 1)') or 0) >= 3


def test_an_api_server_away_for_too_long_ends_a_move_in_a_line_and_the_same_completes_it(
    operators: Operators, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.pods(SERVES)
    prometheus = operators.deploy_scaled()
    operators.at_the_switch(operators.goes_away)
    with Clients(cluster, "chat", tmp_path / "clients", RATE) as clients:
        clients.wait_for(20)
        done = operators.run("fallback", "apply", "chat", first=impatient(ANSWER_S))
        clients.wait_for(10)
        operators.comes_back()
        given_up(done, "main")
        told = moved(operators.run("fallback", "apply", "chat", "--rung", "ngram"))
        answers = clients.end()
    assert told["move"]["target"] == "ngram, K = 3"
    all_well(answers)
    operators.see("standby")
    scales(operators, prometheus)


def test_an_api_server_away_during_a_restore_is_waited_for_then_said_and_the_same_completes_it(
    operators: Operators, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.pods(SERVES)
    prometheus = operators.deploy_scaled()
    moved(operators.run("fallback", "apply", "chat"))
    operators.in_the_trial(
        lambda: operators.is_away_for(BACK_S),
        operators.goes_away,
    )
    with Clients(cluster, "chat", tmp_path / "clients", RATE) as clients:
        clients.wait_for(20)
        # A third call is made too: on a busy machine the second may be cut off by its own end.
        done = operators.run(*RESTORE, first=impatient(BACK_S + 7.0))
        clients.wait_for(10)
        operators.comes_back()
        given_up(done, "standby")
        assert "the canary passed" in done.stderr
        told = moved(operators.run(*RESTORE))
        wrote = operators.hand.between.writes
        assert [call for call in wrote if re.match("PATCH .*/chat-canary[?]", call)] == []
        answers = clients.end()
    assert told["restore"]["verdict"] == "passed"
    all_well(answers)
    operators.see("main")
    scales(operators, prometheus)


def ends_in_the_dark(operators: Operators, pool: str, side: str) -> None:
    """The metrics of a pool go while a canary is compared: nothing was refused, nothing moved."""
    replicas = operators.replicas()
    operators.in_the_trial(lambda: operators.blind(pool))
    done = operators.run(*RESTORE, first=DARK)
    assert done.returncode == 3, done.stderr
    kept: Object = json.loads(done.stdout)
    assert (kept["restore"]["verdict"], kept["move"]) == ("inconclusive", None)
    assert kept["restore"]["refusals"] == 0
    assert f"metrics are gone: no answer from the {side}" in kept["restore"]["words"]
    assert operators.leads_to() == "chat-standby"
    operators.see_no_canary()
    assert operators.replicas() == replicas


def test_metrics_of_a_canary_that_go_end_it_and_it_may_be_tried_again_at_once(
    operators: Operators, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.pods(SERVES)
    prometheus = operators.deploy_scaled()
    moved(operators.run("fallback", "apply", "chat"))
    with Clients(cluster, "chat", tmp_path / "clients", RATE) as clients:
        clients.wait_for(20)
        ends_in_the_dark(operators, "canary", "canary of chat")
        operators.see("standby")
        cluster.pods(SERVES)
        assert moved(operators.run(*RESTORE))["restore"]["verdict"] == "passed"
        answers = clients.end()
    all_well(answers)
    operators.see("main")
    scales(operators, prometheus)


def test_metrics_of_what_serves_that_go_in_the_middle_of_a_canary_end_it_and_move_nothing(
    operators: Operators, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.pods(SERVES)
    operators.deploy_scaled()
    moved(operators.run("fallback", "apply", "chat"))
    with Clients(cluster, "chat", tmp_path / "clients", RATE) as clients:
        clients.wait_for(20)
        ends_in_the_dark(operators, "standby", "servers of the pool standby")
        answers = clients.end()
    all_well(answers)
    record = operators.typed.record()
    # Whether it drafts cannot be told while nobody counts it.
    assert (record["state"], record["proof"]["verdict"]) == ("ready", "unknown")
