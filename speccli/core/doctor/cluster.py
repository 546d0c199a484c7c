"""A cluster: does its kubeconfig let us in, may we do what specctl does, and what is there?"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from speccli.core.config import Settings
from speccli.core.doctor.base import Check, State
from speccli.core.errors import SpecctlError, UsageError

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

_DOCS = "docs/kubernetes.md"
READING: tuple[tuple[str, str, State, str], ...] = (
    ("list", "pods", "fail", "pods cannot be found"),
    ("get", "pods/proxy", "fail", "their metrics cannot be read"),
    ("watch", "pods", "warn", "pods that come and go are seen every 5 s"),
    ("get", "deployments.apps", "warn", "only deployments of specctl's are found"),
    ("get", "pods/log", "warn", "how far a start has come, and why one failed, is not told"),
    ("list", "events", "warn", "a probe that ends a pod, and volumes in its way, are not told"),
)
"""What reading a pool takes: verb, resource, how bad it is without, what it means."""
_PER_KIND = ("get", "list", "create", "patch", "delete")
DEPLOYED = (
    *("deployments.apps", "services", "configmaps", "serviceaccounts"),
    *("persistentvolumeclaims", "poddisruptionbudgets.policy", "networkpolicies.networking.k8s.io"),
)
"""What `deploy` applies always, or as a rule."""
_OPERATORS = (
    ("keda.sh/v1alpha1", "ScaledObject", "KEDA", "--autoscaler hpa, or none, does without"),
    (
        "monitoring.coreos.com/v1",
        "PodMonitor",
        "Prometheus operator",
        "--no-monitoring does without; scrape the pods in another way",
    ),
)


def wanted(settings: Settings) -> bool:
    """Whether a cluster is to be looked at: where one was named."""
    return bool(settings.deployment or settings.context or settings.kubeconfig)


def look(settings: Settings, deadline_s: float, environment: Mapping[str, str]) -> list[Check]:
    """Every check of the cluster that the settings name; blocking, each call within a deadline."""
    return list(_checks(settings, deadline_s, environment))


def unasked(environment: Mapping[str, str]) -> list[Check]:
    """That there is a kubeconfig which nobody asked to look at; nothing where there is none."""
    from speccli.core.kube.kubeconfig import kubeconfig_files

    try:
        files = kubeconfig_files(None, environment)
    except UsageError as error:
        return [Check("source", "kubeconfig", "warn", error.message, fix=error.hint or "")]
    if not files:
        return []
    fix = "give --context NAME or --deployment NAME to look closer"
    return [
        Check(
            "source", "kubeconfig", "skip", "its cluster is not looked at", "", fix, str(files[0])
        )
    ]


def _checks(
    settings: Settings, deadline_s: float, environment: Mapping[str, str]
) -> Iterator[Check]:
    from speccli.core.kube.client import Cluster
    from speccli.core.kube.kubeconfig import choose, kubeconfig_files

    try:
        files = kubeconfig_files(settings.kubeconfig, environment)
        if files:
            chosen = choose(files, settings.context)
            what = f"context {chosen.context}, {chosen.server}"
            yield Check("source", "kubeconfig", "ok", what, subject=", ".join(map(str, files)))
    except UsageError as error:
        yield Check("source", "kubeconfig", "fail", error.message, fix=error.hint or "")
        return
    began = time.monotonic()
    try:
        cluster = Cluster.connect(
            settings.kubeconfig,
            settings.context,
            settings.namespace,
            deadline_s,
            environment=environment,
        )
    except UsageError as error:
        yield Check("source", "kubeconfig", "fail", error.message, fix=error.hint or "")
        return
    except SpecctlError as error:
        yield Check("source", "API server", "unknown", error.message, fix=error.hint or "")
        return
    took = (time.monotonic() - began) * 1000
    what = (
        f"Kubernetes {cluster.version_text.lstrip('v')} answers, login included, in {took:.0f} ms"
    )
    yield _of(cluster, "API server", "ok", what)
    for part in (_permissions, _operators, _gpus):
        try:
            yield from part(cluster)
        except SpecctlError as error:
            name = part.__name__.lstrip("_")
            yield _of(cluster, name, "unknown", error.message, fix=error.hint or "")
    if settings.deployment:
        yield from _deployment(cluster, settings.deployment)


def _of(
    cluster: Cluster, name: str, state: State, what: str, why: str = "", fix: str = ""
) -> Check:
    return Check("source", name, state, what, why, fix, subject=cluster.context)


def _permissions(cluster: Cluster) -> Iterator[Check]:
    """May one read a pool, and deploy?"""
    place = cluster.namespace
    grant = f"grant it ({_DOCS} has the least that is needed)"
    missing = []
    for verb, resource, state, why in READING:
        match cluster.can(verb, resource, place):
            case False:
                missing.append(resource)
                what = f"may not {verb} {resource} in {place}"
                yield _of(cluster, "read", state, what, why, grant)
            case None:
                what = f"the server does not say whether one may {verb} {resource}"
                yield _of(cluster, "read", "unknown", what)
                return
    if not missing:
        yield _of(cluster, "read", "ok", f"may read pods, metrics, logs and events in {place}")
    refused = [
        f"{verb} {resource}"
        for resource in DEPLOYED
        for verb in _PER_KIND
        if cluster.can(verb, resource, place) is False
    ]
    if refused:
        more = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        what = f"may not {', '.join(refused[:3])}{more} in {place}"
        yield _of(cluster, "deploy", "skip", what, "specctl deploy needs it", grant)
    else:
        yield _of(cluster, "deploy", "ok", f"may deploy in {place}")


def _operators(cluster: Cluster) -> Iterator[Check]:
    """Is there what scales a pool, and what scrapes it?"""
    for api_version, kind, name, without in _OPERATORS:
        if cluster.knows(api_version, kind):
            yield _of(cluster, name, "ok", f"{kind} is known ({api_version})")
        else:
            yield _of(cluster, name, "warn", f"not installed: no {kind}", fix=without)


def _gpus(cluster: Cluster) -> Iterator[Check]:
    """Which GPUs are there, and how many does no pod ask for?"""
    from speccli.core.kube.connection import EVERYWHERE
    from speccli.core.kube.errors import Denied
    from speccli.core.kube.stock import stock_of

    try:
        nodes = cluster.list("v1", "Node")
        pods = cluster.list("v1", "Pod", EVERYWHERE)
    except Denied as error:
        why = "free GPUs are not known: a rollout cannot be planned around them"
        yield _of(cluster, "GPUs", "skip", error.message, why, error.hint or "")
        return
    usable = stock_of({"tolerations": [{"operator": "Exists"}]}, nodes, pods).nodes
    if not usable:
        why = "no node has nvidia.com/gpu to give"
        yield _of(cluster, "GPUs", "warn", "none", why, "is the device plugin running?")
        return
    free, there = Counter[str](), Counter[str]()
    for node in usable:
        free[node.product] += node.free
        there[node.product] += node.allocatable
    told = [f"{product}: {free[product]} of {n} free" for product, n in sorted(there.items())]
    yield _of(cluster, "GPUs", "ok", "; ".join(told))


def _deployment(cluster: Cluster, name: str) -> Iterator[Check]:
    """Is it there, and what are its pods doing?"""
    from speccli.core.kube.crash import classify_pod, worst
    from speccli.core.kube.discover import find, read_pod

    try:
        found = find(cluster, name)
        listed = cluster.list("v1", "Pod", found.namespace, labels=found.selector)
        pods = [read_pod(pod) for pod in listed]
        troubled = [pod for pod in pods if pod.crashed or pod.stage == "pending"]
        crashes = [classify_pod(cluster, found.namespace, pod.name) for pod in troubled[:5]]
    except SpecctlError as error:
        yield _of(cluster, name, "fail", error.message, fix=error.hint or "")
        return
    counted = Counter("crashed" if p.crashed else p.stage or "serving" for p in pods)
    told = ", ".join(f"{n} {state}" for state, n in counted.most_common()) or "none"
    cause = worst(crash for crash in crashes if crash is not None)
    if cause is not None:
        state: State = "fail" if counted["crashed"] else "warn"
        yield _of(cluster, name, state, f"pods: {told}", cause.line, cause.fix)
    else:
        yield _of(cluster, name, "ok" if pods else "warn", f"pods: {told}")
