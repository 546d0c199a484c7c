"""`fallback apply` and `restore`, killed again and again: it serves on, and gets through.

Two deployments side by side, in each of which a standby takes the traffic and gives it back through
a canary. In one a SIGKILL follows every write that says something new, in a row: each run of the
same command comes one write further than the last. In the other one kill is followed by one run
that is left alone: before the first write, after several, after the last, and at looks in between.
Whichever way, it ends as it would have, with nothing lost and nothing left over.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube.clients import Clients
from tests.e2e.kube.deploying import PLAIN, RECIPE, Typed
from tests.support.kube.between import Between, Kill, News
from tests.support.kube.cluster import Behaviour, Cluster
from tests.support.kube.nursery import Nursery
from tests.support.processes import environment

pytestmark = [pytest.mark.real_kubernetes, pytest.mark.slow]
Object = dict[str, Any]
LANES = ("chain", "rounds")
"""Each has two servers, a standby and a canary at most, of two GPUs each; there are sixteen."""
MODULES = (
    *("speccli.commands.deploy", "speccli.core.deploy.cluster", "speccli.tables.deploy"),
    *("speccli.commands.fallback", "speccli.commands._fallback_moves"),
    *("speccli.core.fallback.carry", "speccli.core.fallback.carrying"),
    *("speccli.tables.fallback_moves", "speccli.core.views.fallback_moves"),
)
SETS = ("serving.shutdown_timeout_s=5", "fallback.canary_drafts=100")
WORDS = {"apply": (), "restore": ("--force", "--window", "1s")}
RATE = 6.0
"""Requests a second."""
ROUNDS = 5
MOST_RUNS = 60
LOOKS = 12
"""Calls that only look, before a kill among such."""


def places(writes: int) -> list[Kill]:
    """Where a command that makes so many writes is killed: one place a round, first to last.

    The first is while it is tried on the server, the third while a canary is watched.
    """
    spread = [writes * number // (ROUNDS - 1) for number in range(ROUNDS)]
    return [
        Kill(at, 0 if number % 2 or at == writes else LOOKS) for number, at in enumerate(spread)
    ]


class Lane:
    """One deployment, and the two commands that move its traffic there and back."""

    def __init__(self, typed: Typed, name: str, nursery: Nursery) -> None:
        self.typed, self.name, self.nursery = typed, name, nursery
        self.api, self.between = typed.cluster.api, nursery.between
        self.writes: dict[str, int] = {}
        """Of a run that was left alone, by command."""
        self.killed: dict[str, int] = dict.fromkeys(WORDS, 0)
        self.unserved: list[str] = []

    def make(self) -> None:
        """Deploy it."""
        sets = [word for each in SETS for word in ("--set", each)]
        pools = ("--replicas", "2", "--pool", "standby")
        done = self.nursery.run(["deploy", RECIPE, "--name", self.name, *PLAIN, *pools, *sets])
        assert done.returncode == 0, done.stderr
        self.objects = self.there()

    def run(self, which: str, kill: Kill | News | None = None) -> bool:
        """The command; whether it was killed. It has ended well if not."""
        words = ["fallback", which, self.name, *WORDS[which], "-o", "json"]
        done = self.nursery.run(words, kill)
        wanted = -9 if self.between.killed else 0
        assert done.returncode == wanted, f"{self.name} {which} {kill}: {done.stderr[-3000:]}"
        self.killed[which] += self.between.killed
        if not self.between.killed:
            self.see(which)
        return self.between.killed

    def measure(self) -> None:
        """Each way once, left alone."""
        for which in WORDS:
            self.run(which)
            self.writes[which] = len(self.between.writes)

    def rounds(self) -> None:
        """There and back, each way killed once and then left alone."""
        self.measure()
        for turn in range(ROUNDS):
            for which, writes in self.writes.items():
                if self.run(which, places(writes)[turn]) and not self.through(which):
                    self.run(which)

    def chain(self) -> None:
        """There and back, killed after each write that says something new."""
        for which in WORDS:
            self.between.forget()
            for _ in range(MOST_RUNS):
                if not self.run(which, News()) or self.through(which):
                    break
            else:
                raise AssertionError(f"{which} of {self.name} is never through")
            self.see(which)
            self.writes[which] = len(self.between.news)

    def there(self) -> list[str]:
        """Its objects; a canary that is told to go takes its time."""
        return sorted(each for each in self.typed.owned(self.name) if "-canary" not in each)

    def see(self, which: str) -> None:
        """It is as the command leaves it, whole."""
        api, record = self.api, self.typed.record(self.name)
        pool = "standby" if which == "apply" else "main"
        serves = f"{self.name}-standby" if which == "apply" else self.name
        assert api.get("Service", self.name)["spec"]["selector"]["specctl.dev/service"] == serves
        assert (record["state"], record["proof"]["verdict"]) == ("ready", "proven")
        assert record["options"].get("traffic", "main") == pool
        # The way back: what the recipe drafts with, in the record and in the pool that waits.
        assert record["recipe"]["draft"]["method"] == "eagle3"
        assert (record["restores"] is not None) == (which == "restore")
        for suffix, method, replicas in (("", "eagle3", 2), ("-standby", "ngram", 1)):
            live = api.get("Deployment", self.name + suffix)["spec"]
            labels = live["template"]["metadata"]["labels"]
            assert labels["specctl.dev/spec-method"] == method
            assert live["replicas"] >= replicas
        canary = api.find("Deployment", f"{self.name}-canary")
        assert canary is None or "deletionTimestamp" in canary["metadata"]
        assert self.there() == self.objects

    def through(self, which: str) -> bool:
        """Whether the record says that all of it was done."""
        record = self.typed.record(self.name)
        pool = "standby" if which == "apply" else "main"
        return bool(record["state"] == "ready" and record["options"].get("traffic", "main") == pool)

    def watch(self, enough: threading.Event) -> None:
        """Note each moment at which the address leads to nobody who is ready."""
        label = {"kubernetes.io/service-name": self.name}
        while not enough.is_set():
            slices = self.api.objects("EndpointSlice", label)
            ends = [end for each in slices for end in each.get("endpoints") or ()]
            if not any(end["conditions"].get("ready") for end in ends):
                self.unserved.append(f"{self.name} at {time.time():.1f}")
            time.sleep(0.2)


@pytest.fixture
def lanes(cluster: Cluster, tmp_path: Path) -> Iterator[list[Lane]]:
    with contextlib.ExitStack() as stack:
        made = []
        for name in LANES:
            folder = tmp_path / name
            folder.mkdir()
            typed = Typed(cluster, folder)
            between = stack.enter_context(Between(cluster.kubeconfig, folder))
            env = environment(**{key: str(value) for key, value in typed.env.items()})
            nursery = stack.enter_context(Nursery(between, folder, env, *MODULES))
            made.append(Lane(typed, name, nursery))
        yield made


def test_killed_between_calls_it_serves_on_and_the_same_goes_on(
    lanes: list[Lane], cluster: Cluster, tmp_path: Path
) -> None:
    # Servers start in a second, and are left for longer than clients take to see that they leave.
    cluster.pods(Behaviour(load_s=0.2, pace=0.1, step_factor=0.2))
    chain, rounds = lanes
    enough = threading.Event()
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(2 * len(lanes)) as threads:
        list(threads.map(lambda lane: lane.make(), lanes))
        clients = [Clients(cluster, lane.name, tmp_path / lane.name, RATE) for lane in lanes]
        for each in clients:
            stack.enter_context(each).wait_for(20)
        watches = [threads.submit(lane.watch, enough) for lane in lanes]
        try:
            for played in [threads.submit(chain.chain), threads.submit(rounds.rounds)]:
                played.result()
        finally:
            enough.set()
        for watched in watches:
            watched.result(30)
        answers = [answer for each in clients for answer in each.end()]
    assert [each for each in answers if each.status != 200] == []
    assert len(answers) > 500
    assert chain.unserved + rounds.unserved == []
    # Each run made one write that was new, and was killed before its next call.
    assert chain.killed == chain.writes
    assert chain.killed["apply"] > 8
    assert chain.killed["restore"] > 16
    assert min(rounds.killed.values()) >= ROUNDS - 1
