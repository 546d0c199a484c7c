"""Watches a canary in the traffic of its siblings until their comparison says something."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from speccli.core.deploy.asked import Reporter
from speccli.core.deploy.cluster import asker
from speccli.core.engines.failures import ended
from speccli.core.errors import NotAuthorisedError, SpecctlError
from speccli.core.fallback.canary import (
    Comparison,
    Counts,
    Sample,
    Trial,
    Verdict,
    Window,
    compare,
)
from speccli.core.findings import evaluate
from speccli.core.findings.base import Thresholds
from speccli.core.kube.progress import container_status, is_ready, pod_view
from speccli.core.kube.proof import scrape
from speccli.core.kube.proven import Wanted, snapshot_of
from speccli.core.kube.refs import pods_of
from speccli.core.manifests.names import POOL
from speccli.core.sources.base import Scrape
from speccli.core.stats.window import Settings
from speccli.core.stats.window import Window as Seen

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

Object = Mapping[str, Any]
WINDOW_S = 10.0
LASTING_S = 1800.0
"""How long a canary is tried at most."""
DARK_S = 120.0
"""How long either side's metrics may be gone before the trial ends."""
_TOLD_S = 60.0
_AT_ONCE = 8
_BROKEN = frozenset({"SPEC_NOT_ACTIVE", "ZERO_ACCEPTANCE", "PARALLEL_DRAFT_CLIFF", "STALLED"})


@dataclass(frozen=True, slots=True)
class Watched:
    """Which canary, among whom, and for how long."""

    namespace: str
    name: str
    siblings: str
    """The pool that serves."""
    method: str
    sample: Sample
    window_s: float = WINDOW_S
    lasting_s: float = LASTING_S
    dark_s: float = DARK_S
    restarts: Mapping[str, int] = field(default_factory=dict)
    """How often the engine of each of its pods had ended before it was proven."""


@dataclass(frozen=True, slots=True)
class Page:
    """One server's page."""

    pool: str
    restarts: int
    scrape: Scrape


def both_sides(cluster: Cluster, namespace: str, name: str, siblings: str) -> list[Object]:
    """Pods of the canary and its siblings, ready or not.

    Raises:
        SpecctlError: the API server does not tell which pods there are.
    """
    found = cluster.list("v1", "Pod", namespace, labels=pods_of(name))
    return [pod for pod in found if _pool(pod) in {"canary", siblings}]


def _pool(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POOL))


def pages(cluster: Cluster, namespace: str, pods: Iterable[Object], now: float) -> dict[str, Page]:
    """The pages of those that answer, by pod."""
    asked = [pod for pod in pods if is_ready(pod)]

    def one(pod: Object) -> Page | None:
        name = str(pod["metadata"]["name"])
        try:
            told = scrape(name, asker(cluster, namespace, name), lambda: now)
        except SpecctlError:
            return None
        return Page(_pool(pod), int(container_status(pod).get("restartCount") or 0), told)

    with ThreadPoolExecutor(_AT_ONCE) as side_by_side:
        told = list(side_by_side.map(one, asked))
    return {page.scrape.target: page for page in told if page is not None}


def engine_ended(pods: Iterable[Object], before: Mapping[str, int]) -> str | None:
    """Which canary's engine has ended, whether or not it serves again; None: none has.

    What the node or somebody else takes away says nothing about a draft.
    """
    for pod in pods:
        if _pool(pod) != "canary" or (pod.get("status") or {}).get("phase") == "Failed":
            continue
        seen = pod_view(pod, frozenset())
        if seen.phase == "crashed":
            return f"the engine of {seen.name} ended: {seen.detail}"
        if seen.phase != "leaving" and seen.restarts > before.get(seen.name, 0):
            return f"the engine of {seen.name} ended and was started again"
    return None


def grown(before: Mapping[str, Page], after: Mapping[str, Page], pool: str) -> Counts:
    """What a side's counters grew by between two looks; what restarted in between adds nothing."""
    total = Counts()
    for name, page in after.items():
        earlier = before.get(name)
        if page.pool != pool or earlier is None or earlier.restarts != page.restarts:
            continue
        total = total + _growth(earlier.scrape, page.scrape)
    return total


def _growth(before: Scrape, after: Scrape) -> Counts:
    pool = snapshot_of(Wanted("unknown", 0.0), (before, after)).subject.pool
    drafts = pool.sums("drafts", "draft_tokens", "accepted_tokens") or (0.0, 0.0, 0.0)
    decoded = pool.sums("itl.sum", "generation_tokens", "ttft.count") or (0.0, 0.0, 0.0)
    told, formerly = ended(after.body), ended(before.body)
    requests = failures = 0.0
    if told is not None and formerly is not None:
        requests, failures = told[0] - formerly[0], told[1] - formerly[1]
    return Counts(
        drafts=drafts[0],
        draft_tokens=drafts[1],
        accepted=drafts[2],
        decode_s=decoded[0],
        tokens=max(0.0, decoded[1] - decoded[2]),
        requests=max(0.0, requests),
        failures=max(0.0, failures),
    )


def watch(
    cluster: Cluster,
    watched: Watched,
    reporter: Reporter,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Comparison:
    """Until it passes, is refused, or cannot be told.

    Raises:
        NotAuthorisedError: the cluster does not let it look.
    """
    return _Watch(cluster, watched, reporter, clock, sleep).run()


class _Watch:
    def __init__(
        self,
        cluster: Cluster,
        watched: Watched,
        reporter: Reporter,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._cluster, self._watched, self._reporter = cluster, watched, reporter
        self._clock, self._sleep = clock, sleep
        self._trial = Trial(watched.sample)
        self._seen = Seen(Settings(window_s=None, span_s=None, method=watched.method))
        self._dark_since: float | None = None

    def run(self) -> Comparison:
        began = told_at = self._clock()
        before: dict[str, Page] = {}
        while True:
            pods, after, dark = self._look()
            if wrong := engine_ended(pods, self._watched.restarts) or self._broken(after.values()):
                return self._ended("refused", wrong)
            if dark is not None and self._too_long():
                return self._ended("inconclusive", f"metrics are gone: {dark}")
            if found := self._compared(before, after):
                return found
            before = after or before
            now = self._clock()
            if now - began >= self._watched.lasting_s:
                lacks = self._trial.lacks or "too near to tell"
                return self._ended("inconclusive", f"not to be told in time: {lacks}")
            if now - told_at >= _TOLD_S and self._trial.lacks:
                told_at = now
                self._reporter.say(f"the canary is watched: {self._trial.lacks}")
            self._sleep(self._watched.window_s)

    def _look(self) -> tuple[list[Object], dict[str, Page], str | None]:
        """Pods, their pages, and which side is not to be seen."""
        pods: list[Object] = []
        found: dict[str, Page] = {}
        watched = self._watched
        try:
            place = watched.namespace
            pods = both_sides(self._cluster, place, watched.name, watched.siblings)
            found = pages(self._cluster, place, pods, time.time())
            dark = missing(found, watched)
        except NotAuthorisedError:
            raise
        except SpecctlError as error:
            dark = error.message
        if dark is None:
            self._dark_since = None
        elif self._dark_since is None:
            self._dark_since = self._clock()
        return pods, found, dark

    def _too_long(self) -> bool:
        since = self._dark_since
        return since is not None and self._clock() - since >= self._watched.dark_s

    def _compared(self, before: dict[str, Page], after: dict[str, Page]) -> Comparison | None:
        if not before or not after:
            return None
        mine, siblings = (grown(before, after, p) for p in ("canary", self._watched.siblings))
        return self._trial.add(Window(mine, siblings))

    def _broken(self, found: Iterable[Page]) -> str | None:
        """What is wrong with the canary whatever its siblings do."""
        mine = [page for page in found if page.pool == "canary"]
        if not mine:
            return None
        self._seen.push([page.scrape for page in mine])
        thresholds = Thresholds(expect_speculation=self._watched.sample.drafting)
        for each in evaluate(self._seen.snapshot(), thresholds):
            if each.severity == "critical" and each.code in _BROKEN:
                return f"{each.code}: {each.evidence}"
        return None

    def _ended(self, verdict: Verdict, words: str) -> Comparison:
        so_far = compare(self._trial.windows, self._watched.sample)
        return replace(so_far, verdict=verdict, words=words)


def missing(found: Mapping[str, Page], watched: Watched) -> str | None:
    """The side whose metrics nobody gives; None: both are there."""
    there = {page.pool for page in found.values()}
    if "canary" not in there:
        return f"no answer from the canary of {watched.name}"
    if watched.siblings not in there:
        return f"no answer from the servers of the pool {watched.siblings}"
    return None
