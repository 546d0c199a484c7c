"""What is remembered of canaries: it stands in the deployment's own record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from speccli.core.kube.record import Record, Revision, digest, plain_recipe
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
    return _digest(plain_recipe(recipe))


def configuration_of(revision: Revision) -> str:
    """The same of what a revision was."""
    return _digest(revision.recipe)


def _digest(plain: Mapping[str, Any]) -> str:
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


def last_trial(told: Record, of: str) -> Mapping[str, Any] | None:
    """What a canary of a configuration came to, where a restore may go on with that.

    Only where nothing came after it but what the restore does itself (servers raised, pods of that
    configuration, the canary taken away), and none of that was through.
    """
    every = (told.current, *told.previous)
    at = next((i for i, each in enumerate(every) if each.trial is not None), None)
    if at is None or (trial := every[at].trial) is None or trial.get("configuration") != of:
        return None
    beside = told.revision(int(trial["from"]))
    if beside is None or not all(_is_part(each, beside, of) for each in every[:at]):
        return None
    # A return may come in several parts, which say the same of themselves.
    through = {each.restores for each in every[1:at]} - {None, told.current.restores}
    return None if through else trial


def _is_part(later: Revision, beside: Revision, of: str) -> bool:
    """Whether a restore made it: as what served beside the canary, or with what was tried."""
    traffic = beside.options.get("traffic")
    if later.restores is not None:
        return later.recipe == beside.recipe or configuration_of(later) == of
    if later.options.get("traffic") != traffic:
        return False
    # Behind a standby the main pool is replaced first, before that is a restore.
    return later.recipe == beside.recipe or (traffic == "standby" and configuration_of(later) == of)


def is_held(current: Revision) -> bool:
    """Whether a return is through but for the main pool's autoscaler, which is held still."""
    raised = current.options.get("raised") or {}
    return current.restores is not None and "main" in raised


def refusals(told: Record, of: str) -> Refusals:
    """How often a configuration was refused, as far as the record goes back."""
    tried = [r.trial for r in (told.current, *told.previous) if r.trial is not None]
    refused = [t for t in tried if t.get("configuration") == of and t.get("verdict") == "refused"]
    return Refusals(len(refused), str(refused[0].get("ended")) if refused else None)
