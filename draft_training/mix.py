"""The order of several sources in which every beginning holds each source's share.

Answers stop when their time is up: with one source after another, the last would go without.
"""

from __future__ import annotations

from collections.abc import Sequence


def order(counts: Sequence[int], weights: Sequence[float]) -> tuple[list[int], int | None]:
    """(the source of each place in turn, the source that is used up while others are not).

    Args:
        counts: how many each source has.
        weights: what each source is to have of any beginning, in any unit.
    """
    whole, taken, made = sum(weights), [0] * len(counts), list[int]()
    if not whole:
        return made, None
    while len(made) < sum(counts):
        due = max(range(len(counts)), key=lambda i: (len(made) + 1) * weights[i] / whole - taken[i])
        if taken[due] == counts[due]:
            return made, due
        made.append(due)
        taken[due] += 1
    return made, None
