"""What is deployed, as plain values and words: `specctl.deployed/v1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from speccli.core.deploy.look import Deployed, DeployedHere
from speccli.core.errors import UsageError
from speccli.core.fallback.rungs import draft_words, standby_draft
from speccli.core.kube.record import Record, recipe_of
from speccli.core.views.deploy import progress
from speccli.core.views.status import status

if TYPE_CHECKING:
    from speccli.core.oneshot import Answer

SCHEMA = "specctl.deployed/v1"


def deployed(found: Deployed, answer: Answer | None) -> dict[str, Any]:
    """`specctl status NAME -o json`, on a cluster."""
    return {
        "schema": SCHEMA,
        "name": found.record.name,
        "to": "kubernetes",
        "namespace": found.namespace,
        "context": found.context,
        "record": found.record.to_json(),
        "rollout": progress(found.progress),
        "serves": found.serves,
        "status": _status(answer),
    }


def here(found: DeployedHere, answer: Answer | None) -> dict[str, Any]:
    """The same of an engine on this machine."""
    return {
        "schema": SCHEMA,
        "name": found.record.name,
        "to": "local",
        "url": found.here.url,
        "log": str(found.here.log),
        "record": found.record.to_json(),
        "rollout": {"serving": int(found.healthy), "state": found.words},
        "status": _status(answer),
    }


def _status(answer: Answer | None) -> dict[str, Any] | None:
    return None if answer is None else status(answer.snapshot, answer.findings)


def serving_words(found: Deployed) -> str | None:
    """Which pool has the requests, and what it drafts with; None where there is only one."""
    try:
        recipe = recipe_of(found.record.current)
    except UsageError:
        return None  # of a newer specctl
    pools = {*recipe.pools, *(found.record.current.options.get("pools") or ())}
    if found.serves is None or "standby" not in pools:
        return None
    drafts = {"main": recipe.draft, "standby": standby_draft(recipe)}
    words = {pool: draft_words(draft) for pool, draft in drafts.items()}
    other = "main" if found.serves == "standby" else "standby"
    here = f" ({words[found.serves]})" if found.serves in words else ""
    return f"requests go to the pool {found.serves}{here}; {other} ({words[other]}) stands by"


def trial_words(told: Record) -> str | None:
    """The canary that a restore is tried with; None where there is none."""
    trial = told.current.trial
    if trial is None:
        return None
    verdict = trial.get("verdict")
    state = "is watched" if verdict is None else f"{verdict}: {trial.get('words')}"
    namespace = told.current.options.get("namespace")
    typed = f"{told.name} -n {namespace}" if namespace else told.name
    goes_on = "" if verdict is None else f"; specctl fallback restore {typed} goes on with it"
    return f"a canary of revision {trial.get('of')} {state}{goes_on}"


def state_words(told: Record) -> str:
    """`ready, proven 2026-…; revision 3 by ops@bastion at …`."""
    current = told.current
    proof: Mapping[str, Any] = current.proof or {}
    verdict = f", {proof['verdict']} at {proof['at']}" if proof else ", not proven"
    unfinished = " (not finished: deploy it again)" if current.state == "applying" else ""
    return f"{current.state}{unfinished}{verdict}; begun {current.at} by {current.by}"


def former_words(told: Record) -> list[str]:
    """A line a former revision."""
    lines = []
    for each in told.previous:
        proof = (each.proof or {}).get("verdict")
        lines.append(
            f"revision {each.number}  {each.recipe.get('name', '?')}  {each.state}"
            f"{f', {proof}' if proof else ''}  {each.at}"
        )
    return lines
