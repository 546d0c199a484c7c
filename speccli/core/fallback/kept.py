"""What a watch remembers, in the cluster: state and audit in the ConfigMap NAME-fallback.

Every write says which version it was made from: of two writers the second is told, and nothing of
the first is lost. Moves, refusals and cool-downs outlive the pod, and a new leader goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

from speccli.core.errors import SpecctlError
from speccli.core.fallback.audit import Entry, bounded
from speccli.core.fallback.terms import Kind, Move, Moved, Outcome, Seen, State
from speccli.core.kube.errors import Conflict
from speccli.core.kube.objects import create
from speccli.core.kube.record import fallback_name
from speccli.core.manifests.names import labels

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

SCHEMA = "specctl.fallback-state/v1"
AUDIT = "specctl.fallback-audit/v1"
_STATE, _AUDIT, _TOLD = "state.json", "audit.json", "told.json"


class KeptError(SpecctlError):
    """What was remembered cannot be understood, or is somebody else's by now."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is remembered, and the version that was read."""

    state: State = field(default_factory=State)
    audit: tuple[Entry, ...] = ()
    """Newest last."""
    version: str | None = None
    """None: nothing is there yet."""
    told: Any = None
    """What channels were told, as a notifier gives it; None: nothing yet."""

    def after(self, state: State, *entries: Entry) -> Kept:
        """The same with another state, and more in the audit."""
        return replace(self, state=state, audit=bounded((*self.audit, *entries)))


def load(cluster: Cluster, namespace: str, name: str) -> Kept:
    """What is remembered of a deployment; nothing where there is nothing.

    Raises:
        KeptError: it cannot be read.
        ClusterError: the cluster cannot be asked.
    """
    value = cluster.get("v1", "ConfigMap", fallback_name(name), namespace)
    return Kept() if value is None else from_object(value)


def save(cluster: Cluster, namespace: str, name: str, kept: Kept) -> Kept:
    """Write it down.

    Raises:
        KeptError: somebody else wrote since it was read.
        ClusterError: the cluster cannot be asked, or does not let us.
    """
    body = as_object(kept, namespace, name)
    try:
        if kept.version is None:
            there = create(cluster, body)
        else:
            body["metadata"]["resourceVersion"] = kept.version
            there = cluster.apply(body, force=True)
    except Conflict as error:
        raise KeptError(
            f"somebody else moved or proposed something of {name} at the same time",
            hint=f"specctl fallback plan {name}, then do the same again",
        ) from error
    return replace(kept, version=str(there["metadata"]["resourceVersion"]))


def as_object(kept: Kept, namespace: str, name: str) -> dict[str, Any]:
    """The ConfigMap that holds it."""
    state = {"schema": SCHEMA, **asdict(kept.state)}
    audit = {"schema": AUDIT, "entries": [entry.to_json() for entry in kept.audit]}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": fallback_name(name),
            "namespace": namespace,
            "labels": labels(name),
        },
        "data": {
            _STATE: json.dumps(state, indent=1, sort_keys=True),
            _AUDIT: json.dumps(audit, sort_keys=True),
            **({_TOLD: json.dumps(kept.told, sort_keys=True)} if kept.told is not None else {}),
        },
    }


def from_object(value: Mapping[str, Any]) -> Kept:
    """What a ConfigMap holds.

    Raises:
        KeptError: it is not what a watch writes, or is of a newer specctl.
    """
    metadata, data = value["metadata"], value.get("data") or {}
    try:
        told, audit = json.loads(data[_STATE]), json.loads(data[_AUDIT])
        if (told["schema"], audit["schema"]) != (SCHEMA, AUDIT):
            raise ValueError(f"its form is {told['schema']!r}")
        entries = tuple(Entry.from_json(each) for each in audit["entries"])
        channels = json.loads(data.get(_TOLD, "null"))
        return Kept(_state(told), entries, str(metadata["resourceVersion"]), channels)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KeptError(
            f"ConfigMap {metadata.get('name')} cannot be read: {error!r}",
            hint="delete it: cool-downs and refusals are forgotten then, nothing else",
        ) from error


def _state(told: Mapping[str, Any]) -> State:
    return State(
        configuration=str(told["configuration"]),
        rung=str(told["rung"]),
        since=_maybe(told["since"]),
        moves=tuple(_moved(each) for each in told["moves"]),
        refusals=int(told["refusals"]),
        refused_at=_maybe(told["refused_at"]),
        failed=tuple(map(str, told["failed"])),
        seen={
            str(code): Seen(float(each["since"]), float(each["last"]))
            for code, each in told["seen"].items()
        },
        proposal=_move(told["proposal"]),
        under_way=_move(told["under_way"]),
        accepted_at=_maybe(told["accepted_at"]),
        tries=int(told.get("tries", 0)),
        inconclusive=int(told.get("inconclusive", 0)),
    )


def _move(told: Any) -> Move | None:
    if told is None:
        return None
    texts = {key: _text(told[key]) for key in ("id", "source", "target", "code", "why")}
    return Move(
        **texts,
        kind=_word(told["kind"], Kind),
        revision=int(told["revision"]),
        at=float(told["at"]),
        configuration=str(told.get("configuration", "")),
        until=_maybe(told.get("until")),
        well=_maybe(told.get("well")),
    )


def _moved(told: Mapping[str, Any]) -> Moved:
    return Moved(
        float(told["at"]),
        _word(told["kind"], Kind),
        _text(told["source"]),
        _text(told["target"]),
        _word(told["outcome"], Outcome),
        _text(told["by"]),
    )


def _maybe(told: Any) -> float | None:
    return None if told is None else float(told)


def _text(told: Any) -> str:
    if not isinstance(told, str):
        raise TypeError(f"{told!r} is no text")
    return told


def _word(told: Any, words: Any) -> Any:
    if told not in get_args(words):
        raise ValueError(f"{told!r} is none of {', '.join(get_args(words))}")
    return told


def telling(state: State) -> State:
    """The state without what changes at every look: when a finding was last there."""
    return replace(state, seen={c: Seen(each.since, 0.0) for c, each in state.seen.items()})
