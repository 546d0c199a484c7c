"""A container: a process with a log, started again when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.kube.behaviour import Behaviour

Object = dict[str, Any]


def now() -> str:
    """The time as the API has it, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Container:
    """One container of a pod and its state, as its status tells it."""

    def __init__(self, spec: Object, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self.restarts = 0
        self.ready = False
        self.started = False
        self.state: Object = {"waiting": {"reason": "ContainerCreating"}}
        self.last: Object = {}
        self.process: asyncio.subprocess.Process | None = None
        self._began = now()
        self.env: dict[str, str] = {}

    @property
    def name(self) -> str:
        name: str = self.spec["name"]
        return name

    @property
    def words(self) -> list[str]:
        """Its command and arguments."""
        return [*self.spec.get("command", []), *self.spec.get("args", [])]

    @property
    def text(self) -> str:
        """What a rule's `contains` is looked for in."""
        return " ".join([self.spec.get("image", ""), *self.words])

    @property
    def is_engine(self) -> bool:
        """Whether it is a vLLM server; nothing else is run."""
        return "vllm" in self.words or "vllm/vllm-openai" in self.spec.get("image", "")

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def log(self, previous: bool = False) -> Path | None:
        """The log of its present run or of the one before; None where there was none."""
        path = self.folder / f"{self.name}.{self.restarts - int(previous)}.log"
        return path if path.exists() else None

    async def start(
        self,
        address: str,
        behaviour: Behaviour,
        volumes: Path | None = None,
        rules: Sequence[Any] | None = None,
    ) -> None:
        """Run it: the simulated engine for an engine, and for anything else a word in the log.

        `volumes`: run its own command, with what it mounts below this folder. `rules`: what
        `behaviour.read` takes to find this behaviour again, for an engine to look what has changed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.env = dict(behaviour.env)
        environment = {**os.environ, **self.env}
        command = [sys.executable, "-c", "print('not an engine: nothing is run here')"]
        if volumes is not None and not self.is_engine:
            command = [self._moved(word, volumes) for word in self.words]
            for one in self.spec.get("env", []):
                environment[one["name"]] = self._moved(one.get("value", ""), volumes)
        elif self.is_engine:
            words = self.words
            words = words[words.index("vllm") + 1 :] if "vllm" in words else words
            given = {
                "host": address,
                "port": int(self.spec["ports"][0]["containerPort"]),
                "words": words,
                "behaviour": dataclasses.asdict(behaviour),
                "rules": rules,
            }
            command = [sys.executable, "-m", "tests.support.kube.engine", json.dumps(given)]
        with (self.folder / f"{self.name}.{self.restarts}.log").open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                "setpriv", "--pdeathsig", "KILL", "--", *command,
                stdout=log, stderr=log, env=environment,
            )  # fmt: skip
        self._began = now()
        self.state = {"running": {"startedAt": self._began}}

    def _moved(self, text: str, volumes: Path) -> str:
        """A word with the paths of mounts below `volumes`."""
        mounts = [re.escape(one["mountPath"]) for one in self.spec.get("volumeMounts", [])]
        if not mounts:
            return text
        return re.sub(rf"(?<![\w/.])({'|'.join(mounts)})(?=[/\s]|$)", rf"{volumes}\1", text)

    async def ended(self, behaviour: Behaviour) -> int:
        """Wait for its end and note it; the exit code as a container has it."""
        assert self.process is not None
        code = await self.process.wait()
        code = 128 - code if code < 0 else code
        killed = behaviour.oom and code == 128 + signal.SIGKILL
        reason = "OOMKilled" if killed else "Completed" if code == 0 else "Error"
        self.ready = self.started = False
        self.state = {
            "terminated": {
                "exitCode": code,
                "reason": reason,
                "startedAt": self._began,
                "finishedAt": now(),
                "containerID": self._id(),
            }
        }
        return code

    def wait_to_restart(self, message: str) -> None:
        """It will be started again after a while."""
        self.last = self.state
        self.state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}

    def wait(self, reason: str, message: str = "") -> None:
        """It cannot be started."""
        self.state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}

    def signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def _id(self) -> str:
        return f"none://{self.name}-{self.restarts}"

    def status(self) -> Object:
        """Its entry in the pod's containerStatuses."""
        image: str = self.spec.get("image", "")
        started = "waiting" not in self.state
        return {
            "name": self.name,
            "image": image,
            "imageID": image if started else "",
            "containerID": self._id() if started else "",
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }
