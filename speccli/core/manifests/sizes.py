"""How long a start may take and how much it needs: from the weights, with the formula.

Rates are assumptions (`storage.read_mb_s` replaces them); docs/manifests.md tells each figure's
source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from speccli.core.errors import UsageError
from speccli.core.plan import Plan
from speccli.core.recipes.model import Recipe

MB = 1_000_000
GIB = 1 << 30

READ_MB_S = {"hub": 100.0, "pvc": 200.0, "image": 400.0}
"""Assumed: a shared download, a shared file system, a node's own disk."""
BASE_S = 420
"""Imports, compilation, graph capture, warm-up: 125 to 155 s measured on an H200, 370 s with a
cold cache on two loaded cores."""
LEAST_S = 600
UNKNOWN_S = 1800
"""Where the weights' size is not known."""
PULL_S = 600
"""For pulling an image of about 10 GB; no probe runs meanwhile, but the rollout's clock does."""

SCALE_DOWN_S = 900
LONGEST_WINDOW_S = 3600
"""What an HPA takes."""

PRE_STOP_S = 15
"""Endpoints and gateways forget a pod meanwhile; only then SIGTERM."""
MARGIN_S = 30
"""From the end of the drain to the process's end, tensor-parallel workers included."""
MIN_READY_S = 10

SHM_GIB = {False: 4, True: 16}
"""Shared memory, by whether workers talk through it (more than one GPU)."""
SCRATCH_GIB = 20
"""HOME and /tmp."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds."""

    startup: int
    shutdown: int
    """What --shutdown-timeout says; 0: running requests are aborted."""
    grace: int
    progress: int
    scale_down: int
    """How long fewer servers must have been enough."""
    formula: str


def weight_bytes(plan: Plan) -> int | None:
    """Bytes of the target's and the draft's weights, whole; None: not known."""
    facts = plan.facts
    if facts.target_shape is None:
        return None
    whole = facts.target_shape.weight_bytes(1)
    if facts.draft_params:
        whole += facts.draft_params * 2
    elif facts.draft_shape is not None:
        whole += facts.draft_shape.weight_bytes(1)
    return int(whole)


def times(plan: Plan) -> Times:
    """When to give up on a start, and how long to wait for an end."""
    recipe = plan.facts.recipe
    startup, formula = _startup(plan)
    shutdown = recipe.serving.shutdown_timeout_s if "--shutdown-timeout" in plan.line.command else 0
    grace = PRE_STOP_S + shutdown + MARGIN_S
    progress = startup + PULL_S + grace + MIN_READY_S
    window = recipe.scaling.scale_down_stabilization_s
    if window is None:
        window = min(LONGEST_WINDOW_S, max(SCALE_DOWN_S, startup))
    return Times(startup, shutdown, grace, progress, window, formula)


def _startup(plan: Plan) -> tuple[int, str]:
    recipe, size = plan.facts.recipe, weight_bytes(plan)
    given = recipe.serving.startup_timeout_s
    if given is not None:
        return given, "serving.startup_timeout_s"
    if size is None:
        return UNKNOWN_S, "the weights' size is not known"
    rate = read_rate(recipe)
    seconds = max(LEAST_S, math.ceil((BASE_S + size / MB / rate) / 60) * 60)
    told = "given" if recipe.storage.read_mb_s else "assumed"
    return seconds, f"{BASE_S} s + {size / 1e9:.0f} GB at {rate:g} MB/s ({told})"


def read_rate(recipe: Recipe) -> float:
    """Megabytes a second at which weights arrive."""
    return recipe.storage.read_mb_s or READ_MB_S[recipe.storage.source]


def claim_gib(plan: Plan) -> int:
    """Size of a claim for the weights: a fifth more, in steps of 10 GiB.

    Downloads are written beside what they replace, and a hub's repository holds more than weights.

    Raises:
        UsageError: nobody knows.
    """
    given, size = plan.facts.recipe.storage.size_gib, weight_bytes(plan)
    if given is not None:
        return given
    if size is None:
        raise UsageError(
            f"how large the weights of {plan.facts.recipe.target.model} are is not known",
            hint="storage.size_gib, or target.config with a folder that has its config.json",
        )
    return math.ceil(size * 1.2 / GIB / 10) * 10
