"""From a step of the ladder to the deployment that it is, and back: what a rolling change asks for.

Each is a deployment like any other, with its own revision, trial, rollout and proof.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from speccli.core.deploy.asked import Asked, options_again
from speccli.core.deploy.local import restored as restored_here
from speccli.core.deploy.prepare import read_record, verdicts_of
from speccli.core.deploy.remove import restored
from speccli.core.errors import UsageError
from speccli.core.fallback.ladder import Ladder, choose, ladder, unfinished
from speccli.core.manifests.options import RenderOptions
from speccli.core.plan import plan

if TYPE_CHECKING:
    from speccli.core.deploy.place import Here
    from speccli.core.kube.client import Cluster
    from speccli.core.kube.record import Record


def on_cluster(cluster: Cluster, given: str | None, name: str) -> tuple[Ladder, str]:
    """The ladder of a deployment on a cluster, and its namespace.

    Raises:
        UsageError: there is no such deployment.
    """
    namespace = given or cluster.namespace
    return ladder(recorded(cluster, namespace, name)), namespace


def recorded(cluster: Cluster, namespace: str, name: str) -> Record:
    """The record of a deployment.

    Raises:
        UsageError: there is no such deployment.
    """
    told = read_record(cluster, namespace, name)
    if told is None:
        raise UsageError(
            f"no deployment {name} in namespace {namespace} of {cluster.context}",
            hint="specctl list shows those there are",
        )
    return told


def on_this_machine(here: Here) -> Ladder:
    """The ladder of a local deployment.

    Raises:
        UsageError: there is none of that name.
    """
    told = here.record()
    if told is None:
        raise UsageError(f"no local deployment {here.name}", hint="specctl list")
    return ladder(told)


def down(found: Ladder, method: str | None, namespace: str | None) -> Asked:
    """The deployment that a step is; the one under way again, where it was cut short.

    A retreat is not held against rules about the target, which serves already; the cluster's own
    are asked all the same. `namespace` None: on this machine.

    Raises:
        UsageError: there is no such step.
    """
    current = found.record.current
    recipe = found.recipe if unfinished(found, method) else choose(found, method).recipe
    if namespace is None:
        options = RenderOptions(name=found.record.name)
        verdicts = plan(recipe).verdicts
    else:
        options = replace(options_again(current.options), name=found.record.name)
        verdicts = tuple(verdicts_of(recipe, options))
    codes = {v.code for v in verdicts if v.severity == "critical"}
    accept = tuple(dict.fromkeys((*current.accepted, *sorted(codes))))
    return Asked(recipe, options, namespace, accept, carried=accept)


def back(found: Ladder) -> int:
    """The number of the revision to restore.

    Raises:
        UsageError: no fallback led here.
    """
    current = found.record.current
    if current.restores is not None and current.state != "ready":
        return current.restores  # it was begun, and is to be completed
    if found.back is None:
        raise UsageError(
            f"no fallback led to revision {found.record.current.number} of {found.record.name}",
            hint=f"specctl rollback {found.typed} brings any former revision back",
        )
    return found.back.number


__all__ = [
    "back",
    "down",
    "on_cluster",
    "on_this_machine",
    "restored",
    "restored_here",
    "unfinished",
]
