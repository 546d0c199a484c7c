"""Which finding moves a deployment which way, and why. What is not here moves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Way = Literal["down", "other", "less", "off", "none"]
"""down: the next rung, whatever it drafts with. other: the next one without this draft. less: the
same draft with fewer tokens, else off. off: whatever has no part of it: the warm standby, else no
speculation. none: no speculation, whatever is warm."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """What a finding leads to."""

    way: Way
    why: str


REACTIONS: Mapping[str, Reaction] = {
    "ZERO_ACCEPTANCE": Reaction(
        "other", "a draft of which nothing is accepted costs its time at any K"
    ),
    "LOW_ACCEPTANCE": Reaction("down", "its last tokens are drafted and verified for nothing"),
    "ACCEPTANCE_DRIFT": Reaction("down", "the draft no longer guesses what it used to"),
    "PARALLEL_DRAFT_CLIFF": Reaction("down", "positions after the first are never accepted"),
    "DRAFT_BEHIND_TARGET": Reaction("down", "the draft guesses what the old target would say"),
    "BATCH_COLLAPSE": Reaction(
        "less", "verifying costs more than it wins at this batch, with any draft of that length"
    ),
    "SPEC_NOT_ACTIVE": Reaction("off", "what serves is not what the recipe says: no draft runs"),
    "ENGINE_DOWN": Reaction("off", "speculation ends the engines: only where their logs say so"),
}

NOTHING: Mapping[str, str] = {
    "ACCEPTANCE_SLOPE": "a restart of the engine ends it, another method does not",
    "BASELINE_KEY_MISMATCH": "it is the baseline that does not fit",
    "QUEUE_WAIT": "that is the autoscaler's",
    "P99_REGRESSION": "whether speculation is the cause cannot be told from it",
    "COST_OVER": "prices and load are not the draft's",
    "STALLED": "the engine hangs: its probe or a person restarts it",
    "METRICS_MISSING": "what cannot be seen cannot be judged",
    "METRICS_INCONSISTENT": "numbers that contradict each other prove nothing",
    "VERSION_SKEW": "engines that should be alike differ: a rollout, under way or half done",
    "NO_TRAFFIC": "nothing is served, so nothing is lost",
    "PARTIAL_DATA": "what cannot be seen cannot be judged",
}
"""Codes that are looked at and move nothing, each with its reason."""

BLAMED = frozenset(
    {
        *("SPEC_CONFIG", "DRAFT_UNSUPPORTED", "DRAFT_MISMATCH", "DRAFT_TP", "DRAFT_VOCAB"),
        *("GPU_OOM_DRAFT", "GPU_OOM_SAMPLER", "DRAFT_GRAPHS", "GRAMMAR", "NEGATIVE_COUNTER"),
    }
)
"""Causes of a crash that go with the draft, or with speculation."""

WITH_ANY_DRAFT = frozenset({"GRAMMAR"})
"""Of those, what n-gram dies of as a trained draft does."""
