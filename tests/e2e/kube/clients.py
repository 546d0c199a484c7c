"""Clients that go through a deployment's Service all the while, and what they were answered."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.support.kube.api import until
from tests.support.kube.cluster import Cluster
from tests.support.kube.load import answered, set_rate

_LAST_S = 5.0
"""What is on its way when the load ends takes no longer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One request."""

    sent: float
    """Unix seconds."""
    status: int
    """0: no answer, or one that broke off."""
    host: str


class Clients:
    """`with Clients(cluster, "chat", folder) as clients`: requests come at `rate` a second."""

    def __init__(self, cluster: Cluster, service: str, folder: Path, rate: float = 0.0) -> None:
        self._cluster, self._service, self._folder = cluster, service, folder
        folder.mkdir(exist_ok=True)
        self.rate(rate)

    def rate(self, rate: float) -> None:
        """Let so many come a second from now on."""
        set_rate(self._folder, rate)

    def __enter__(self) -> Clients:
        plane = self._cluster.world.plane
        self._process = plane.space.start(
            f"load-{self._cluster.namespace}-{self._service}",
            *(sys.executable, "-m", "tests.support.kube.load"),
            *(plane.server_inside, plane.folder, self._cluster.namespace, self._service),
            self._folder,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cluster.world.plane.space.stop(self._process)

    def answers(self) -> list[Answer]:
        """What has been answered so far, by when it was sent."""
        found = [
            Answer(each["sent"], each["status"] if each["first_s"] else 0, each["host"])
            for each in answered(self._folder)
        ]
        return sorted(found, key=lambda each: each.sent)

    def end(self) -> list[Answer]:
        """No more requests; every answer, once the last has come."""
        self.rate(0)
        time.sleep(_LAST_S)
        return self.answers()

    def wait_for(self, count: int) -> None:
        """Until so many more were answered."""
        there = len(self.answers())
        until(lambda: len(self.answers()) >= there + count, f"{count} answers")
