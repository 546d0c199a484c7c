"""What is remembered of canaries that were refused: it stands in the deployment's own record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from speccli.core.kube.record import Record, digest, plain_recipe
from speccli.core.recipes.model import Recipe

MOST_REFUSALS = 2
"""Of one configuration, after which only a person who insists has it tried again."""
HOLDS_S = 3600.0
"""How long what a canary came to is taken for what is: drafts, load and weights change."""
_WHAT_DRAFTS = ("target", "draft", "engine", "serving")


@dataclass(frozen=True, slots=True)
class Refusals:
    """What is remembered of a configuration."""

    count: int = 0
    last: str | None = None
    """When, RFC 3339."""


def configuration(recipe: Recipe) -> str:
    """What a refusal holds for: until target, draft, engine or its settings change."""
    plain = plain_recipe(recipe)
    return digest({key: plain.get(key) for key in _WHAT_DRAFTS})


def still_passed(trial: Mapping[str, Any], recipe: Recipe, at: str) -> bool:
    """Whether a canary of this configuration passed, and that is no more than an hour ago.

    `at`: the present time, RFC 3339.
    """
    if trial.get("verdict") != "passed" or trial.get("configuration") != configuration(recipe):
        return False
    try:
        ended = datetime.fromisoformat(str(trial.get("ended")))
        return (datetime.fromisoformat(at) - ended).total_seconds() <= HOLDS_S
    except (ValueError, TypeError):
        return False


def refusals(told: Record, of: str) -> Refusals:
    """How often a configuration was refused, as far as the record goes back."""
    tried = [r.trial for r in (told.current, *told.previous) if r.trial is not None]
    refused = [t for t in tried if t.get("configuration") == of and t.get("verdict") == "refused"]
    return Refusals(len(refused), str(refused[0].get("ended")) if refused else None)
