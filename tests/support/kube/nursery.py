"""Starts commands in processes of their own, without the second that their imports take.

    with Nursery(between, folder, env, "speccli.commands.deploy") as nursery:
        done = nursery.run(["deploy", ...], Kill(3, 0))

A process that has imported everything forks one for each command, so that each is one that can be
killed, and leaves nothing behind but what it wrote.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.kube.between import Between, Kill, News

_BODY = """
import importlib, json, os, sys
import kubernetes.dynamic
import speccli.core.kube.client, speccli.core.kube.transport
import speccli.core.manifests.sizes as sizes
from speccli.main import main
for module in sys.argv[1:]:
    importlib.import_module(module)
sizes.MIN_READY_S = 0  # how long a pod must have been ready: 10 s in life, and the rounds are many
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if not pid:
        for number, path in ((1, asked["out"]), (2, asked["err"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        exec(asked["first"])
        sys.argv = ["specctl", *asked["words"]]
        main()
        os._exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


class Nursery:
    """`with Nursery(between, folder, env, *modules) as nursery`: `modules` are imported first."""

    def __init__(
        self, between: Between, folder: Path, env: Mapping[str, str], *modules: str
    ) -> None:
        self.between, self._folder, self._env, self._modules = between, folder, env, modules

    def __enter__(self) -> Nursery:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BODY, *self._modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(self._env),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(
        self, words: Sequence[str], kill: Kill | News | None = None, first: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """A command through `between`, killed when `kill` says so; None: left alone.

        `first`: Python that its process runs before it: what the command waits for may be shorter.
        """
        out, err = self._folder / "out", self._folder / "err"
        told = {
            "words": [*words, "--kubeconfig", str(self.between.kubeconfig)],
            "first": first,
            "out": str(out),
            "err": str(err),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Until its number is known nothing can be killed; nothing of it is asked before that.
        with self.between.held():
            self._process.stdin.write(json.dumps(told) + "\n")
            self._process.stdin.flush()
            self.between.start_over(kill, int(self._process.stdout.readline()))
        code = os.waitstatus_to_exitcode(int(self._process.stdout.readline()))
        return subprocess.CompletedProcess([*words], code, out.read_text(), err.read_text())
