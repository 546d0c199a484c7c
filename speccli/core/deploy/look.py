"""What is deployed, and how it is: records beside what the cluster and this machine say now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speccli.core.deploy.place import Here, every
from speccli.core.deploy.prepare import read_record
from speccli.core.errors import ExitCode, SpecctlError, UsageError
from speccli.core.kube import record
from speccli.core.kube.connection import EVERYWHERE
from speccli.core.kube.errors import Denied
from speccli.core.kube.progress import Progress, workload_of
from speccli.core.kube.record import Record, RecordError
from speccli.core.kube.refs import pods_of
from speccli.core.kube.rollout import look
from speccli.core.manifests.names import DEPLOYMENT, MANAGED_BY, MANAGER, SERVICE, service_name

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

Listed = tuple[Record, str, str, int | None]
"""A record, `kubernetes` or `local`, its namespace, and how many pods serve (None: not known)."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """One deployment on a cluster."""

    record: Record
    namespace: str
    context: str
    progress: Progress
    serves: str | None = None
    """The pool that its address leads to; None: there is no Service that says so."""

    @property
    def exit_code(self) -> ExitCode:
        """0 where something serves and 3 where nothing does, as `status` has it."""
        return ExitCode.OK if self.progress.serving else ExitCode.UNKNOWN


def deployed(cluster: Cluster, namespace: str | None, name: str) -> Deployed:
    """Its record and its rollout.

    Raises:
        UsageError: there is no such deployment.
    """
    place = namespace or cluster.namespace
    told = read_record(cluster, place, name)
    if told is None:
        raise UsageError(
            f"no deployment {name} in namespace {place} of {cluster.context}",
            hint="specctl list shows those there are",
        )
    names = [each["metadata"]["name"] for each in _deployments(cluster, place, name)]
    progress = look(cluster, place, name, names)
    return Deployed(told, place, cluster.context, progress, _serves(cluster, place, name))


def _serves(cluster: Cluster, namespace: str, name: str) -> str | None:
    """The pool that the Service selects now, whatever the record says."""
    try:
        value = cluster.get("v1", "Service", name, namespace)
    except Denied:
        return None
    selector = ((value or {}).get("spec") or {}).get("selector") or {}
    led = selector.get(SERVICE)
    pools = {service_name(name, pool): pool for pool in ("main", "standby")}
    return None if led is None else pools.get(str(led), str(led))


def _deployments(cluster: Cluster, namespace: str, name: str) -> list[dict[str, Any]]:
    return cluster.list("apps/v1", "Deployment", namespace, labels=pods_of(name))


def on_cluster(cluster: Cluster, namespace: str | None) -> tuple[list[Listed], list[str]]:
    """Every deployment of a namespace (`*`: of all), and what could not be read.

    Raises:
        SpecctlError: the cluster cannot be asked.
    """
    place = namespace or cluster.namespace
    values = cluster.list("v1", "ConfigMap", place, labels=f"{record.LABEL}=true")
    serving: dict[tuple[str, str], int] | None
    try:
        live = cluster.list("apps/v1", "Deployment", place, labels=f"{MANAGED_BY}={MANAGER}")
        serving = {}
        for each in live:
            labels = each["metadata"].get("labels") or {}
            key = each["metadata"]["namespace"], str(labels.get(DEPLOYMENT))
            serving[key] = serving.get(key, 0) + workload_of(each).available
    except SpecctlError:
        serving = None
    found: list[Listed] = []
    broken = []
    for value in values:
        where = value["metadata"]["namespace"]
        try:
            told = record.from_object(value)
        except RecordError as error:
            broken.append(f"namespace {where}: {error.message}")
            continue
        count = None if serving is None else serving.get((where, told.name), 0)
        found.append((told, "kubernetes", where, count))
    return sorted(found, key=lambda each: (each[2], each[0].name)), broken


def on_this_machine(state: Path) -> tuple[list[Listed], list[str]]:
    """Every local deployment, and what could not be read."""
    found: list[Listed] = []
    broken = []
    for here in every(state):
        try:
            told = here.record()
        except SpecctlError as error:
            broken.append(error.message)
            continue
        if told is not None:
            found.append((told, "local", "", int(here.healthy())))
    return found, broken


@dataclass(frozen=True, slots=True)
class DeployedHere:
    """One deployment on this machine."""

    record: Record
    here: Here
    alive: bool
    healthy: bool

    @property
    def exit_code(self) -> ExitCode:
        """0 where it serves, else 3."""
        return ExitCode.OK if self.healthy else ExitCode.UNKNOWN

    @property
    def words(self) -> str:
        """How it is, in a line."""
        serving, newest, number = self.here.serving, self.here.newest, self.record.current.number
        if self.healthy:
            words = f"serving at {self.here.url}"
            if serving is None or serving.identity == self.record.current.objects_hash:
                return words
            words = f"revision {serving.revision} is {words}"
            if newest is None or newest.revision != number:
                return f"{words}; revision {number} is not"
            ended = not self.here.lives(newest)
            state = "has ended" if ended else f"starts beside it: {self.here.phase(newest)}"
            return f"{words}; revision {number} {state}"
        if self.alive and newest is not None:
            return f"starting: {self.here.phase(newest)}"
        return f"not running: {self.here.ending()}"


def deployed_here(here: Here) -> DeployedHere:
    """Its record, and whether it serves.

    Raises:
        UsageError: nothing of that name is kept here.
    """
    told = here.record()
    if told is None:
        raise UsageError(f"no local deployment {here.name}", hint="specctl list")
    return DeployedHere(told, here, here.alive, here.healthy())


@dataclass(frozen=True, slots=True)
class Listing:
    """What `list` found."""

    deployments: tuple[Listed, ...]
    notes: tuple[str, ...]
    """What could not be read."""
    exit_code: ExitCode = ExitCode.OK
    """Of a cluster that is configured and could not be asked; else 0."""


def listing(
    state: Path,
    connect: Callable[[], Cluster],
    *,
    to: str | None,
    namespace: str | None,
    everywhere: bool,
    named: bool,
) -> Listing:
    """Deployments of a cluster, of this machine, or of both.

    `named`: whether a cluster was named: one that was not need not be there, and hides nothing of
    this machine where it is down.

    Raises:
        SpecctlError: the cluster that was asked for cannot be asked.
    """
    found: list[Listed] = []
    notes: list[str] = []
    code = ExitCode.OK
    if to != "local":
        try:
            got, broken = on_cluster(connect(), EVERYWHERE if everywhere else namespace)
        except SpecctlError as error:
            if to is not None or named:
                raise
            if isinstance(error, UsageError):
                notes.append(f"no cluster was asked: {error.message}")
            else:
                code = error.exit_code
                notes.append(f"what the cluster has is not known: {error.message}")
        else:
            found += got
            notes += broken
    if to != "kubernetes" and not named:
        got, broken = on_this_machine(state)
        found += got
        notes += broken
    return Listing(tuple(found), tuple(notes), code)
