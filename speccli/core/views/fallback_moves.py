"""A move of a deployment as plain values: `move` and `restore` of `specctl.fallback/v1`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from speccli.core.fallback.carry import Outcome, Restored
from speccli.core.fallback.carrying import Ended
from speccli.core.fallback.preview import Preview
from speccli.core.fallback.terms import Move
from speccli.core.views import deploy as view

SCHEMA = "specctl.fallback/v1"


def moved(outcome: Outcome) -> dict[str, Any]:
    """`specctl fallback apply -o json`: the deployment it came to, and the move."""
    return {
        **view.deploy(outcome.last),
        "exit": int(outcome.exit_code),
        "move": _move(outcome),
    }


def restored(told: Restored) -> dict[str, Any]:
    """`specctl fallback restore -o json`."""
    deployed = view.deploy(told.moved.last) if told.moved else {"schema": SCHEMA}
    return {
        **deployed,
        "name": told.name,
        "namespace": told.namespace,
        "exit": int(told.exit_code),
        "move": _move(told.moved) if told.moved else None,
        "restore": {
            "verdict": told.verdict,
            "words": told.words,
            "refusals": told.refusals,
            "comparison": asdict(told.comparison) if told.comparison else None,
        },
    }


def accepted(name: str, namespace: str, move: Move, ended: Ended, code: int) -> dict[str, Any]:
    """`specctl fallback apply --proposal ID -o json`."""
    return {
        "schema": SCHEMA,
        "name": name,
        "namespace": namespace,
        "exit": code,
        "proposal": {
            "id": move.id,
            "kind": move.kind,
            "source": move.source,
            "target": move.target,
            "outcome": ended.outcome,
            "words": ended.words,
            "seconds": round(ended.seconds, 1),
        },
    }


def _move(outcome: Outcome) -> dict[str, Any]:
    return {
        "mechanism": outcome.mechanism,
        "source": outcome.source,
        "target": outcome.target,
        "end": outcome.end,
        "words": outcome.words,
        "seconds": round(outcome.seconds, 1),
        "notes": list(outcome.notes),
    }


def previewed(made: Preview) -> dict[str, Any]:
    """`--dry-run -o json`."""
    return {
        "schema": SCHEMA,
        "name": made.name,
        "namespace": made.namespace,
        "dry_run": True,
        "exit": 0,
        "move": {
            "mechanism": made.mechanism,
            "source": made.source,
            "target": made.target,
            "parts": [
                {"words": part.words, "calls": [asdict(call) for call in part.calls]}
                for part in made.parts
            ],
            "notes": list(made.notes),
        },
    }
