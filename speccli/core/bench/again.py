"""Whether a second run says what the first one said.

Two runs of one truth lie outside of each other's intervals now and then, but their difference lies
within both scatters together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from speccli.core.bench.compare import Comparison
from speccli.core.bench.pairing import Load
from speccli.core.bench.results import Result, Statistic


@dataclass(frozen=True, slots=True)
class Pair:
    """One comparison, measured twice."""

    arm: str
    load: Load
    dataset: str
    first: Statistic
    second: Statistic

    @property
    def agree(self) -> bool:
        """Whether the difference of the logarithms is within the two scatters together."""
        assert self.first.value is not None
        assert self.second.value is not None
        apart = abs(math.log(self.second.value / self.first.value))
        return apart <= math.hypot(_half(self.first), _half(self.second))


def _half(told: Statistic) -> float:
    """Half of the interval, in logarithms; without one, nothing is known to be by chance."""
    if not told.low or not told.high:
        return 0.0
    return math.log(told.high / told.low) / 2


def pairs(first: Comparison, second: Comparison) -> list[Pair]:
    """What both of them compared."""
    theirs = {(c.arm, c.load, c.dataset): c.speedup for c in second.cells}
    found = [
        Pair(c.arm, c.load, c.dataset, c.speedup, theirs[c.arm, c.load, c.dataset])
        for c in first.cells
        if (c.arm, c.load, c.dataset) in theirs
    ]
    return [p for p in found if p.first.value is not None and p.second.value is not None]


def differences(first: Result, second: Result) -> Iterator[str]:
    """In what they are not the same measurement, in words."""
    for what in ("stand_in", "simulated"):
        one, other = getattr(first, what), getattr(second, what)
        if one != other:
            yield f"{what.replace('_', '-')}: {one} and {other}"
    arms = {arm.name: arm for arm in second.arms}
    for arm in first.arms:
        again = arms.get(arm.name, arm)
        for what in ("model", "method", "k", "gpu_count"):
            one, other = getattr(arm, what), getattr(again, what)
            if one != other:
                yield f"{arm.name}'s {what}: {one} and {other}"
    for what in ("temperature", "top_p"):
        one, other = getattr(first.provenance, what), getattr(second.provenance, what)
        if one != other:
            yield f"{what}: {one} and {other}"
