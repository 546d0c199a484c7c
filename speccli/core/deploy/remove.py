"""Takes a deployment away: what would go, and the going."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from speccli.core.deploy.asked import Asked, options_again
from speccli.core.deploy.prepare import read_record, verdicts_of
from speccli.core.errors import UsageError
from speccli.core.kube import apply, record
from speccli.core.kube.errors import Denied, NotInstalled
from speccli.core.kube.record import Record, recipe_of, to_restore
from speccli.core.kube.refs import LEASES, Ref

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a deletion takes away, in order, and what it leaves."""

    name: str
    namespace: str
    goes: tuple[Ref, ...]
    stays: tuple[Ref, ...]
    """Claims: what they hold takes long to be made again."""
    watch: str | None = None
    """Who leads its `fallback watch`, as its Lease has it: it would make that again."""
    unseen: Ref | None = None
    """The Lease of such a watch, which these credentials may not look for."""


def deletion(cluster: Cluster, given: str | None, name: str, *, purge: bool) -> Deletion:
    """What would go. Nothing is changed.

    Raises:
        UsageError: there is no such deployment.
    """
    namespace = given or cluster.namespace
    told = _record_or_none(cluster, namespace, name)
    known = told.known if told else ()
    found = apply.leftovers(cluster, namespace, name, (), known)
    if not found:
        raise UsageError(
            f"no deployment {name} in namespace {namespace} of {cluster.context}",
            hint="specctl list shows those there are",
        )
    own = Ref("v1", "ConfigMap", record.name_of(name), namespace).identity
    # The record goes last: while it is there, a deletion that was cut short can be found.
    goes = [ref for ref in found if ref.identity != own and (purge or ref.kind not in apply.KEPT)]
    lease, unseen = _lease(cluster, namespace, name)
    goes += [Ref.of(lease)] if lease else []
    goes += [ref for ref in found if ref.identity == own]
    stays = [] if purge else [ref for ref in found if ref.kind in apply.KEPT]
    watch = ((lease or {}).get("spec") or {}).get("holderIdentity")
    return Deletion(name, namespace, tuple(goes), tuple(stays), watch, unseen)


def _lease(cluster: Cluster, namespace: str, name: str) -> tuple[dict[str, Any] | None, Ref | None]:
    """That of its fallback watch, where there is one; else which could not be looked for."""
    asked = Ref(LEASES, "Lease", record.fallback_name(name), namespace)
    try:
        there = cluster.get(asked.api_version, asked.kind, asked.name, namespace)
    except NotInstalled:
        return None, None
    except Denied:
        return None, asked
    return (there if there and apply.is_ours(there, name, namespace) else None), None


def _record_or_none(cluster: Cluster, namespace: str, name: str) -> Record | None:
    """The record; a broken one keeps nobody from deleting what has the labels."""
    try:
        return read_record(cluster, namespace, name)
    except record.RecordError:
        return None


def delete(
    cluster: Cluster, asked: Deletion, *, wait_s: float | None, say: Callable[[str], None]
) -> list[Ref]:
    """Take it away; what stays all the same: a Lease that may not be removed keeps nothing else.

    `wait_s`: how long each object may take to be gone, pods with their drain included.

    Raises:
        ClusterError: another object may not be removed, or does not go.
    """
    kept = []
    for ref in asked.goes:
        try:
            removed = apply.remove(cluster, [ref], wait_s=wait_s)
        except Denied as error:
            if ref.kind != "Lease":
                raise
            kept.append(ref)
            say(f"{ref} stays: {error.message}")
            continue
        if removed:
            say(f"removed {ref}")
    return kept


def restored(cluster: Cluster, given: str | None, name: str, number: int | None) -> Asked:
    """What a rollback asks for: a former revision's recipe and options.

    What was served before is not held against today's rules: only the cluster's own are.

    Raises:
        UsageError: there is no such deployment.
        RecordError: it has no such revision.
    """
    namespace = given or cluster.namespace
    told = read_record(cluster, namespace, name)
    if told is None:
        raise UsageError(
            f"no deployment {name} in namespace {namespace} of {cluster.context}",
            hint="specctl list shows those there are",
        )
    revision = to_restore(told, number)
    recipe = recipe_of(revision)
    options = replace(options_again(revision.options), name=name)
    codes = {v.code for v in verdicts_of(recipe, options) if v.severity == "critical"}
    accept = tuple(dict.fromkeys((*revision.accepted, *sorted(codes))))
    return Asked(
        recipe, options, namespace, accept, carried=accept, moves=True, restores=revision.number
    )
