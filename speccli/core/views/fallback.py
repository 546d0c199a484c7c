"""Ways down from a deployment as plain values: `specctl.fallback/v1`."""

from __future__ import annotations

from typing import Any

from speccli.core.fallback.ladder import Ladder
from speccli.core.fallback.rungs import Step

SCHEMA = "specctl.fallback/v1"


def ladder(found: Ladder) -> dict[str, Any]:
    """`specctl fallback plan -o json`."""
    return {
        "schema": SCHEMA,
        "name": found.record.name,
        "revision": found.record.current.number,
        "method": found.recipe.draft.method,
        "k": found.recipe.draft.k or None,
        "down": [_step(step) for step in found.down],
        "restores_revision": found.back.number if found.back else None,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "method": step.method,
        "k": step.recipe.draft.k or None,
        "possible": not step.refusals,
        "refusals": list(step.refusals),
        "kv_tokens_gained": step.gained_tokens,
        "command": list(step.plan.line.command),
    }


def now(found: Ladder) -> str:
    """Where it stands, in a line."""
    draft = found.recipe.draft
    with_k = f", K = {draft.k}" if draft.k else ""
    method = "no speculation" if draft.method == "none" else f"{draft.method}{with_k}"
    return f"{found.record.name}, revision {found.record.current.number}: {method}"


def words(step: Step) -> str:
    """What a step does, in a line."""
    if step.refusals:
        return f"not possible: {step.refusals[0]}"
    if step.method == "none":
        what = "no draft: every token costs a step of the target"
    else:
        what = f"n-gram, K = {step.recipe.draft.k}: drafts only where the answer repeats its prompt"
    return f"{what}{_gained(step)}"


def _gained(step: Step) -> str:
    if step.gained_tokens is None:
        return "; what of the KV cache it gives back is not known"
    if step.gained_tokens == 0:
        return "; the KV cache stays as it is"
    return f"; {step.gained_tokens:+,} tokens of KV cache a server (estimate)"
