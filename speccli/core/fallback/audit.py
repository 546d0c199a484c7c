"""What is told of each move: a line on stdout, an entry in the cluster, an Event, a metric."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from speccli.core.fallback.terms import Move
from speccli.core.kube.objects import create
from speccli.core.views.status import rfc3339

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

What = Literal[
    "proposed",
    "withdrawn",
    "accepted",
    "begun",
    "continued",
    "done",
    "unproven",
    "failed",
    "refused",
    "inconclusive",
    "moved_by_others",
    "stays_down",
    "exhausted",
]
MOST = 200
_LONGEST = 500
_CALLED = {"source": "from", "target": "to"}
COMPONENT = "specctl-fallback"
_WARNINGS = frozenset(
    {"proposed", "unproven", "failed", "refused", "inconclusive", "stays_down", "exhausted"}
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened."""

    at: float
    what: What
    deployment: str
    by: str
    """The watch's identity, or `user@host`."""
    words: str
    id: str | None = None
    """Of the move."""
    kind: str | None = None
    """`down` or `restore`."""
    source: str | None = None
    target: str | None = None
    code: str | None = None
    """The finding that led to it."""
    revision: int | None = None
    """That it was decided at."""
    seconds: float | None = None
    """How long it took; None: it has not ended."""

    def to_json(self) -> dict[str, Any]:
        """Its form in the cluster, and of a line."""
        told = {**asdict(self), "at": rfc3339(self.at)}
        return {_CALLED.get(key, key): value for key, value in told.items()}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Entry:
        """That of such a form; ValueError, TypeError or KeyError where it is none."""
        own = {**told, "at": datetime.fromisoformat(told["at"]).timestamp()}
        own["source"], own["target"] = own.pop("from"), own.pop("to")
        return cls(**own)

    @property
    def line(self) -> str:
        """One line of JSON."""
        return json.dumps({"schema": "specctl.fallback-event/v1", **self.to_json()})

    @property
    def reason(self) -> str:
        """The Event's: `FallbackProposed`."""
        return "Fallback" + "".join(word.title() for word in self.what.split("_"))


def entry(
    what: What,
    deployment: str,
    by: str,
    at: float,
    words: str,
    move: Move | None = None,
    seconds: float | None = None,
) -> Entry:
    """What happened, of a move where it is about one."""
    words = " ".join(words.split())
    words = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
    if move is None:
        return Entry(at, what, deployment, by, words)
    return Entry(
        at,
        what,
        deployment,
        by,
        words,
        move.id,
        move.kind,
        move.source,
        move.target,
        move.code or None,
        move.revision,
        seconds,
    )


def bounded(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The newest: an object of the cluster has room for a megabyte."""
    return tuple(entries[-MOST:])


def as_event(told: Entry, deployment: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """The Event on a Deployment."""
    at = datetime.fromtimestamp(told.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = deployment.get("metadata") or {}
    name = metadata.get("name", told.deployment)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}.fallback-", "namespace": namespace},
        "involvedObject": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": name,
            "namespace": namespace,
            **({"uid": metadata["uid"]} if "uid" in metadata else {}),
        },
        "reason": told.reason,
        "message": told.words,
        "type": "Warning" if told.what in _WARNINGS else "Normal",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": told.by[:128],
    }


def emit(cluster: Cluster, told: Entry, namespace: str) -> None:
    """Make the Event.

    Raises:
        ClusterError: the cluster did not take it.
    """
    there = cluster.get("apps/v1", "Deployment", told.deployment, namespace)
    create(cluster, as_event(told, there or {}, namespace))
