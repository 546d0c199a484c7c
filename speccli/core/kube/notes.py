"""What else is worth saying of pods that do not serve: how far they have come, why they crashed.

Logs and events are read by a thread, seldom; a screen never waits for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from speccli.core.engines import vllm_start
from speccli.core.errors import NotAuthorisedError, SpecctlError
from speccli.core.kube.crash import Crash, classify, classify_pod
from speccli.core.kube.discover import Pod, engine_of
from speccli.core.sources.base import Scrape

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

EVERY_S = 3.0
"""How often logs of loading pods are read."""
_AT_ONCE = 8
_LOG_LINES = 200


@dataclass(frozen=True, slots=True)
class _Note:
    """What is known of one run of a pod."""

    incarnation: tuple[str, int]
    doing: str | None = None
    """How far it has come."""
    crash: Crash | None = None
    """Why it ended; of a run that loads, why the one before did."""


class Notes:
    """Keeps a note for each pod that does not serve."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        pods: Callable[[], Iterable[Mapping[str, Any]]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`pods`: as the API server has them."""
        self._cluster = cluster
        self._namespace = namespace
        self._pods = pods
        self._clock = clock
        self._notes: dict[str, _Note] = {}
        self._next = 0.0
        self._busy = threading.Lock()
        self._may_read_logs = True
        self._looked_into: set[tuple[str, int]] = set()

    def unread(self, pods: Iterable[Pod]) -> tuple[str, ...]:
        """Pods of which more may be told once they have been looked into for the first time."""
        return tuple(
            pod.name for pod in pods if _is_due(pod) and pod.incarnation not in self._looked_into
        )

    def look(self, pods: Collection[Pod]) -> None:
        """Read what there is to read, where it is time and not under way."""
        due = [pod for pod in pods if _is_due(pod)]
        due.sort(key=lambda pod: pod.incarnation in self._looked_into)
        if due and self._clock() >= self._next and self._busy.acquire(blocking=False):
            self._next = self._clock() + EVERY_S
            threading.Thread(
                target=self._read, args=(due[:_AT_ONCE],), name="specctl-notes", daemon=True
            ).start()

    def on(self, pod: Pod, scrape: Scrape) -> Scrape:
        """A scrape that gave nothing, with what is known of the reason."""
        note = self._notes.get(pod.name)
        if note is not None and note.incarnation != pod.incarnation:
            note = None
        if pod.crashed:
            return _crashed(pod, scrape, note.crash if note else self._plain(pod))
        if pod.stage == "loading" and note is not None:
            return _loading(scrape, note)
        if pod.stage == "pending" and (why := self._plain(pod)) is not None:
            return replace(scrape, error=why.cause, fix=why.fix)
        return scrape

    def _plain(self, pod: Pod) -> Crash | None:
        """Why, by the pod's state alone."""
        return next(
            (classify(each) for each in self._pods() if each["metadata"]["name"] == pod.name), None
        )

    def _read(self, due: list[Pod]) -> None:
        try:
            for pod in due:
                try:
                    self._one(pod)
                except SpecctlError:
                    continue  # the screen says what it knows without
                finally:
                    self._looked_into.add(pod.incarnation)
        finally:
            self._busy.release()

    def _one(self, pod: Pod) -> None:
        known = self._notes.get(pod.name)
        crash = known.crash if known and known.incarnation == pod.incarnation else None
        if crash is None and (pod.crashed or pod.restarts):
            crash = classify_pod(self._cluster, self._namespace, pod.name)
            self._notes[pod.name] = _Note(pod.incarnation, crash=crash)
        if pod.crashed or not self._may_read_logs:
            return
        container = next(
            (engine_of(p)[0] for p in self._pods() if p["metadata"]["name"] == pod.name), None
        )
        try:
            log = self._cluster.logs(self._namespace, pod.name, container, _LOG_LINES)
        except NotAuthorisedError:
            self._may_read_logs = False
            return
        self._notes[pod.name] = _Note(pod.incarnation, vllm_start.told(log), crash)


def _is_due(pod: Pod) -> bool:
    return pod.crashed or pod.stage == "loading"


def _loading(scrape: Scrape, note: _Note) -> Scrape:
    doing = note.doing or scrape.error or "loading"
    if note.crash is None:
        return replace(scrape, error=doing)
    start = f"start {note.incarnation[1] + 1}; the one before ended: {note.crash.cause}"
    return replace(scrape, error=f"{doing} ({start})", fix=note.crash.fix)


def _crashed(pod: Pod, scrape: Scrape, crash: Crash | None) -> Scrape:
    if crash is None:
        return scrape
    times = f" {pod.restarts} times" if pod.restarts > 1 else ""
    return replace(scrape, error=f"crashed{times}: {crash.cause}", fix=crash.fix)
