"""Whether an account may do all that a watch does: asked at its start, not found out at a move."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from speccli.core.deploy.asked import for_cluster
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.fallback.serving import Serving
from speccli.core.fallback.standing import Standing, standing
from speccli.core.fallback.way_back import with_canary
from speccli.core.kube.connection import EVERYWHERE
from speccli.core.kube.errors import Denied, NotInstalled
from speccli.core.kube.record import fallback_name, name_of
from speccli.core.kube.refs import Ref
from speccli.core.manifests.build import objects
from speccli.core.manifests.options import RenderOptions
from speccli.core.recipes.model import Recipe

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

ROLE = "manifests/rbac/fallback-watch.yaml"
Verbs = tuple[str, ...]
WATCHING: Mapping[str, Verbs] = {
    "leases.coordination.k8s.io": ("get", "create", "update"),
    "configmaps": ("get", "create", "patch"),
    "events": ("create",),
    "pods": ("get", "list"),
    "pods/log": ("get",),
    "deployments.apps": ("get",),
}
"""What looking, leading, remembering and telling take."""
LOOKING: Mapping[str, Verbs] = {"pods/proxy": ("get",)}
"""And reading servers' pages, where no Prometheus does."""
MOVING: Mapping[str, Verbs] = {
    "pods/proxy": ("get", "create"),
    "replicasets.apps": ("list",),
}
"""What every move reads, and asks of servers; what it writes depends on the deployment."""
_STAYS: Verbs = ("get", "patch")
_COMES: Verbs = ("get", "create", "patch")
_GOES: Verbs = ("get", "delete")
_CANARY: Verbs = ("get", "create", "patch", "delete")
_BY_NAME = frozenset({"get", "patch", "update", "delete"})
"""What a rule with `resourceNames` can allow: it is judged by the name in the request."""
_AT_ONCE = 8
_SHOWN = 4


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One call that is to be allowed."""

    verb: str
    resource: str
    """As `Cluster.can` takes it: `deployments.apps`."""
    namespace: str
    """`*`: it is the cluster's."""
    name: str = ""
    """Of one object; empty: of whichever."""

    def __str__(self) -> str:
        """`patch services`."""
        return f"{self.verb} {self.resource}"


def at_start(
    cluster: Cluster, namespace: str, name: str, *, auto: bool, pages: bool
) -> tuple[str, ...]:
    """What a watch is to say of its rights before its first look; nothing where it has all.

    Args:
        cluster: Where its credentials are.
        namespace: Of the deployment.
        name: The deployment.
        auto: Whether it moves; what is only proposed is made by whoever says yes.
        pages: Whether it reads servers' pages itself, for want of a Prometheus.

    Raises:
        Denied: it may not watch, or with `auto` make no move.
    """
    try:
        check(cluster, namespace, name, pages=pages)
        if not auto:
            return ()
        return check_moves(cluster, namespace, standing(cluster, namespace, name, time.time()))
    except Denied:
        raise
    except UsageError:
        return ()  # there is no such deployment yet, which the first look says
    except SpecctlError as error:
        return (f"whether it may make its moves is not known: {error.message}",)


def check(cluster: Cluster, namespace: str, name: str, *, pages: bool) -> None:
    """See that an account may watch at all.

    Raises:
        Denied: it may not.
        ClusterError: the API server cannot be asked.
    """
    own = {
        "leases.coordination.k8s.io": (fallback_name(name),),
        "configmaps": (name_of(name), fallback_name(name)),
        "deployments.apps": (name,),
    }
    wanted = _in(namespace, WATCHING, own) | (_in(namespace, LOOKING) if pages else set())
    if lacks := _lacking(cluster, wanted):
        raise Denied(
            f"fallback watch may not {_words(lacks, wanted - set(lacks))}", hint=_hint(namespace)
        )


def check_moves(cluster: Cluster, namespace: str, now: Standing) -> tuple[str, ...]:
    """What keeps moves of this deployment from being made: a line for each; none where none.

    Raises:
        Denied: it may make none of them.
        ClusterError: the API server cannot be asked.
    """
    always = _in(namespace, MOVING)
    moves = {
        name: always | {each for ref, verbs in told for each in _of(cluster, ref, verbs)}
        for name, told in _moves(cluster, now)
    }
    wanted = set().union(*moves.values())
    denied = set(_lacking(cluster, wanted))
    has = wanted - denied
    lacks = {name: sorted(each & denied) for name, each in moves.items() if each & denied}
    if len(lacks) == len(moves) and moves:
        common = sorted(set.intersection(*(moves[name] & denied for name in lacks)))
        words = _words(common or sorted(denied), has)
        raise Denied(
            f"fallback watch may make no move: it may not {words}",
            hint=f"{_hint(namespace)}; without --auto it only proposes, and needs none of these",
        )
    return tuple(
        f"{name} cannot be made: it takes the right to {_words(rights, has)}; {_hint(namespace)}"
        for name, rights in lacks.items()
    )


def _moves(cluster: Cluster, now: Standing) -> Iterator[tuple[str, list[tuple[Ref, Verbs]]]]:
    """Each move of a deployment in words, and the objects that it writes."""
    here, at = now.here, now.situation.at
    present = _refs(cluster, here, here.recipe)
    # The first step is the recipe's own draft, which is no rung.
    for rung, step in zip(now.found.rungs[at:], now.situation.ladder[at + 1 :], strict=True):
        if step.refusal is None:
            next_ = _refs(cluster, here, rung.recipe)
            told = [(ref, _STAYS if ref in present else _COMES) for ref in next_]
            told += [(ref, _GOES) for ref in present if ref not in next_]
            yield f"a move to {step.name}", told
    if now.found.top.speculates:
        joined = _refs(cluster, here, with_canary(here, here).recipe)
        told = [(ref, _STAYS if ref in present else _CANARY) for ref in joined]
        yield "a canary (the way back)", told


def _refs(cluster: Cluster, here: Serving, recipe: Recipe) -> list[Ref]:
    options: RenderOptions = for_cluster(here.options, here.namespace, cluster.version(), ())
    return [Ref.of(each) for each in objects(recipe, options)]


def _of(cluster: Cluster, ref: Ref, verbs: Iterable[str]) -> Iterator[Right]:
    """The rights to do so with an object."""
    try:
        plural = cluster.resource(ref.api_version, ref.kind).name
    except NotInstalled:
        return  # told at each deploy; no right mends it
    resource = f"{plural}.{ref.group}" if ref.group else str(plural)
    for verb in verbs:
        yield from _rights(verb, resource, ref.namespace or EVERYWHERE, (ref.name,))


def _in(
    namespace: str, told: Mapping[str, Verbs], own: Mapping[str, tuple[str, ...]] | None = None
) -> set[Right]:
    """`own`: the names that are meant, of resources whose objects' names are known."""
    named = own or {}
    return {
        right
        for resource, verbs in told.items()
        for verb in verbs
        for right in _rights(verb, resource, namespace, named.get(resource, ("",)))
    }


def _rights(verb: str, resource: str, place: str, names: tuple[str, ...]) -> Iterator[Right]:
    for name in names if verb in _BY_NAME else ("",):
        yield Right(verb, resource, place, name)


def _lacking(cluster: Cluster, wanted: Iterable[Right]) -> list[Right]:
    """Those that the API server denies; what it does not tell is not held against anybody."""
    ordered = sorted(wanted)

    def denied(right: Right) -> bool:
        return cluster.can(right.verb, right.resource, right.namespace, right.name) is False

    with ThreadPoolExecutor(_AT_ONCE) as side_by_side:
        return [r for r, no in zip(ordered, side_by_side.map(denied, ordered), strict=True) if no]


def _words(rights: Iterable[Right], has: Iterable[Right]) -> str:
    """`patch services, create leases.coordination.k8s.io in llm`.

    With the object's name where `has` holds the same right to another one.
    """
    some = {replace(each, name="") for each in has}
    places: dict[str, dict[str, None]] = {}
    for each in rights:
        name = f" {each.name}" if each.name and replace(each, name="") in some else ""
        places.setdefault(each.namespace, {})[f"{each}{name}"] = None
    parts = []
    for place, words in places.items():
        told = list(words)
        more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
        where = "of the cluster" if place == EVERYWHERE else f"in {place}"
        parts.append(f"{', '.join(told[:_SHOWN])}{more} {where}")
    return "; ".join(parts)


def _hint(namespace: str) -> str:
    return f"kubectl apply -n {namespace} -f {ROLE}; its header says what some recipes need besides"
