"""Greedy speculative decoding replayed on answers that are known: what an engine would accept.

In a greedy answer every token is the target's choice, so a draft is taken as far as it says what
stands there; the next step begins behind the token that the target adds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

_MARGIN = 0.01
"""Of acceptance: less than this is what other kernels, or a step at the lowest rate, may do."""
Right = npt.NDArray[np.bool_]
"""[steps, n] of one answer: whether step k, begun k tokens before, says token i."""


def steps(right: Right, k: int) -> tuple[int, list[int]]:
    """(steps of the target, drafts taken at each of `k` positions)."""
    length, begun, at, taken = right.shape[1], 0, 0, [0] * k
    while at < length:
        far = 0
        while far < k and at + far < length and right[far, at + far]:
            taken[far] += 1
            far += 1
        begun, at = begun + 1, at + far + 1
    return begun, taken


def summary(answers: Iterable[Right], k: int) -> dict[str, Any]:
    """Acceptance at `k`, and tokens a step at every smaller K and at all that was unrolled.

    `by_position` is what stands on a server's counters: accepted there over steps.
    """
    known = list(answers)
    most = min((len(right) for right in known), default=0)
    if not most:
        return {"unknown": "no answer to measure on"}
    found = {n: _all(known, n) for n in range(1, most + 1)}
    k = min(k, most)
    begun, taken = found[k]
    return {
        "answers": len(known),
        "k": k,
        "steps": begun,
        "rate": round(sum(taken) / (k * begun), 4),
        "by_position": [round(n / begun, 4) for n in taken],
        "tokens_per_step": {n: round(1 + sum(t) / b, 3) for n, (b, t) in found.items()},
    }


def _all(answers: Iterable[Right], k: int) -> tuple[int, list[int]]:
    walked = [steps(right, k) for right in answers]
    taken = [sum(column) for column in zip(*(t for _, t in walked), strict=True)]
    return sum(begun for begun, _ in walked), taken


def worse(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    """Tests on which clearly less is accepted than before the first step, in words."""
    rates = (
        (name, before.get(name, {}).get("rate"), told.get("rate")) for name, told in after.items()
    )
    return {
        name: f"{old:.3f} to {new:.3f}"
        for name, old, new in rates
        if old is not None and new is not None and old - new >= _MARGIN
    }
