"""`fallback apply` and `restore`, killed before calls to the API server: the same goes on.

A standby takes the traffic and gives it back through a canary, round after round. Before the first
write of a round, and after each that changes something, the command is killed; and at looks in
between. Whoever asks the address meanwhile is answered, and the same command again ends where it
would have.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.kube.clients import Clients
from tests.e2e.kube.deploying import Typed
from tests.support.kube.between import Between, Kill
from tests.support.kube.cluster import Behaviour, Cluster
from tests.support.processes import environment

pytestmark = [pytest.mark.real_kubernetes, pytest.mark.slow]
Object = dict[str, Any]
NURSERY = """
import json, os, sys
import kubernetes.dynamic
import speccli.commands.fallback, speccli.core.fallback.carry, speccli.core.kube.client
import speccli.commands._fallback_moves, speccli.core.kube.transport, speccli.tables.fallback_moves
import speccli.core.manifests.sizes as sizes
from speccli.main import main
sizes.MIN_READY_S = 0  # how long a pod must have been ready: 10 s in life, and the rounds are many
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if not pid:
        for number, path in ((1, asked["out"]), (2, asked["err"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["specctl", *asked["words"]]
        main()
        os._exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""
"""Starts commands in processes of their own, without the second that their imports take."""
SETS = ("serving.shutdown_timeout_s=5", "fallback.canary_drafts=100")
WORDS = {
    "apply": ("fallback", "apply", "chat"),
    "restore": ("fallback", "restore", "chat", "--force", "--window", "0.25s"),
}
TELLING = ("/configmaps/chat-specctl", "/services/chat", "/chat-canary")
"""What the two change: every other object is applied as it is, and leaves the same state."""
LOOKS = 12
"""Between kills at calls that only look."""


class Rounds:
    """The deployment, and the two commands that move it there and back."""

    def __init__(self, typed: Typed, between: Between, nursery: subprocess.Popen[str]) -> None:
        self.typed, self.between, self.nursery = typed, between, nursery
        self.folder = between.kubeconfig.parent
        self.killed: dict[str, set[int]] = {"apply": set(), "restore": set()}
        """Writes that had been made, by command."""

    def run(self, which: str, kill: Kill | None) -> subprocess.CompletedProcess[str]:
        """The command in a process of its own, killed before a call."""
        words = (*WORDS[which], "--kubeconfig", str(self.between.kubeconfig), "-o", "json")
        out, err = self.folder / "out", self.folder / "err"
        told = {"words": words, "out": str(out), "err": str(err)}
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        # Until its number is known nothing can be killed; nothing of it is asked before that.
        with self.between.held():
            self.nursery.stdin.write(json.dumps(told) + "\n")
            self.nursery.stdin.flush()
            self.between.start_over(kill, int(self.nursery.stdout.readline()))
        code = os.waitstatus_to_exitcode(int(self.nursery.stdout.readline()))
        return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())

    def complete(self, which: str) -> list[str]:
        """The same to its end; what it wrote."""
        done = self.run(which, None)
        assert done.returncode == 0, f"{which}: {done.stderr[-3000:]}"
        self.see(which)
        return self.between.writes

    def see(self, which: str) -> None:
        """It is as the command leaves it."""
        api, record = self.typed.cluster.api, self.typed.record()
        selector = api.get("Service", "chat")["spec"]["selector"]
        wanted = "chat-standby" if which == "apply" else "chat"
        assert selector["specctl.dev/service"] == wanted
        assert (record["state"], record["proof"]["verdict"]) == ("ready", "proven")
        assert record["options"].get("traffic", "main") == wanted.removeprefix("chat-").replace(
            "chat", "main"
        )
        canary = api.find("Deployment", "chat-canary")
        assert canary is None or "deletionTimestamp" in canary["metadata"]

    def cut(self, which: str, kill: Kill) -> bool:
        """Begin it, kill it, and have it completed; whether it was killed."""
        done = self.run(which, kill)
        if not self.between.killed:
            assert done.returncode == 0, done.stderr[-3000:]
            self.see(which)
            return False
        assert done.returncode == -9, done.stderr[-3000:]
        self.killed[which].add(len(self.between.writes))
        self.complete(which)
        return True

    def there_and_back(self, first: Kill, then: Kill) -> None:
        """A round, each way cut short."""
        self.cut("apply", first)
        self.cut("restore", then)


def states(writes: list[str]) -> list[int]:
    """After how many writes the cluster is as it is after no fewer: the last is the end."""
    changed = [
        number
        for number, call in enumerate(writes, 1)
        if urlsplit(call.split()[1]).path.endswith(TELLING)
    ]
    return [0, *changed[:-1]]


@pytest.fixture
def rounds(cluster: Cluster, tmp_path: Path) -> Iterator[Rounds]:
    typed = Typed(cluster, tmp_path)
    with contextlib.ExitStack() as stack:
        between = stack.enter_context(Between(cluster.kubeconfig, tmp_path))
        nursery = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", NURSERY],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment(
                    XDG_CACHE_HOME=str(typed.env["XDG_CACHE_HOME"]),
                    SPECCTL_STATE=str(tmp_path / "state"),
                ),
            )
        )
        stack.callback(nursery.kill)
        yield Rounds(typed, between, nursery)


@pytest.mark.skip(reason="has not run to its end on a control plane yet")
def test_killed_between_calls_it_serves_on_and_the_same_goes_on(
    rounds: Rounds, tmp_path: Path
) -> None:
    typed, cluster = rounds.typed, rounds.typed.cluster
    # Servers start in a second, and are left for longer than clients take to see that they leave.
    cluster.pods(Behaviour(load_s=0.2, pace=0.1))
    sets = [word for each in SETS for word in ("--set", each)]
    told = typed.deploy("--replicas", "2", "--pool", "standby", *sets)
    assert told["proof"]["verdict"] == "proven"
    with Clients(cluster, "chat", tmp_path / "clients", 12.0) as clients:
        clients.wait_for(20)
        down, back = (states(rounds.complete(which)) for which in ("apply", "restore"))
        for number, writes in enumerate(back):
            rounds.there_and_back(Kill(down[number % len(down)], 0), Kill(writes, 0))
        for looks in (1, 2):  # while nothing is written yet, and while the canary is watched
            canary = back[len(back) // 2 - 1]
            rounds.there_and_back(Kill(0, LOOKS * looks), Kill(canary, LOOKS * looks))
        answers = clients.end()
    assert [each for each in answers if each.status != 200] == []
    assert len(answers) > 500
    assert (len(down), len(back)) >= (4, 10)
    assert rounds.killed["apply"] >= set(down)
    assert rounds.killed["restore"] >= set(back)
