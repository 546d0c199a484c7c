"""`deploy`, killed before each of its calls to the API server: the pool serves, the same completes.

Two recipes take turns. One says that there are two servers, the other leaves it to an autoscaler,
which makes it three: so objects are made, changed and removed, and the replicas change hands and
number, in every round.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube.deploying import LABEL, RECIPE, Typed
from tests.support.kube.between import Between, Kill
from tests.support.kube.cluster import Cluster, is_ready
from tests.support.kube.nursery import Nursery
from tests.support.processes import environment

pytestmark = [pytest.mark.real_kubernetes, pytest.mark.slow]
Object = dict[str, Any]
LANES = 2
"""Each has four pods of two GPUs at most, and there are sixteen."""
REPLICAS = (2, 3)
"""By recipe."""
MODULES = ("speccli.commands.deploy", "speccli.core.deploy.cluster", "speccli.tables.deploy")
COMMON = (
    "--no-monitoring",
    "--set",
    "storage.persist=false",
    "--set",
    "serving.shutdown_timeout_s=1",
)
ARMS: tuple[tuple[str, ...], ...] = (
    ("--autoscaler", "none", "--replicas", "2", "--set", "draft.K=3"),
    ("--autoscaler", "hpa", "--set", "draft.K=4", "--set", "scaling.max=3"),
)


class Lane:
    """One deployment, its two recipes, and who stands between it and the API server."""

    def __init__(self, typed: Typed, number: int, nursery: Nursery) -> None:
        self.name = f"lane-{number}"
        self.typed, self.api = typed, typed.cluster.api
        self.nursery, self.between = nursery, nursery.between
        self.arm = 0
        self.faults: list[str] = []
        self.killed: list[tuple[int, int, int]] = []
        """The recipe that was on its way, writes and further calls that had been made."""
        self.writes = [0, 0]
        """Calls that change something, of a run of each recipe that is left alone."""

    def deploy(self, arm: int, kill: Kill | None) -> subprocess.CompletedProcess[str]:
        """The command in a process of its own, killed before a call."""
        words = ("deploy", RECIPE, "--name", self.name, *COMMON, *ARMS[arm], "-o", "json")
        return self.nursery.run(words, kill)

    def complete(self, arm: int) -> None:
        """The same again, to its end."""
        done = self.deploy(arm, None)
        assert done.returncode == 0, f"{self.name}: {done.stderr[-2000:]}"
        told = json.loads(done.stdout)
        assert told["proof"]["verdict"] == "proven"
        record = self.typed.record(self.name)
        assert record["state"] == "ready"
        assert record["recipe"]["draft"]["K"] == 3 + arm
        live = self.api.get("Deployment", self.name)
        words = " ".join(live["spec"]["template"]["spec"]["containers"][0]["args"])
        assert f'"num_speculative_tokens":{3 + arm}' in words
        assert live["spec"]["replicas"] in (REPLICAS if arm else REPLICAS[:1])
        scaled = self.api.find("HorizontalPodAutoscaler", self.name) is not None
        assert scaled is (arm == 1)
        if scaled:  # as the autoscaler would
            self.typed.scale(3, self.name)
        self.arm = arm

    def watch(self, enough: threading.Event) -> None:
        """Note each moment at which nobody served, or the pool was told to be smaller."""
        while not enough.is_set():
            told = self.api.get("Deployment", self.name)["spec"]["replicas"]
            if told not in REPLICAS:
                self.faults.append(f"spec.replicas {told}")
            pods = [pod for pod in self.api.objects("Pod", {LABEL: self.name}) if is_ready(pod)]
            leaving = [pod for pod in pods if pod["metadata"].get("deletionTimestamp")]
            serving = [pod for pod in pods if pod not in leaving]
            answers = [self.api.proxy(pod["metadata"]["name"], "health")[0] for pod in serving[:1]]
            if not serving:
                self.faults.append("no pod was ready")
            if answers not in ([200], []) and not self._left(serving[0]):
                self.faults.append(f"{serving[0]['metadata']['name']} answered {answers}")
            time.sleep(0.15)

    def _left(self, pod: Object) -> bool:
        """Whether a pod has begun to leave since it was looked at."""
        now = self.api.find("Pod", pod["metadata"]["name"])
        return now is None or "deletionTimestamp" in now["metadata"] or not is_ready(now)

    def measure(self) -> None:
        """Both recipes once, left alone."""
        for arm in (0, 1, 0):
            self.complete(arm)
            self.writes[arm] = len(self.between.writes)

    def kill(self, when: Kill) -> int | None:
        """Begin the other recipe and kill it: writes made; None where it was done before that."""
        other, before = 1 - self.arm, self.typed.owned(self.name)
        done = self.deploy(other, when)
        if not self.between.killed:
            assert done.returncode == 0, done.stderr[-2000:]
            self.arm = other
            return None
        assert done.returncode == -9, done.stderr[-2000:]
        writes = len(self.between.writes)
        self.killed.append((other, writes, when.calls))
        if writes:
            self.complete(other)
        else:  # it is as if it had not begun
            assert self._settled(before) == before, when
        return writes

    def play(self, first: int) -> None:
        """Every LANES-th place: before the first write, after each, and at each look that follows.

        The last write but one says that all is applied; until the last the rollout is watched and
        the servers are asked.
        """
        for _ in ARMS:
            call = first
            while self.kill(Kill(0, call)) == 0:
                call += LANES
        for writes in range(1 + first, max(self.writes), LANES):
            for _ in ARMS:
                if writes < self.writes[1 - self.arm]:
                    assert self.kill(Kill(writes, 0)) == writes
                else:
                    self.complete(1 - self.arm)
        call = 1 + first
        while self.kill(Kill(self.writes[1 - self.arm] - 1, call)) is not None:
            call += LANES

    def _settled(self, before: dict[str, str]) -> dict[str, str]:
        """What is there now, but for what controllers write into a status."""
        now = self.typed.owned(self.name)
        for name in before:
            if name.startswith(("Deployment/", "HorizontalPod", "PodDisruption")):
                now[name] = before[name]
        return now


@pytest.fixture
def lanes(cluster: Cluster, tmp_path: Path) -> Iterator[list[Lane]]:
    typed = Typed(cluster, tmp_path)
    with contextlib.ExitStack() as stack:
        made = []
        for number in range(LANES):
            folder = tmp_path / f"lane-{number}"
            folder.mkdir()
            between = stack.enter_context(Between(cluster.kubeconfig, folder))
            env = environment(XDG_CACHE_HOME=str(typed.env["XDG_CACHE_HOME"]))
            nursery = stack.enter_context(Nursery(between, folder, env, *MODULES))
            made.append(Lane(typed, number, nursery))
        yield made


def test_killed_before_any_call_it_serves_on_and_the_same_completes_it(
    lanes: list[Lane],
) -> None:
    with ThreadPoolExecutor(2 * LANES) as threads:
        list(threads.map(lambda lane: lane.measure(), lanes))
        enough = threading.Event()
        watches = [threads.submit(lane.watch, enough) for lane in lanes]
        try:
            list(threads.map(lambda lane: lane.play(int(lane.name[-1])), lanes))
        finally:
            enough.set()
        for watched in watches:
            watched.result(30)
    assert [fault for lane in lanes for fault in lane.faults] == []
    killed = [each for lane in lanes for each in lane.killed]
    for arm in range(len(ARMS)):
        after = {writes for which, writes, _ in killed if which == arm}
        whole = max(lane.writes[arm] for lane in lanes)
        assert after >= set(range(whole)), "a state between two writes was missed"
        assert whole > 8
    assert len(killed) > 60
