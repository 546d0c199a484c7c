"""Watches a rollout until it is done, fails, or takes too long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from speccli.core.errors import NotAuthorisedError, SpecctlError
from speccli.core.kube.progress import (
    PodView,
    Progress,
    newest_hashes,
    pod_view,
    workload_of,
)
from speccli.core.kube.refs import pods_of
from speccli.core.manifests.names import CONTAINER

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

POLL_S = 2.0
LOG_LINES = 400
"""What is read of a log to know how far a start has come: progress bars are chatty."""
_CRASHES = 2
"""A start that fails twice in one watch fails again."""
_STUCK_S = 120.0
"""For how long an image or a container's settings may be wrong: somebody may be mending them."""
_HOPELESS = frozenset({"InvalidImageName"})
_STUCK = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    }
)
_STALE_EXPIRY_S = 30.0
"""A progress deadline that had passed before the watch began says nothing of what it brings."""
_AT_ONCE = 4
"""Logs and events that are read side by side."""
End = Literal["done", "failed", "late"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a watch ended."""

    end: End
    progress: Progress
    why: str = ""
    """What failed, what it still waits for, or what it is done without."""
    pod: str | None = None
    """The pod that tells most of it; None where no pod does."""


class Patience:
    """Says when a rollout has failed: pure but for what it remembers."""

    def __init__(self, began: float) -> None:
        """`began`: when the watch began, on the clock that `failure` is given."""
        self._began = began
        self._first_restarts: dict[str, int] = {}
        self._stuck_since: dict[tuple[str, str], float] = {}
        self._expired_before: set[str] | None = None

    def failure(self, progress: Progress, now: float) -> tuple[str, str | None] | None:
        """Why it has failed, and which pod tells of it; None while there is hope."""
        stuck: dict[tuple[str, str], float] = {}
        for pod in progress.pods:
            if not pod.fresh:
                continue
            before = self._first_restarts.setdefault(pod.name, pod.restarts)
            crashes = pod.restarts - before + (pod.phase == "crashed")
            if crashes >= _CRASHES and pod.phase != "ready":
                return f"{pod.name} ended {crashes} times: {pod.detail}", pod.name
            if pod.trouble in _HOPELESS:
                return f"{pod.name}: {pod.detail}", pod.name
            if pod.trouble in _STUCK:
                since = self._stuck_since.get((pod.name, pod.pool), now)
                stuck[pod.name, pod.pool] = since
                if now - since >= _STUCK_S:
                    return f"{pod.name} for {now - since:.0f} s: {pod.detail}", pod.name
        self._stuck_since = stuck
        return self._expiry(progress, now)

    def _expiry(self, progress: Progress, now: float) -> tuple[str, str | None] | None:
        late = {each.name: each.expired for each in progress.workloads if each.expired}
        if self._expired_before is None:
            self._expired_before = set(late)
        for each in progress.workloads:
            if not each.seen or not each.expired:
                self._expired_before.discard(each.name)
                continue
            if each.name in self._expired_before and now - self._began < _STALE_EXPIRY_S:
                continue
            worst = most_telling(progress.pods)
            told = f"; {worst.name}: {worst.detail}" if worst else ""
            return f"{each.expired}{told}", worst.name if worst else None
        return None


class Stragglers:
    """Says when all that is still missing will not come soon: pure but for its memory."""

    def __init__(self, after_s: float) -> None:
        """`after_s`: for how long it must look so: a node may just be freed, a start repeated."""
        self._after_s = after_s
        self._since: float | None = None

    def told(self, progress: Progress, now: float) -> str | None:
        """What does not come while others of its pool serve; None while there is hope."""
        fresh = [pod for pod in progress.pods if pod.fresh and pod.phase != "leaving"]
        missing = [pod for pod in fresh if pod.phase != "ready"]
        of = [pod for pod in fresh if pod.pool in {each.pool for each in missing}]
        if not missing or len(missing) == len(of) or not all(map(_hopeless, missing)):
            self._since = None
            return None
        self._since = now if self._since is None else self._since
        if now - self._since < self._after_s:
            return None
        first = missing[0]
        return f"{len(missing)} of {len(of)} servers do not come: {first.name}: {first.detail}"


def _hopeless(pod: PodView) -> bool:
    """No node takes it, it ended again and again, or its image or settings are wrong."""
    if pod.phase == "scheduling":
        return pod.trouble is not None
    return pod.phase == "crashed" or pod.restarts >= _CRASHES or pod.trouble in _HOPELESS | _STUCK


def most_telling(pods: Iterable[PodView]) -> PodView | None:
    """The pod that says most about why a rollout does not get on; None where all is well."""
    order = {"crashed": 0, "image": 1, "scheduling": 2, "compile": 3, "weights": 4}
    waiting = [pod for pod in pods if pod.fresh and pod.phase in order]
    return min(waiting, key=lambda pod: (not pod.trouble, order[pod.phase]), default=None)


def look(cluster: Cluster, namespace: str, name: str, deployments: Sequence[str]) -> Progress:
    """How far the rollout of these Deployments has come."""
    # In this order: what made a pod that was seen is then there to be seen too.
    pods = cluster.list("v1", "Pod", namespace, labels=pods_of(name))
    sets = cluster.list("apps/v1", "ReplicaSet", namespace, labels=pods_of(name))
    live = [
        found
        for each in deployments
        if (found := cluster.get("apps/v1", "Deployment", each, namespace)) is not None
    ]
    hashes = newest_hashes(live, sets)
    with ThreadPoolExecutor(_AT_ONCE) as side_by_side:
        seen = list(side_by_side.map(lambda pod: _pod(cluster, namespace, pod, hashes), pods))
    seen.sort(key=lambda pod: (not pod.fresh, pod.phase == "leaving", pod.name))
    return Progress(tuple(workload_of(each) for each in live), tuple(seen))


def _pod(
    cluster: Cluster, namespace: str, pod: Mapping[str, Any], hashes: frozenset[str]
) -> PodView:
    """One pod, with its events and its log where they tell more."""
    plain = pod_view(pod, hashes)
    if plain.phase == "image" and plain.node:
        return pod_view(pod, hashes, events=_events(cluster, namespace, plain.name))
    if plain.phase in {"weights", "compile"}:
        return pod_view(pod, hashes, log=_log(cluster, namespace, plain.name))
    return plain


def _log(cluster: Cluster, namespace: str, pod: str) -> str | None:
    try:
        return cluster.logs(namespace, pod, container=CONTAINER, tail=LOG_LINES)
    except SpecctlError:
        return None  # a log that cannot be read changes nothing of what is waited for


def _events(cluster: Cluster, namespace: str, pod: str) -> Sequence[Mapping[str, Any]]:
    try:
        return cluster.events(namespace, pod)
    except NotAuthorisedError:
        return ()


@dataclass(frozen=True, slots=True)
class Watched:
    """What is watched, and for how long."""

    namespace: str
    name: str
    deployments: tuple[str, ...]
    timeout_s: float
    stragglers_s: float | None = None
    """After how long pods that do not come are done without, where others of their pool serve;
    None: all are waited for, and one that fails is a failure of it all."""


def watch(
    cluster: Cluster,
    watched: Watched,
    show: Callable[[Progress], None],
    say: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ended:
    """Until every pool is as it should be, one has failed, or the time is over.

    An API server that does not answer for a while is waited for: the rollout goes on without us.

    Raises:
        SpecctlError: the cluster refuses, or does not answer until the time is over.
    """
    began = clock()
    patience = Patience(began)
    spare = None if watched.stragglers_s is None else Stragglers(watched.stragglers_s)
    deaf = False
    while True:
        late = clock() - began >= watched.timeout_s
        try:
            progress = look(cluster, watched.namespace, watched.name, watched.deployments)
        except NotAuthorisedError:
            raise
        except SpecctlError as error:
            if late:
                raise
            if not deaf:
                say(f"{error.message}; the rollout goes on by itself, asking again")
            deaf = True
            sleep(POLL_S)
            continue
        if deaf:
            say("the API server answers again")
        deaf = False
        show(progress)
        if progress.done and len(progress.workloads) == len(watched.deployments):
            return Ended("done", progress)
        if spare and (without := spare.told(progress, clock())):
            return Ended("done", progress, without)
        failed = patience.failure(progress, clock())
        if failed and not (
            spare and any(pod.fresh and pod.phase == "ready" for pod in progress.pods)
        ):
            return Ended("failed", progress, *failed)
        if late:
            worst = most_telling(progress.pods)
            why = f"{worst.name}: {worst.detail}" if worst else "the controller is not done"
            return Ended("late", progress, why, worst.name if worst else None)
        sleep(min(POLL_S, max(0.0, watched.timeout_s - (clock() - began))))
