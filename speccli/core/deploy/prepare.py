"""Everything that is asked and judged before anything is applied: reads, and dry runs."""

from __future__ import annotations

import getpass
import socket
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from speccli import __version__
from speccli.core.deploy import room
from speccli.core.deploy.asked import (
    Asked,
    Prepared,
    Reporter,
    for_cluster,
    plain_options,
)
from speccli.core.deploy.gate import gate
from speccli.core.errors import UsageError
from speccli.core.findings.base import Severity
from speccli.core.kube import apply, record
from speccli.core.kube.errors import Clash, Conflict, Denied, NotInstalled
from speccli.core.kube.record import Record, Revision
from speccli.core.kube.references import needed
from speccli.core.kube.refs import Ref
from speccli.core.manifests.build import objects
from speccli.core.manifests.notes import notes
from speccli.core.manifests.options import RenderOptions, deployment_name, server
from speccli.core.manifests.pools import Unit, units
from speccli.core.preflight.base import Verdict
from speccli.core.recipes.model import Recipe

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

Object = dict[str, Any]


def offline(asked: Asked) -> list[Unit]:
    """The pools, once nothing speaks against them that config files tell. No cluster is asked.

    Raises:
        GateError: critical findings that were not accepted.
        UsageError: the recipe cannot be rendered.
    """
    found = units(asked.recipe, asked.options)
    gate(verdicts_of(asked.recipe, asked.options), asked.accept).check()
    return found


def verdicts_of(recipe: Recipe, options: RenderOptions) -> list[Verdict]:
    """What the plans of all pools and the manifests say, each thing once."""
    told: dict[tuple[str, str], Verdict] = {}
    for unit in units(recipe, options):
        for verdict in unit.plan.verdicts:
            where = verdict.subject if unit.pool == "main" else f"{unit.pool} {verdict.subject}"
            told.setdefault((verdict.rule, verdict.evidence), replace(verdict, subject=where))
    for verdict in notes(recipe, options):
        if verdict.rule != _ROLLOUT:
            told.setdefault((verdict.rule, verdict.evidence), verdict)
    return list(told.values())


_ROLLOUT = "R-ROLLOUT"
"""What a rendering has to suppose; here free GPUs are counted."""


def prepare(cluster: Cluster, asked: Asked, reporter: Reporter, *, dry: bool = False) -> Prepared:
    """Ask the cluster, judge, and try everything on the server. Nothing is changed.

    But a namespace is made where one was asked for (unless `dry`): without it nothing can be tried.

    Raises:
        GateError: critical findings that were not accepted.
        Conflict: fields that belong to somebody else.
        SpecctlError: the cluster cannot be asked, or would refuse.
    """
    namespace = asked.namespace or cluster.namespace
    called = deployment_name(asked.recipe, asked.options)
    former = read_record(cluster, namespace, called)
    servers = _api_servers(cluster, namespace, called, former, reporter)
    asked = keeping_restarts(former, keeping_traffic(former, asked, reporter))
    options = for_cluster(asked.options, namespace, _version(cluster), servers)
    found = units(asked.recipe, options)
    name = found[0].deployment
    wanted = objects(asked.recipe, options)
    _see_namespace(cluster, options, reporter, wanted, dry=dry)
    next_record, known = _next(former, asked, found, wanted, name)
    refs = [Ref.of(each) for each in wanted]
    ours = (record.name_of(name), record.fallback_name(name))
    own = [Ref("v1", "ConfigMap", each, namespace) for each in ours]
    known_refs = former.known if former else ()
    left = apply.leftovers(cluster, namespace, name, [*refs, *own], known_refs, reporter.say)
    first, last, kept = apply.parted(left)
    verdicts = [*verdicts_of(asked.recipe, options), *_missing(cluster, wanted)]
    space = room.look(cluster, found, wanted, namespace)
    verdicts += room.verdicts(space)
    if asked.kernels_max_age_s is not None:
        verdicts += _kernel_verdicts(cluster, space, namespace, asked.kernels_max_age_s)
    judged = gate(verdicts, asked.accept)
    judged.check()
    scaled = _scaled(former) | {ref.name for ref in first}
    steps = _tried(cluster, wanted, asked, scaled)
    pools, strategies = room.replaced(cluster, space, steps, namespace)
    steps = _tried_again(cluster, steps, strategies, asked, scaled)
    next_record = next_record.with_current(accepted=judged.accepted)
    cluster.apply(record.as_object(next_record, namespace), dry_run=True, force=True)
    crowded = any(ref.kind == "Deployment" for ref in last) and space.crowded
    return Prepared(
        asked,
        name,
        namespace,
        cluster.context,
        judged,
        tuple(pools),
        tuple(steps),
        tuple(first),
        tuple(last),
        tuple(kept),
        next_record,
        known,
        crowded,
    )


def keeping_traffic(former: Record | None, asked: Asked, reporter: Reporter) -> Asked:
    """The same with the traffic where it is: only who asks for it moves it."""
    there = former.current.options if former else {}
    if asked.moves or there.get("traffic") != "standby" or asked.options.traffic == "standby":
        return asked
    if "standby" not in {*asked.options.pools, *asked.recipe.pools}:
        reporter.warn(
            "the pool standby has the traffic and is not wanted any more: the main pool takes it"
        )
        return asked
    reporter.say("the traffic stays with the pool standby; --traffic main moves it")
    kept = replace(asked.options, traffic="standby", raised=dict(there.get("raised") or {}))
    return replace(asked, options=kept)


def keeping_restarts(former: Record | None, asked: Asked) -> Asked:
    """The same with pods as they were started: to forget it would start them once more."""
    there = dict(former.current.options.get("restarted") or {}) if former else {}
    if not there:
        return asked
    kept = {**there, **asked.options.restarted}
    return replace(asked, options=replace(asked.options, restarted=kept))


def read_record(cluster: Cluster, namespace: str, name: str) -> Record | None:
    """The deployment's record; None where there is none."""
    value = cluster.get("v1", "ConfigMap", record.name_of(name), namespace)
    return None if value is None else record.from_object(value)


def who() -> str:
    """`user@host`, for the record."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def now() -> str:
    """RFC 3339, UTC, whole seconds."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


def _version(cluster: Cluster) -> tuple[int, int]:
    major, minor = cluster.version()
    return server(f"{major}.{minor}")


def _api_servers(
    cluster: Cluster, namespace: str, name: str, former: Record | None, reporter: Reporter
) -> tuple[str, ...]:
    """Addresses of the API servers: they read /metrics through their pod proxy.

    Who may not ask for them leaves those that the deployment lets in.
    """
    try:
        slices = cluster.list(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "default",
            labels="kubernetes.io/service-name=kubernetes",
        )
    except (Denied, NotInstalled):
        kept = _let_in(cluster, namespace, name, _named(former))
        if kept:
            reporter.say(
                "no right to see where the API servers are: "
                f"the NetworkPolicy goes on letting in {', '.join(kept)}"
            )
        return kept
    found = {
        address
        for each in slices
        for endpoint in each.get("endpoints") or ()
        for address in endpoint.get("addresses") or ()
    }
    return tuple(sorted(f"{address}/{128 if ':' in address else 32}" for address in found))


def _named(former: Record | None) -> set[str]:
    """Ranges in the NetworkPolicy that a recipe or `--api-server` names, and that go with it.

    A run that was cut short may have left those of the revision before.
    """
    found: set[str] = set()
    for each in (former.current, *former.previous) if former else ():
        found |= set((each.recipe.get("network") or {}).get("api_server") or ())
        found |= set(each.options.get("api_server") or ())
        if each.state != "applying":
            break
    return found


def _let_in(cluster: Cluster, namespace: str, name: str, own: Collection[str]) -> tuple[str, ...]:
    """Ranges of addresses that a deployment's NetworkPolicy lets in, but for `own`.

    A range with exceptions is left out: without them it would let more in than it does.
    """
    try:
        live = cluster.get("networking.k8s.io/v1", "NetworkPolicy", name, namespace)
    except Denied:
        return ()
    rules = ((live or {}).get("spec") or {}).get("ingress") or ()
    blocks = [peer.get("ipBlock") or {} for rule in rules for peer in rule.get("from") or ()]
    ranges = [str(block["cidr"]) for block in blocks if "cidr" in block and not block.get("except")]
    return tuple(each for each in ranges if each not in own)


def _see_namespace(
    cluster: Cluster,
    options: RenderOptions,
    reporter: Reporter,
    wanted: list[Object],
    *,
    dry: bool,
) -> None:
    """Nothing can be tried in a namespace that is not there."""
    namespace = options.namespace
    try:
        if cluster.get("v1", "Namespace", namespace) is not None:
            return
    except Denied:
        return  # who may deploy into a namespace need not be allowed to read it
    if dry or not options.create_namespace:
        create = f"kubectl create namespace {namespace}"
        raise UsageError(
            f"there is no namespace {namespace} on {cluster.context}"
            + (": nothing can be tried in it" if dry else ""),
            hint=create if dry else f"--create-namespace, or {create}",
        )
    made = next(each for each in wanted if each["kind"] == "Namespace")
    cluster.apply(made)
    reporter.say(f"made namespace {namespace}: its other objects cannot be tried without it")


def _next(
    former: Record | None, asked: Asked, found: Sequence[Unit], wanted: list[Object], name: str
) -> tuple[Record, bool]:
    """The record as it is to be, and whether it has this revision already."""
    recipe, options = record.plain_recipe(asked.recipe), plain_options(asked.options)
    hashed = record.digest(wanted)
    if former and former.current.is_for(asked.recipe, options, hashed):
        return former, True
    revision = Revision(
        number=former.current.number + 1 if former else 1,
        recipe=recipe,
        options=options,
        objects_hash=hashed,
        objects=tuple(Ref.of(each) for each in wanted),
        image=found[0].image,
        state="applying",
        at=now(),
        by=who(),
        tool=__version__,
        restores=asked.restores,
        trial=asked.trial,
        uid=uuid.uuid4().hex,
    )
    return (former.with_next(revision) if former else Record(name, revision)), False


def _missing(cluster: Cluster, wanted: list[Object]) -> Iterator[Verdict]:
    """What pods need and nobody has made: they would wait for it for ever."""
    for ref in needed(wanted):
        try:
            there = cluster.get(ref.api_version, ref.kind, ref.name, ref.namespace) is not None
        except Denied as error:
            yield _verdict(
                "D-MISSING",
                "unknown",
                f"{ref}: {error.message}",
                "whether it is there cannot be told",
                f"see that there is a {ref}",
            )
            continue
        if not there:
            place = f" in namespace {ref.namespace}" if ref.namespace else ""
            yield _verdict(
                "D-MISSING",
                "critical",
                f"there is no {ref}{place}",
                "pods that refer to it never start",
                f"make it, or take it out of the recipe (kubectl get {ref.kind.lower()}s)",
            )


def _verdict(rule: str, severity: Severity, evidence: str, cause: str, action: str) -> Verdict:
    return Verdict(rule, severity, evidence, cause, action, subject="cluster")


def _kernel_verdicts(
    cluster: Cluster, space: room.Room, namespace: str, max_age_s: float
) -> Iterator[Verdict]:
    from speccli.core.deploy.kernels import lacking
    from speccli.core.kernels_gate import kept_in_cluster

    results = kept_in_cluster(cluster, namespace)
    for unit in space.found:
        seen = space.stocks[unit.pool]
        nodes = None if seen.unknown is not None else seen.nodes
        yield from lacking(results, unit.image, nodes, max_age_s, datetime.now(UTC))


def _scaled(former: Record | None) -> set[str]:
    """Deployments that an autoscaler of ours has set the replicas of.

    The record tells: a scaler that was removed before a run was cut short is no more to be seen.
    """
    found: set[str] = set()
    for each in (former.current, *former.previous) if former else ():
        found |= {ref.name for ref in each.objects if ref.kind in apply.SCALERS}
        if each.state != "applying":
            break
    return found


def _tried_again(
    cluster: Cluster,
    steps: list[apply.Step],
    strategies: Mapping[str, Mapping[str, Any]],
    asked: Asked,
    scaled: Collection[str],
) -> list[apply.Step]:
    """The same with the strategies that were chosen: what is applied is what was tried."""
    other = [
        apply.with_strategy(step.wanted, strategies[step.ref.name])
        for step in steps
        if step.ref.kind == "Deployment"
        and step.wanted["spec"].get("strategy") != strategies[step.ref.name]
    ]
    again = {step.ref: step for step in _tried(cluster, other, asked, scaled)}
    return [again.get(step.ref, step) for step in steps]


def _tried(
    cluster: Cluster, wanted: list[Object], asked: Asked, scaled: Collection[str]
) -> list[apply.Step]:
    """Every object tried on the server; all clashes are told together."""
    steps: list[apply.Step] = []
    clashes: list[Clash] = []
    words: list[str] = []
    for each in wanted:
        try:
            steps += apply.tried(cluster, [each], force=asked.force, scaled=scaled)
        except Conflict as error:
            clashes += error.clashes
            words.append(f"{Ref.of(each)}: {'; '.join(map(str, error.clashes)) or error.message}")
        except NotInstalled as error:
            raise NotInstalled(
                error.message, hint=_INSTALL.get(each["kind"], error.hint)
            ) from error
    if words:
        raise Conflict(
            f"nothing was applied: {', and '.join(words)}",
            clashes=clashes,
            hint="set it in the recipe as it is there, or take it over with --force-conflicts",
        )
    return steps


_KEDA = "install KEDA, or choose --autoscaler hpa or none"
_MONITORING = "install the Prometheus operator, or deploy with --no-monitoring"
_INSTALL = {
    "ScaledObject": _KEDA,
    "TriggerAuthentication": _KEDA,
    "PodMonitor": _MONITORING,
    "PrometheusRule": _MONITORING,
    "InferencePool": "install the Gateway API Inference Extension, or leave --inference-pool out",
    "HTTPRoute": "install the Gateway API, or leave --gateway out",
}
