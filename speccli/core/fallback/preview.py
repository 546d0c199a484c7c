"""What a move would come to, call by call, and as files for whoever deploys from a repository."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from speccli.core.baseline import Baseline
from speccli.core.bench.results import Result
from speccli.core.deploy import cluster as deploying
from speccli.core.deploy.asked import Asked, Prepared, Reporter
from speccli.core.fallback import pools
from speccli.core.fallback.carry import Chosen, choose_way
from speccli.core.fallback.held import held, rate_of
from speccli.core.fallback.ladder import Ladder
from speccli.core.fallback.moving import Connect, Mover, Terms
from speccli.core.fallback.ours import Ours
from speccli.core.fallback.outcome import Mechanism
from speccli.core.fallback.serving import Serving, serving
from speccli.core.fallback.way_back import way_back
from speccli.core.fallback.ways import on_cluster
from speccli.core.manifests.options import Traffic, server
from speccli.core.manifests.render import files, render


@dataclass(frozen=True, slots=True)
class Call:
    """One call that would change something."""

    verb: str
    """`create`, `change` or `remove`."""
    what: str


@dataclass(frozen=True, slots=True)
class Part:
    """One deployment of a move."""

    words: str
    asked: Asked
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Preview:
    """A move that was not made."""

    name: str
    namespace: str
    mechanism: Mechanism
    source: str
    target: str
    parts: tuple[Part, ...]
    texts: Mapping[str, str]
    """Name and text of each file of what would serve: the same bytes for the same move."""
    notes: tuple[str, ...] = ()
    """What keeps it from being made now, or from being made otherwise."""


def down(
    connect: Connect,
    namespace: str | None,
    name: str,
    rung: str | None,
    reporter: Reporter,
    *,
    accept: Sequence[str] = (),
    bench: Result | None = None,
) -> Preview:
    """What `carry.go` would do now. The standby is asked; nothing is changed.

    Raises:
        UsageError: there is no such deployment, or no such step.
        SpecctlError: the cluster cannot be asked, or would refuse.
    """
    found, mover = _mover(connect, namespace, name, reporter, Terms(tuple(accept), bench=bench))
    way = choose_way(found, mover, rung)
    mechanism: Mechanism = "switch" if way.kind in {"switch", "complete"} else "rolling"
    parts = tuple(_down(mover, way))
    return _preview(connect, mover, mechanism, way.to.words, parts, reporter)


def _mover(
    connect: Connect, namespace: str | None, name: str, reporter: Reporter, terms: Terms
) -> tuple[Ladder, Mover]:
    found, place = on_cluster(connect(None), namespace, name)
    here = serving(found, place)
    return found, Mover(connect, here, reporter, terms, Ours(0.0), time.monotonic, time.sleep)


def _down(mover: Mover, way: Chosen) -> Iterator[Part]:
    here = mover.here
    if way.kind == "roll":
        yield Part("its pods are replaced, and proven", way.to.asked())
    elif way.kind == "behind":
        if short := mover.lacks("main"):
            mover.note(f"the traffic would stay with the pool standby: {short}")
        yield Part("the main pool is replaced while the standby serves", way.to.asked())
        yield from _switch(mover, way.to, "main", "the main pool takes the traffic, and is proven")
    elif way.kind == "complete":
        yield Part(f"the pool {here.traffic} takes the traffic, and is proven", here.asked())
    else:
        yield from _switch(mover, here, "standby", "the standby takes the traffic, and is proven")


def _switch(mover: Mover, there: Serving, to: Traffic, words: str) -> Iterator[Part]:
    """The traffic to a pool of what is there by then, the servers that it lacks first."""
    bench = mover.terms.bench
    need = pools.need(mover.cluster, mover.here, to, bench)
    if need.goal > need.there and pools.serves(mover.cluster, mover.here):
        asked = there.asked(raised={**there.options.raised, to: need.goal})
        yield Part(f"the pool {to} gets {pools.goal(to, need)} servers: {need.words}", asked)
    raised = pools.raised(there, to, need)
    yield Part(words, there.asked(traffic=to, raised=raised))
    if to == "main" and raised:
        yield Part("its autoscaler decides again", there.asked(traffic=to, raised={}))


def back(
    connect: Connect,
    namespace: str | None,
    name: str,
    reporter: Reporter,
    *,
    accept: Sequence[str] = (),
    force: bool = False,
    baseline: Baseline | None = None,
) -> Preview:
    """What `carry.restore` would do now, were the canary well. Nothing is changed.

    Raises:
        UsageError: there is no such deployment, nothing to bring back, or another's baseline.
        SpecctlError: the cluster cannot be asked, or would refuse.
    """
    found, mover = _mover(connect, namespace, name, reporter, Terms(tuple(accept)))
    to, canary = way_back(found, mover.here)
    rate_of(baseline, found)
    if kept := held(found.record, mover, to, force=force):
        mover.note(f"no canary would be made now: {kept.words}")
    switched = mover.here.traffic != to.traffic
    words = "the main pool takes the traffic" if switched else "its pods are replaced"
    words = f"were it well: {words}, and the canary goes"
    behind = replace(to, options=replace(to.options, traffic="standby"))
    parts = (
        Part(f"a canary with {to.words} in the traffic of {mover.here.words}", canary.asked()),
        *(_switch(mover, behind, "main", words) if switched else (Part(words, to.asked()),)),
    )
    mechanism: Mechanism = "switch" if switched else "rolling"
    return _preview(connect, mover, mechanism, to.words, parts, reporter)


def _preview(
    connect: Connect,
    mover: Mover,
    mechanism: Mechanism,
    target: str,
    parts: tuple[Part, ...],
    reporter: Reporter,
) -> Preview:
    here = mover.here
    tried = []
    for part in parts:
        asked = replace(part.asked, accept=(*part.asked.accept, *mover.terms.accept))
        calls = tuple(_calls(deploying.attempt(connect, asked, reporter)))
        tried.append(replace(part, calls=calls))
    last = parts[-1].asked
    major, minor = mover.cluster.version()
    # How many servers the load of a moment needs is no matter of a repository.
    options = replace(last.options, kubernetes=server(f"{major}.{minor}"), raised={})
    texts = files(render(last.recipe, options))
    told = (here.name, here.namespace, mechanism, here.words, target, tuple(tried), texts)
    return Preview(*told, mover.notes)


def _calls(prepared: Prepared) -> Iterator[Call]:
    yield Call("change", f"ConfigMap {prepared.name}-specctl (revision {prepared.revision.number})")
    yield from (Call("remove", str(ref)) for ref in prepared.prune_first)
    for step in prepared.steps:
        if step.verb != "same":
            yield Call(step.verb, f"{step.ref}{': its pods are replaced' if step.rolls else ''}")
    yield from (Call("remove", str(ref)) for ref in prepared.prune_last)
