"""Faults in the middle of `fallback apply` and `restore`: the right end, and the right words."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from speccli.core.kube.client import DEADLINE_S
from speccli.core.manifests.names import METHOD, POOL
from tests.e2e.kube.clients import Clients
from tests.e2e.kube.deploying import PLAIN, RECIPE, Typed
from tests.support.kube.between import Between, changes
from tests.support.kube.cluster import Behaviour, Cluster, until
from tests.support.kube.nursery import Nursery
from tests.support.processes import environment

pytestmark = pytest.mark.real_kubernetes
Object = dict[str, Any]
MODULES = (
    *("speccli.commands.deploy", "speccli.core.deploy.cluster", "speccli.tables.deploy"),
    *("speccli.commands.fallback", "speccli.commands._fallback_moves"),
    *("speccli.core.fallback.carry", "speccli.core.views.fallback_moves"),
)
AWAY_S = DEADLINE_S + 4.0
SETS = ("serving.shutdown_timeout_s=5",)
SERVES = Behaviour(load_s=0.2)


class Operators:
    """One who types, and another who writes; of two servers with a warm standby."""

    def __init__(self, typed: Typed, hand: Nursery) -> None:
        self.typed, self.hand = typed, hand
        self.api = typed.cluster.api

    def run(self, *words: str) -> CompletedProcess[str]:
        """A command as it is typed."""
        return self.hand.run([*words, "-o", "json"])

    def deploy(self) -> None:
        """The deployment."""
        sets = [word for each in SETS for word in ("--set", each)]
        pools = ("--replicas", "2", "--pool", "standby")
        done = self.run("deploy", RECIPE, "--name", "chat", *PLAIN, *pools, *sets)
        assert done.returncode == 0, done.stderr

    def blind(self, *pools: str) -> None:
        """No server of these tells any metrics from now on."""
        told = [replace(SERVES, labels={POOL: pool}, blind=True) for pool in pools]
        self.typed.cluster.pods(SERVES, *told)
        pods = [pod for pool in pools for pod in self.typed.cluster.pod_names({POOL: pool})]
        until(lambda: all(self.api.proxy(p, "metrics")[0] == 503 for p in pods), "no page")

    def at_the_switch(self, do: Callable[[], None]) -> None:
        """Do it when the first one's write to the Service, which moves the traffic, is due."""
        due = [do]

        def before(call: str) -> None:
            if changes(call) and "/services/chat?" in call and due:
                due.pop()()

        self.hand.between.before = before

    def another_deploys(self) -> None:
        """The first writes of somebody else's: the same again as a revision of theirs."""
        kept = self.api.get("ConfigMap", "chat-specctl")
        record = json.loads(kept["data"]["record.json"])
        theirs = {"revision": record["revision"] + 1, "by": "other@elsewhere"}
        told = json.dumps({**record, **theirs})
        self.api.patch("ConfigMap", "chat-specctl", {"data": {"record.json": told}})
        self.api.patch("Service", "chat", {"metadata": {"annotations": {"by": "other"}}})

    def written(self) -> dict[str, str]:
        """Versions of what only specctl writes."""
        found = self.typed.owned()
        return {key: found[key] for key in found if key.startswith(("Service/", "ConfigMap/"))}

    def leads_to(self) -> str:
        """Whose pods the Service selects."""
        return str(self.api.get("Service", "chat")["spec"]["selector"]["specctl.dev/service"])

    def see(self, traffic: str) -> None:
        """The record, the Service and the pools are of one mind."""
        record = self.typed.record()
        assert (record["state"], record["proof"]["verdict"]) == ("ready", "proven")
        assert record["options"]["traffic"] == traffic
        assert self.leads_to() == f"chat-{traffic}"
        drafts = {
            each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"][METHOD]
            for each in self.api.objects("Deployment", {"specctl.dev/deployment": "chat"})
        }
        assert drafts == {"chat": "eagle3", "chat-standby": "ngram"}


@pytest.fixture
def operators(cluster: Cluster, tmp_path: Path) -> Iterator[Operators]:
    typed = Typed(cluster, tmp_path)
    env = environment(**{key: str(value) for key, value in typed.env.items()})
    with (
        Between(cluster.kubeconfig, tmp_path) as between,
        Nursery(between, tmp_path, env, *MODULES) as hand,
    ):
        yield Operators(typed, hand)


def test_the_api_server_away_in_the_middle_of_a_move_is_waited_for_and_no_request_fails(
    operators: Operators, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.pods(SERVES)
    operators.deploy()
    stopped = threading.Event()

    def away() -> None:
        with cluster.world.plane.away():
            stopped.set()
            time.sleep(AWAY_S)

    absence = threading.Thread(target=away)

    def begin() -> None:
        absence.start()
        assert stopped.wait(10)

    operators.at_the_switch(begin)
    with Clients(cluster, "chat", tmp_path / "clients", 6.0) as clients:
        clients.wait_for(20)
        try:
            done = operators.run("fallback", "apply", "chat")
        finally:
            if absence.ident is not None:
                absence.join()  # nobody takes things down while the server is stopped
        answers = clients.end()
    assert done.returncode == 0, done.stderr
    told: Object = json.loads(done.stdout)
    assert (told["move"]["end"], told["move"]["target"]) == ("moved", "ngram, K = 3")
    assert f"within {DEADLINE_S:g} s; it is done again in 1 s" in done.stderr
    assert stopped.is_set()
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
