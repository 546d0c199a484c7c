"""From findings about engines, and from crashes of pods, to what the policy reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from speccli.core.errors import SpecctlError
from speccli.core.fallback.reactions import BLAMED, WITH_ANY_DRAFT, Way
from speccli.core.fallback.terms import Sign
from speccli.core.findings.base import FLEET, Finding
from speccli.core.findings.spec_not_active import configured_without
from speccli.core.kube.crash import LOG_LINES, Crash, classify
from speccli.core.kube.progress import container_status, is_ready
from speccli.core.manifests.names import DEPLOYMENT, POOL
from speccli.core.stats.snapshot import Snapshot

if TYPE_CHECKING:
    from speccli.core.alert.judgement import Judgement
    from speccli.core.kube.client import Cluster

DOWN = "ENGINE_DOWN"
_STARTING = frozenset({"pending", "loading", "terminating"})
_UNSURE = frozenset({"UNKNOWN", "CUDA_ERROR", "HUNG", "WEIGHTS_MISMATCH"})
"""Causes of a crash that may be the draft's or not."""
_LATELY_S = 900.0
"""How long a crash of an engine that serves again is remembered."""
_TWICE = 2


def signs(
    snapshot: Snapshot, findings: Iterable[Finding], judgement: Judgement | None
) -> tuple[Sign, ...]:
    """What each code says of the fleet. `ENGINE_DOWN` is the cluster's to tell: see `Crashes`."""
    codes: dict[str, list[Finding]] = {}
    for finding in findings:
        # A server without a speculative configuration has no draft that could be bad.
        if configured_without(finding):
            continue
        if finding.severity in {"critical", "warning"} and finding.code != DOWN:
            codes.setdefault(finding.code, []).append(finding)
    unclear = _unclear(judgement)
    return tuple(_sign(snapshot, found, unclear) for found in codes.values())


def _sign(snapshot: Snapshot, found: Sequence[Finding], unclear: frozenset[str]) -> Sign:
    critical = [each for each in found if each.severity == "critical"]
    worst = _share(snapshot, critical)
    chosen = critical if worst > 0.5 else list(found)
    first = chosen[0]
    sure = first.code != "ACCEPTANCE_DRIFT" or any(f.subject not in unclear for f in chosen)
    severity = "critical" if worst > 0.5 else "warning"
    evidence = f"{first.subject}: {first.evidence}"
    return Sign(first.code, severity, evidence, _share(snapshot, chosen), sure)


def _unclear(judgement: Judgement | None) -> frozenset[str]:
    """Whose fall may be the draft's or the traffic's."""
    drifts = judgement.drifts if judgement is not None else ()
    return frozenset(d.subject for d in drifts if d.verdict.kind == "unclear")


def _share(snapshot: Snapshot, found: Sequence[Finding]) -> float:
    if any(each.subject == FLEET for each in found):
        return 1.0
    serving = [engine for engine in snapshot.engines if engine.state not in _STARTING]
    if not serving:
        return 0.0
    names = {each.subject for each in found}
    servers = {name.removesuffix("/*") for name in names if name.endswith("/*")}
    about = [e for e in serving if e.name in names or e.name.rpartition("/")[0] in servers]
    return len(about) / len(serving)


@dataclass(frozen=True, slots=True)
class _Looked:
    """One run of a pod, and why it ended."""

    run: tuple[str, int]
    crash: Crash | None


class Crashes:
    """Pods of a pool that ended because of speculation. Each end is looked into once."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        """Nothing is known at first."""
        self._clock = clock
        self._looked: dict[str, _Looked] = {}

    def sign(self, cluster: Cluster, namespace: str, name: str, pool: str) -> Sign | None:
        """What the ends of engines say; None where they are not speculation's.

        Raises:
            ClusterError: pods cannot be listed.
        """
        labels = {DEPLOYMENT: name, POOL: pool}
        every = cluster.list("v1", "Pod", namespace, labels=labels)
        pods = [pod for pod in every if _counts(pod)]
        self._looked = {n: x for n, x in self._looked.items() if n in {_name(p) for p in pods}}
        ended = [crash for pod in pods if (crash := self._of(cluster, namespace, pod)) is not None]
        blamed = [crash for crash in ended if crash.code in BLAMED]
        told = blamed if 2 * len(blamed) > len(pods) else ended
        if not told:
            return None
        share, sure = len(told) / len(pods), told is blamed
        way: Way | None = "none" if all(c.code in WITH_ANY_DRAFT for c in told) else None
        return Sign(DOWN, "critical", told[0].line, share, sure, way)

    def _of(self, cluster: Cluster, namespace: str, pod: Mapping[str, Any]) -> Crash | None:
        own = container_status(pod)
        restarts, ended = int(own.get("restartCount") or 0), _ended(own)
        if ended is None:
            return None
        if is_ready(pod) and (restarts < _TWICE or not self._lately(ended)):
            return None
        run = (str(pod["metadata"].get("uid")), restarts)
        known = self._looked.get(_name(pod))
        if known is None or known.run != run:
            known = _Looked(run, _cause(cluster, namespace, pod, own))
            self._looked[_name(pod)] = known
        crash = known.crash
        return crash if crash is not None and crash.code in BLAMED | _UNSURE else None

    def _lately(self, ended: Mapping[str, Any]) -> bool:
        try:
            at = datetime.fromisoformat(str(ended.get("finishedAt"))).timestamp()
        except ValueError:
            return False
        return self._clock() - at <= _LATELY_S


def _cause(
    cluster: Cluster, namespace: str, pod: Mapping[str, Any], own: Mapping[str, Any]
) -> Crash | None:
    """Why its engine ended, whether it serves again or not."""
    again = not (own.get("state") or {}).get("terminated")
    container = str(own.get("name") or "") or None
    try:
        log = cluster.logs(namespace, _name(pod), container, LOG_LINES, previous=again)
    except SpecctlError:
        log = ""  # not ours to read, or gone with its container: the state alone tells less
    status = {k: v for k, v in (pod.get("status") or {}).items() if k != "conditions"}
    return classify({**pod, "status": status}, (), log)


def _ended(own: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for key in ("state", "lastState"):
        if ended := (own.get(key) or {}).get("terminated"):
            return dict(ended)
    return None


def _counts(pod: Mapping[str, Any]) -> bool:
    """Whether it is a server, or was and comes back: evicted ones stay listed for long."""
    gone = (pod.get("status") or {}).get("phase") in {"Failed", "Succeeded"}
    return not gone and not pod["metadata"].get("deletionTimestamp")


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])
