"""The pods of a deployment as they come and go: listed once, then watched by a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from speccli.core.kube.discover import Found
from speccli.core.kube.errors import ClusterError, Denied, Gone

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

LIST_EVERY_S = 5.0
"""Where one may list pods and not watch them."""
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Before a server that failed is asked again; the last again and again."""


class PodWatch:
    """A copy of the pods that a selector picks."""

    def __init__(self, cluster: Cluster, found: Found) -> None:
        """Nothing is asked before `begin`."""
        self.found = found
        self.trouble: ClusterError | None = None
        """Why the copy may be old; None while it is not."""
        self.changes = 0
        """How often it has changed."""
        self._cluster = cluster
        self._pods: dict[str, Mapping[str, Any]] = {}
        self._version = ""
        self._stop = threading.Event()

    @property
    def pods(self) -> tuple[Mapping[str, Any], ...]:
        """As they are now."""
        return tuple(self._pods.values())

    def begin(self) -> None:
        """List, then go on watching.

        Raises:
            ClusterError: they cannot be listed.
        """
        self._list()
        threading.Thread(target=self._run, name="specctl-pods", daemon=True).start()

    def end(self) -> None:
        """Watch no more; the thread ends with the answer it is reading."""
        self._stop.set()

    def _list(self) -> None:
        found = self.found
        listed, self._version = self._cluster.list_with_version(
            "v1", "Pod", found.namespace, labels=found.selector
        )
        self._set({str(pod["metadata"]["name"]): pod for pod in listed})

    def _set(self, pods: dict[str, Mapping[str, Any]]) -> None:
        self._pods = pods  # replaced whole, so that whoever reads needs no lock
        self.changes += 1

    def _run(self) -> None:
        failures = 0
        step: Callable[[], None] = self._watch
        while not self._stop.is_set():
            try:
                step()
                step = self._watch if step == self._list_then_watch else step
                failures, self.trouble = 0, None
            except Gone:
                step = self._list_then_watch
            except Denied as error:
                if step == self._list_again:
                    self.trouble = error
                step = self._list_again
            except ClusterError as error:
                self.trouble = error
                self._stop.wait(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
                failures += 1
                step = self._list_again if step == self._list_again else self._list_then_watch

    def _list_again(self) -> None:
        self._stop.wait(LIST_EVERY_S)
        self._list()

    def _list_then_watch(self) -> None:
        self._list()
        self.trouble = None
        self._watch()

    def _watch(self) -> None:
        found = self.found
        for kind, obj in self._cluster.watch(
            "v1", "Pod", self._version, found.namespace, labels=found.selector
        ):
            if self._stop.is_set():
                return
            metadata = obj.get("metadata") or {}
            self._version = str(metadata.get("resourceVersion") or self._version)
            name = metadata.get("name")
            if kind == "DELETED":
                self._set({n: pod for n, pod in self._pods.items() if n != name})
            elif kind in {"ADDED", "MODIFIED"} and name:
                self._set({**self._pods, str(name): obj})
