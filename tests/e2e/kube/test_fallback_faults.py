"""Faults in the middle of `fallback apply` and `restore`: the right end, and the right words."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from speccli.core.kube.client import DEADLINE_S
from tests.e2e.kube.clients import Clients
from tests.e2e.kube.operators import SERVES, Operators
from tests.support.kube.cluster import Cluster

pytestmark = pytest.mark.real_kubernetes
Object = dict[str, Any]
NOON = """
import speccli.core.deploy.cluster as cluster
import speccli.core.deploy.prepare as prepare
cluster.now = prepare.now = lambda: "2026-11-30T12:00:00+00:00"
"""
"""All that is written is of one second."""


def test_the_api_server_away_in_the_middle_of_a_move_is_waited_for_and_no_request_fails(
    operators: Operators, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.pods(SERVES)
    operators.deploy()
    operators.at_the_switch(operators.is_away_for)
    with Clients(cluster, "chat", tmp_path / "clients", 6.0) as clients:
        clients.wait_for(20)
        done = operators.run("fallback", "apply", "chat")
        answers = clients.end()
    assert done.returncode == 0, done.stderr
    told: Object = json.loads(done.stdout)
    assert (told["move"]["end"], told["move"]["target"]) == ("moved", "ngram, K = 3")
    assert f"within {DEADLINE_S:g} s; it is done again in 1 s" in done.stderr
    operators.see("standby")
    assert [each for each in answers if each.status != 200] == []


def test_of_two_operators_at_once_one_moves_and_the_other_is_told_in_a_line(
    operators: Operators, cluster: Cluster
) -> None:
    cluster.pods(SERVES)
    operators.deploy()
    move = ("fallback", "apply", "chat", "--rung", "ngram")
    operators.at_the_switch(operators.another_deploys)
    slow = operators.run(*move)
    assert (slow.returncode, slow.stdout) == (3, ""), slow.stderr
    said = [line for line in slow.stderr.splitlines() if "chat" in line]
    assert any("other@elsewhere deployed revision 3 of chat at" in line for line in said), said
    assert "specctl status chat" in slow.stderr.splitlines()[-1]
    assert operators.leads_to() == "chat", "its own move is not made"

    other = operators.run(*move)  # what the other one goes on with
    assert other.returncode == 0, other.stderr
    assert json.loads(other.stdout)["move"]["end"] == "moved"
    assert operators.typed.record()["by"] == "other@elsewhere"
    operators.see("standby")


def test_of_two_commands_of_one_user_at_the_same_second_one_moves_and_the_other_is_told(
    operators: Operators, cluster: Cluster
) -> None:
    cluster.pods(SERVES)
    operators.deploy()
    move = ("fallback", "apply", "chat", "--rung", "ngram")
    other = operators.another_hand("other")
    moved: list[CompletedProcess[str]] = []
    operators.at_the_write(
        "configmaps/chat-specctl",
        lambda: moved.append(operators.run(*move, first=NOON, hand=other)),
    )
    slow = operators.run(*move, first=NOON)
    assert [done.returncode for done in moved] == [0], moved
    assert json.loads(moved[0].stdout)["move"]["end"] == "moved"
    assert (slow.returncode, slow.stdout) == (3, ""), slow.stderr
    said = [line for line in slow.stderr.splitlines() if "another command of" in line]
    assert len(said) == 1, slow.stderr
    assert "deployed revision 2 of chat at 2026-11-30T12:00:00+00:00" in said[0]
    assert operators.typed.record()["revision"] == 2
    operators.see("standby")


def test_metrics_gone_a_move_by_hand_counts_servers_and_a_restore_does_nothing_and_says_so(
    operators: Operators, cluster: Cluster
) -> None:
    cluster.pods(SERVES)
    operators.deploy()
    operators.blind("main")
    moved = operators.run("fallback", "apply", "chat", "--rung", "ngram")
    assert moved.returncode == 0, moved.stderr
    assert "as many as chat has: its load cannot be read" in moved.stderr
    operators.see("standby")

    operators.blind("main", "standby")
    before = operators.written()
    done = operators.run("fallback", "restore", "chat")
    assert done.returncode == 3, done.stderr
    kept: Object = json.loads(done.stdout)
    assert (kept["restore"]["verdict"], kept["move"]) == ("inconclusive", None)
    assert "no answer from the servers of the pool standby" in kept["restore"]["words"]
    assert "nothing was changed" in kept["restore"]["words"]
    assert operators.written() == before
    operators.see("standby")
