"""Deploys a recipe on a cluster: intent, objects, rollout, proof, record.

The intent is written first and every later step finds out by itself what is left to do, so a run
that is killed anywhere leaves what serves alone, and the same command completes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speccli.core.deploy.asked import Asked, Prepared, Reporter
from speccli.core.deploy.prepare import now, offline, prepare, read_record, who
from speccli.core.errors import ExitCode, SpecctlError
from speccli.core.kube import apply, record
from speccli.core.kube.errors import Conflict, Denied
from speccli.core.kube.proof import ANSWER_S, Ask, prove
from speccli.core.kube.proven import Proof, ServerProof, Wanted
from speccli.core.kube.record import Record, Revision, State
from speccli.core.kube.rollout import Ended, Watched, watch
from speccli.core.manifests.names import CONFIG_HASH, PORT

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster
    from speccli.core.kube.crash import Crash
    from speccli.core.kube.refs import Ref
    from speccli.core.manifests.pools import Unit

ASKED_PER_POOL = 4
"""Servers of a pool that a proof asks, side by side."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a deployment went."""

    prepared: Prepared
    record: Record
    ended: Ended | None = None
    """None: nothing was waited for."""
    proof: Proof | None = None
    crash: Crash | None = None
    pruned: tuple[Ref, ...] = ()
    unchanged: bool = False
    """Whether everything was as it should be before."""

    @property
    def exit_code(self) -> ExitCode:
        """The contract's."""
        if self.ended is None:
            return ExitCode.OK
        if self.ended.end == "failed":
            return ExitCode.CRITICAL
        if self.ended.end == "late" or self.proof is None:
            return ExitCode.UNKNOWN
        verdict = self.proof.verdict
        codes = {"proven": ExitCode.OK, "refuted": ExitCode.CRITICAL, "unknown": ExitCode.UNKNOWN}
        return codes[verdict]


def deploy(
    connect: Callable[[float | None], Cluster],
    asked: Asked,
    reporter: Reporter,
    begins: Callable[[Prepared], None] | None = None,
) -> Outcome:
    """The whole of it.

    Args:
        connect: A cluster, each of whose calls may take so many seconds; None: the usual.
        asked: What is wanted.
        reporter: Who is told.
        begins: Called with what was prepared before anything is written; it may raise.

    Raises:
        GateError: critical findings that were not accepted; nothing was applied.
        Conflict: fields of others; nothing was applied.
        SpecctlError: the cluster cannot be asked, or refuses.
    """
    offline(asked)
    cluster = connect(None)
    prepared = prepare(cluster, asked, reporter)
    if begins is not None:
        begins(prepared)
    try:
        return carry_out(cluster, prepared, reporter, patient=lambda: connect(ANSWER_S))
    except KeyboardInterrupt as stopped:
        stopped.add_note("what was applied stays, and goes on; the same command completes it")
        raise


def attempt(
    connect: Callable[[float | None], Cluster], asked: Asked, reporter: Reporter
) -> Prepared:
    """What a deployment would come to. Nothing is changed.

    Raises:
        GateError: critical findings that were not accepted.
        Conflict: fields of others.
        SpecctlError: the cluster cannot be asked, or would refuse.
    """
    offline(asked)
    prepared = prepare(connect(None), asked, reporter, dry=True)
    announce(prepared, reporter)
    return prepared


def announce(prepared: Prepared, reporter: Reporter) -> None:
    """What should be known before it happens."""
    for verdict in prepared.gate.verdicts:
        if verdict.severity in {"warning", "unknown", "critical"}:
            taken = ", accepted" if verdict.severity == "critical" else ""
            reporter.warn(
                f"{verdict.severity}{taken} {verdict.code}: {verdict.evidence}: {verdict.cause}"
                f" → {verdict.action}"
            )
    for code in (each for each in prepared.gate.idle if each not in prepared.asked.carried):
        reporter.warn(f"--accept {code}: there is no such critical finding")
    for pool in prepared.pools:
        if pool.rolls:
            (reporter.warn if pool.strategy.downtime else reporter.say)(
                f"{pool.unit.name} is rolled: {pool.strategy.words}"
            )
    for ref in prepared.kept:
        reporter.say(f"{ref} of a former revision stays: delete --purge removes it")


def carry_out(
    cluster: Cluster, prepared: Prepared, reporter: Reporter, *, patient: Callable[[], Cluster]
) -> Outcome:
    """What was prepared, for good."""
    announce(prepared, reporter)
    current = prepared.record.current
    if prepared.known and current.state in {"applying", "applied"}:
        begun = f"revision {current.number}, begun by {current.by} at {current.at}"
        reporter.say(f"{begun}, is gone on with")
    told = _write_intent(cluster, prepared)
    force = prepared.asked.force
    pruned = apply.remove(cluster, prepared.prune_first, wait_s=apply.GONE_S)
    for ref in pruned:
        reporter.say(f"removed {ref}, which is not wanted any more")
    for step in prepared.steps:
        if step.verb == "change" and step.ref.kind in apply.LEAD:
            _see_ours(cluster, prepared.namespace, told)
        try:
            apply.carry_out(cluster, step, force=force)
        except Conflict as error:
            _see_ours(cluster, prepared.namespace, told)
            if error.clashes:
                raise
            raise SpecctlError(
                f"somebody changed {step.ref} while revision {told.current.number} was under way",
                hint=f"specctl status {told.name}, then do the same again",
            ) from error
        if step.verb != "same":
            reporter.say(f"{_PAST[step.verb]} {step.ref}")
    if told.current.state == "applying":
        told = _write(cluster, prepared.namespace, told, "applied")
    if prepared.crowded or not prepared.asked.wait:
        pruned += _prune(cluster, prepared.prune_last, reporter)
    if not prepared.asked.wait:
        return Outcome(prepared, told, pruned=tuple(pruned), unchanged=not prepared.changes)
    return _await(cluster, prepared, told, pruned, reporter, patient)


_PAST = {"create": "made", "change": "changed"}


def _await(
    cluster: Cluster,
    prepared: Prepared,
    told: Record,
    pruned: list[Ref],
    reporter: Reporter,
    patient: Callable[[], Cluster],
) -> Outcome:
    """The rollout, the proof, the end of what is not wanted any more."""
    pools = [each for each in prepared.pools if prepared.asked.waits_for(each.unit.pool)]
    names = tuple(pool.unit.name for pool in pools)
    watched = Watched(
        prepared.namespace, prepared.name, names, prepared.timeout_s, prepared.asked.stragglers_s
    )
    ended = watch(cluster, watched, reporter.progress, reporter.say)
    if ended.end != "done":
        crash = _classify(cluster, prepared.namespace, ended)
        if ended.end == "failed":
            told = _write(cluster, prepared.namespace, told, "failed")
        return Outcome(prepared, told, ended, crash=crash, pruned=tuple(pruned))
    _see_applied(cluster, prepared, told)
    if ended.why:
        reporter.warn(ended.why)
    reporter.say(
        f"{'the others are' if ended.why else 'every pod is'} ready; asking whether it speculates"
    )
    units = [pool.unit for pool in pools]
    proof = prove_pools(patient(), prepared.namespace, units, ended)
    pruned += _prune(cluster, prepared.prune_last, reporter)
    before = told.current
    same = before.state == "ready" and (before.proof or {}).get("verdict") == proof.verdict
    if not same:
        told = _write(cluster, prepared.namespace, told, "ready", proof.to_json())
    unchanged = same and not prepared.changes
    return Outcome(prepared, told, ended, proof, pruned=tuple(pruned), unchanged=unchanged)


def _write_intent(cluster: Cluster, prepared: Prepared) -> Record:
    """The record before anything else: what is half done can be told, and completed.

    Raises:
        SpecctlError: somebody else has deployed since it was looked at.
    """
    told, place = prepared.record, prepared.namespace
    value = cluster.get("v1", "ConfigMap", record.name_of(told.name), place)
    there = None if value is None else record.from_object(value)
    before = told.current if prepared.known else next(iter(told.previous), None)
    if there is not None and (before is None or identity(there.current) != identity(before)):
        raise _other(there, told)
    if prepared.known and (told.current.state == "applying" or not prepared.changes):
        return told
    told = told.with_current(state="applying")
    intent = record.as_object(told, place)
    if version := ((value or {}).get("metadata") or {}).get("resourceVersion"):
        intent["metadata"]["resourceVersion"] = version
    try:
        cluster.apply(intent, force=True)
    except Conflict:  # forced, so it is the version: it has changed since
        _see_ours(cluster, place, told)
        raise
    _see_ours(cluster, place, told)  # nothing guards a record that was not there yet
    return told


def _write(
    cluster: Cluster,
    namespace: str,
    told: Record,
    state: State,
    proof: dict[str, Any] | None = None,
) -> Record:
    """The record anew, unless somebody else has deployed meanwhile.

    Raises:
        SpecctlError: somebody has.
    """
    kept = proof or told.current.proof
    return amend(cluster, namespace, told, state=state, ended=now(), proof=kept)


def amend(cluster: Cluster, namespace: str, told: Record, **changes: Any) -> Record:
    """The record with its current revision changed, unless somebody else has deployed meanwhile.

    Raises:
        SpecctlError: somebody has.
    """
    _see_ours(cluster, namespace, told)
    told = told.with_current(**changes)
    cluster.apply(record.as_object(told, namespace), force=True)
    return told


def _see_ours(cluster: Cluster, namespace: str, told: Record) -> None:
    """See that nobody else has deployed meanwhile.

    Raises:
        SpecctlError: somebody has.
    """
    there = read_record(cluster, namespace, told.name)
    if there is not None and identity(there.current) != identity(told.current):
        raise _other(there, told)


def _other(there: Record, told: Record) -> SpecctlError:
    return SpecctlError(
        f"{who_else(there.current)} deployed revision {there.current.number} of {told.name} at "
        f"{there.current.at}, while revision {told.current.number} was under way",
        hint=f"specctl status {told.name}",
    )


def _see_applied(cluster: Cluster, prepared: Prepared, told: Record) -> None:
    """See that what is about to be proven is what was applied.

    Raises:
        SpecctlError: somebody has deployed, or changed a Deployment, meanwhile.
    """
    _see_ours(cluster, prepared.namespace, told)
    for step in prepared.steps:
        ref = step.ref
        if ref.kind != "Deployment":
            continue
        live = cluster.get(ref.api_version, ref.kind, ref.name, ref.namespace)
        if _config_hash(live) != _config_hash(step.wanted):
            raise SpecctlError(
                f"{ref} is not as revision {told.current.number} has it: somebody changed it "
                "while it was rolled out",
                hint=f"specctl status {told.name}, then do the same again",
            )


def _config_hash(deployment: Mapping[str, Any] | None) -> object:
    template = ((deployment or {}).get("spec") or {}).get("template") or {}
    return ((template.get("metadata") or {}).get("annotations") or {}).get(CONFIG_HASH)


def who_else(made: Revision) -> str:
    """Who made a revision that is not this command's."""
    return f"another command of {made.by}" if made.by == who() else made.by


def identity(current: Revision) -> tuple[object, ...]:
    """What tells one attempt from another."""
    told = (current.number, current.at, current.by, current.hash, current.objects_hash)
    return *told, current.uid


def _prune(cluster: Cluster, refs: Sequence[Ref], reporter: Reporter) -> list[Ref]:
    """Remove what is not wanted any more; what may not be removed is named, and stays."""
    gone = []
    for ref in refs:
        try:
            gone += apply.remove(cluster, [ref], wait_s=None)
        except Denied as error:
            reporter.warn(f"{ref} is not wanted any more, and stays: {error.message}")
    for ref in gone:
        reporter.say(f"removed {ref}, which is not wanted any more")
    return gone


def prove_pools(cluster: Cluster, namespace: str, units: Sequence[Unit], ended: Ended) -> Proof:
    """Ask a few servers of each pool whether they speculate."""
    wanted = {
        unit.pool: Wanted(unit.recipe.draft.method, unit.recipe.alerts.acceptance_floor, unit.pool)
        for unit in units
    }
    ready = [pod for pod in ended.progress.pods if pod.phase == "ready" and pod.fresh]
    chosen = []
    for pool in wanted:
        chosen += [pod for pod in ready if pod.pool == pool][:ASKED_PER_POOL]
    if not chosen:
        return Proof((), 0, now(), "no pod is there that could be asked")

    def one(name: str, pool: str) -> ServerProof:
        return prove(name, asker(cluster, namespace, name), wanted[pool])

    with ThreadPoolExecutor(len(chosen)) as side_by_side:
        servers = tuple(
            side_by_side.map(one, [pod.name for pod in chosen], [pod.pool for pod in chosen])
        )
    return Proof(servers, len(ready), now())


def asker(cluster: Cluster, namespace: str, pod: str) -> Ask:
    """How a pod is asked: through the API server."""
    import json

    def ask(method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        raw = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return cluster.proxy(namespace, pod, PORT, path, method, raw, headers)

    return ask


def _classify(cluster: Cluster, namespace: str, ended: Ended) -> Crash | None:
    from speccli.core.kube.crash import classify_pod

    if ended.pod is None:
        return None
    try:
        return classify_pod(cluster, namespace, ended.pod)
    except SpecctlError:
        return None  # what is known without it is told all the same
