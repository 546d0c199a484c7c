"""What runs in the pool that serves, and how many servers of another pool that needs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from speccli.core.bench.results import Result
from speccli.core.deploy.cluster import asker
from speccli.core.errors import SpecctlError
from speccli.core.fallback.measured import Bench
from speccli.core.fallback.serving import Serving
from speccli.core.kube.proof import scrape
from speccli.core.kube.proven import Wanted, snapshot_of, sums_of
from speccli.core.kube.rollout import look
from speccli.core.manifests.names import pool_name
from speccli.core.manifests.pools import Unit
from speccli.core.manifests.scaling import running_target
from speccli.core.sources.base import Scrape
from speccli.core.values import Number

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

LOOK_S = 5.0
"""Over how long output tokens are counted."""
_MOST = 64
"""Servers, after which no more are tried."""


@dataclass(frozen=True, slots=True)
class Load:
    """What clients have of a pool now."""

    requests: float
    """That run or wait."""
    tokens_per_s: float | None = None
    """Output tokens; None: not looked at, or not told."""


def load(
    cluster: Cluster,
    here: Serving,
    servers: int,
    *,
    speed: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Load | None:
    """Of the pool that serves; None where not every server of it tells.

    A canary has its part of the traffic, which those who stay will have. `speed`: look twice, for
    output tokens a second.
    """
    seen = look(cluster, here.namespace, here.name, [pool_name(here.name, here.traffic)])
    ready = [pod for pod in seen.pods if pod.phase == "ready"]
    if sum(pod.pool == here.traffic for pod in ready) < servers:
        return None
    pods = [pod.name for pod in ready if pod.pool in {here.traffic, "canary"}]
    first = _pages(cluster, here, pods)
    requests = None if first is None else _requests(first)
    if first is None or requests is None:
        return None
    if not speed:
        return Load(requests)
    sleep(LOOK_S)
    second = _pages(cluster, here, pods)
    return Load(requests, None if second is None else _tokens_per_s(first, second))


def _pages(cluster: Cluster, here: Serving, pods: Sequence[str]) -> list[Scrape] | None:
    found = []
    for pod in pods:
        try:
            found.append(scrape(pod, asker(cluster, here.namespace, pod), time.time))
        except SpecctlError:
            return None
    return found


def _requests(pages: Sequence[Scrape]) -> float | None:
    total = 0.0
    for page in pages:
        gauges = snapshot_of(Wanted("none", 0.0), [page]).subject.gauges
        if not gauges or any("running" not in each for each in gauges):
            return None
        # What waits is load as well: a draft that costs too much fills the queue, not the batch.
        total += sum(each["running"] + each.get("waiting", 0.0) for each in gauges)
    return total


def _tokens_per_s(first: Sequence[Scrape], second: Sequence[Scrape]) -> float | None:
    total = 0.0
    for before, after in zip(first, second, strict=True):
        made = sums_of(snapshot_of(Wanted("none", 0.0), (before, after)), "generation_tokens")
        if made is None or after.at <= before.at:
            return None
        total += made / (after.at - before.at)
    return total


def servers_for(now: Load, unit: Unit, bench: Result | None) -> tuple[int, str]:
    """How many servers of a pool that is, and how it was counted.

    Seats first. Where a bench of its draft is known, also as many as make the tokens a second that
    clients have now: a server that drafts worse is slower, however many seats it has. Numbers of
    servers whose batch nobody measured are passed over; where none is left, the words say so.
    """
    seats = max(1, math.ceil(now.requests / running_target(unit)))
    words = f"{now.requests:.0f} requests run or wait, {running_target(unit)} a server"
    if bench is None or not now.tokens_per_s:
        return seats, words
    most = max(seats, _MOST)
    unknown: str | None = None
    known = False
    for count in range(seats, most + 1):
        batch = Number.known(max(1.0, now.requests / count))
        told = Bench(bench, unit.recipe, batch).expected(unit.recipe.draft).tokens_per_s
        if told.value is None:
            unknown = unknown or told.reason
            continue
        known = True
        if count * told.value >= now.tokens_per_s:
            if count == seats:
                return seats, words
            return (
                count,
                f"{now.tokens_per_s:,.0f} tok/s, {told.value:,.0f} a server ({bench.name})",
            )
    if not known:
        return seats, f"{words}; their speed is not known: {unknown}"
    return seats, f"{words}; no number of servers measured makes {now.tokens_per_s:,.0f} tok/s"
