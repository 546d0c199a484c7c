"""A deployment as plain values: `specctl.deploy/v1`, and the words that people get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speccli.core.deploy.asked import Pool, Prepared
from speccli.core.deploy.cluster import Outcome
from speccli.core.deploy.gate import Gate
from speccli.core.deploy.local import LocalOutcome
from speccli.core.kube.progress import PodView, Progress, Workload
from speccli.core.kube.proven import Proof
from speccli.core.kube.record import Record, Revision
from speccli.core.views.plan import finding

SCHEMA = "specctl.deploy/v1"
LIST_SCHEMA = "specctl.deployments/v1"


def deploy(outcome: Outcome) -> dict[str, Any]:
    """`specctl deploy -o json`."""
    ended = outcome.ended
    return {
        **_head(outcome.prepared),
        "exit": int(outcome.exit_code),
        "dry_run": False,
        "unchanged": outcome.unchanged,
        "state": outcome.record.current.state,
        **_body(outcome.prepared),
        "pruned": [ref.to_json() for ref in outcome.pruned],
        "rollout": {
            "end": ended.end if ended else "not waited for",
            "why": (ended.why or None) if ended else None,
            **(progress(ended.progress) if ended else {}),
        },
        "crash": outcome.crash.to_json() if outcome.crash else None,
        "proof": outcome.proof.to_json() if outcome.proof else None,
    }


def tried(prepared: Prepared, *, diff: bool) -> dict[str, Any]:
    """`specctl deploy --dry-run -o json`."""
    told = {
        **_head(prepared),
        "exit": 0,
        "dry_run": True,
        "unchanged": not prepared.changes and prepared.known,
        **_body(prepared),
        "pruned": [ref.to_json() for ref in (*prepared.prune_first, *prepared.prune_last)],
    }
    if diff:
        told["diffs"] = {str(step.ref): step.diff for step in prepared.steps if step.diff}
    return told


def local(outcome: LocalOutcome) -> dict[str, Any]:
    """`specctl deploy --to local -o json`."""
    told = outcome.record
    return {
        "schema": SCHEMA,
        "name": told.name,
        "to": "local",
        "recipe": told.current.recipe.get("name"),
        "recipe_hash": told.current.hash,
        "revision": told.current.number,
        "exit": int(outcome.exit_code),
        "dry_run": False,
        "unchanged": outcome.unchanged,
        "state": told.current.state,
        "findings": findings(outcome.gate),
        "accepted": list(outcome.gate.accepted),
        "url": outcome.url,
        "log": str(outcome.log),
        "serving_revision": outcome.serves,
        "rollout": {"end": outcome.end or "not waited for", "why": outcome.why or None},
        "crash": None,
        "proof": outcome.proof.to_json() if outcome.proof else None,
    }


def diff_text(prepared: Prepared) -> str:
    """`specctl deploy --diff`: every difference, as one text."""
    parts = [step.diff for step in prepared.steps if step.diff]
    for ref in (*prepared.prune_first, *prepared.prune_last):
        parts.append(f"--- live/{ref}\n+++ removed")
    return "\n".join(parts) or "nothing would change"


def _head(prepared: Prepared) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "name": prepared.name,
        "to": "kubernetes",
        "namespace": prepared.namespace,
        "context": prepared.context,
        "recipe": prepared.asked.recipe.name,
        "recipe_hash": prepared.revision.hash,
        "revision": prepared.revision.number,
    }


def _body(prepared: Prepared) -> dict[str, Any]:
    return {
        "findings": findings(prepared.gate),
        "accepted": list(prepared.gate.accepted),
        "pools": [_pool(each) for each in prepared.pools],
        "objects": [step.ref.to_json() | {"verb": step.verb} for step in prepared.steps],
        "kept": [ref.to_json() for ref in prepared.kept],
    }


def findings(gate: Gate) -> list[dict[str, Any]]:
    """What the gate saw."""
    return [finding(verdict) for verdict in gate.verdicts]


def _pool(pool: Pool) -> dict[str, Any]:
    return {
        "pool": pool.unit.pool,
        "deployment": pool.unit.name,
        "method": pool.unit.recipe.draft.method,
        "replicas": pool.replicas,
        "replaces_pods": pool.rolls,
        "stock": pool.stock.to_json(),
        "strategy": {
            "max_surge": pool.strategy.surge,
            "max_unavailable": pool.strategy.unavailable,
            "meaning": pool.strategy.words,
            "downtime": pool.strategy.downtime,
        },
    }


def progress(now: Progress) -> dict[str, Any]:
    """Deployments and pods."""
    return {
        "serving": now.serving,
        "deployments": [_workload(each) for each in now.workloads],
        "pods": [_pod(each) for each in now.pods],
    }


def _workload(each: Workload) -> dict[str, Any]:
    return {
        "name": each.name,
        "wanted": each.wanted,
        "updated": each.updated,
        "serving": each.available,
        "done": each.done,
        "expired": each.expired,
    }


def _pod(pod: PodView) -> dict[str, Any]:
    return {
        "name": pod.name,
        "pool": pod.pool,
        "phase": pod.phase,
        "detail": pod.detail,
        "newest": pod.fresh,
        "node": pod.node,
        "restarts": pod.restarts,
        "trouble": pod.trouble,
    }


# ---- words ----


def title(name: str, namespace: str, context: str, revision: Revision) -> str:
    """`chat · revision 3 · llama-3.3-70b-eagle3-h100 · namespace llm of prod`."""
    recipe = revision.recipe.get("name", "?")
    back = f", as revision {revision.restores}" if revision.restores else ""
    return (
        f"{name} · revision {revision.number}{back} · {recipe} · namespace {namespace} of {context}"
    )


def local_title(told: Record) -> str:
    """The same of an engine on this machine."""
    recipe = told.current.recipe.get("name", "?")
    return f"{told.name} · revision {told.current.number} · {recipe} · on this machine"


def state_words(outcome: Outcome) -> tuple[str, str]:
    """A style word, and one line that says how it went."""
    ended = outcome.ended
    if ended is None:
        return "info", "applied; nothing was waited for or proven: specctl status shows how it goes"
    pods = serving_words(ended.progress.serving)
    if ended.end == "failed":
        return "critical", f"FAILED: {ended.why}; {pods}, of this revision or a former one"
    if ended.end == "late":
        return "unknown", f"NOT READY in time: {ended.why}; {pods}; it goes on by itself"
    return proof_words(outcome.proof, pods, unchanged=outcome.unchanged)


def serving_words(count: int) -> str:
    """`2 pods serve`."""
    return "1 pod serves" if count == 1 else f"{count} pods serve"


def proof_words(proof: Proof | None, serving: str, *, unchanged: bool) -> tuple[str, str]:
    """A style word, and one line on what was proven."""
    if proof is None:
        return "unknown", f"ready, not proven; {serving}"
    words = {"proven": "PROVEN", "refuted": "REFUTED", "unknown": "NOT PROVEN"}[proof.verdict]
    style = {"proven": "ok", "refuted": "critical", "unknown": "unknown"}[proof.verdict]
    simulated = "SIMULATED, " if proof.simulated else ""
    asked = f"{len(proof.servers)} of {proof.of} asked"
    why = f" ({proof.reason})" if proof.reason else ""
    same = ", nothing changed" if unchanged else ""
    return style, f"{simulated}{words}: {serving}, {asked}{why}{same}"


def local_words(outcome: LocalOutcome) -> tuple[str, str]:
    """The same of an engine on this machine."""
    former = None if outcome.former is None else f"revision {outcome.former} serves"
    if outcome.end is None:
        if former:
            return "info", f"started; {former} at {outcome.url} until the same again has proven it"
        return "info", f"started at {outcome.url}; nothing was waited for or proven"
    if outcome.end == "failed":
        return "critical", f"FAILED: {outcome.why}; {former or 'nothing serves'}"
    if outcome.end == "late":
        until = f"; {former} until the same again has proven it" if former else ""
        return "unknown", f"NOT READY in time: {outcome.why}; it goes on by itself{until}"
    serves = f"{former} at {outcome.url}" if former else f"{outcome.url} serves"
    return proof_words(outcome.proof, serves, unchanged=outcome.unchanged)


def listed(records: Sequence[tuple[Record, str, str, int | None]]) -> dict[str, Any]:
    """`specctl list -o json`: records, each with where it is, its namespace and what serves."""
    return {
        "schema": LIST_SCHEMA,
        "deployments": [
            {
                "name": told.name,
                "to": to,
                "namespace": namespace or None,
                "revision": told.current.number,
                "recipe": told.current.recipe.get("name"),
                "state": told.current.state,
                "proof": (told.current.proof or {}).get("verdict"),
                "at": told.current.at,
                "by": told.current.by,
                "serving": serving,
            }
            for told, to, namespace, serving in records
        ],
    }
