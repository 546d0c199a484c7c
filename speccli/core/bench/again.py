"""Whether a second run says what the first one said.

Two runs of one truth lie outside of each other's intervals now and then, but their difference lies
within both scatters together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from speccli.core.bench.compare import Comparison
from speccli.core.bench.pairing import Load
from speccli.core.bench.results import Arm, Result, Statistic


@dataclass(frozen=True, slots=True)
class Pair:
    """One comparison, measured twice."""

    arm: str
    load: Load
    dataset: str
    first: Statistic
    second: Statistic
    requests: tuple[int, int]
    """Of the arm, a row of either."""

    @property
    def agree(self) -> bool | None:
        """Whether the difference of the logarithms is within the two scatters together.

        A run that was measured once has no interval: it is taken to scatter as the other does.
        None where neither has one.
        """
        assert self.first.value is not None
        assert self.second.value is not None
        halves = [half for each in (self.first, self.second) if (half := _half(each)) is not None]
        if not halves:
            return None
        apart = abs(math.log(self.second.value / self.first.value))
        return apart <= math.hypot(halves[0], halves[-1])


def _half(told: Statistic) -> float | None:
    """Half of the interval, in logarithms; None without one."""
    if not told.low or not told.high:
        return None
    return math.log(told.high / told.low) / 2


def pairs(first: Comparison, second: Comparison) -> list[Pair]:
    """What both of them compared."""
    theirs = {(c.arm, c.load, c.dataset): c for c in second.cells}
    found = [
        Pair(
            c.arm,
            c.load,
            c.dataset,
            c.speedup,
            other.speedup,
            (c.requests[1] // c.repeats, other.requests[1] // other.repeats),
        )
        for c in first.cells
        if (other := theirs.get((c.arm, c.load, c.dataset))) is not None
    ]
    return [p for p in found if p.first.value is not None and p.second.value is not None]


def differences(first: Result, second: Result) -> Iterator[str]:
    """In what they are not the same measurement, in words; what one of them does not tell is none.

    Not how many requests a row has: that makes the same measurement a longer one.
    """
    yield from _differ("", first, second, ("stand_in", "simulated"))
    was, is_ = first.provenance, second.provenance
    for what in ("name", "count"):
        yield from _unlike(f"GPU's {what}", *((each.gpu or {}).get(what) for each in (was, is_)))
    sets = {each.name: each for each in second.datasets}
    for dataset in first.datasets:
        if dataset.name in sets:
            ours, theirs = dataset.sha256, sets[dataset.name].sha256
            yield from _unlike(f"sha256 of {dataset.name}", ours, theirs)
    arms = {arm.name: arm for arm in second.arms}
    for arm in first.arms:
        if arm.name in arms:
            yield from _arm(arm, arms[arm.name])
    yield from _differ("", was, is_, ("temperature", "top_p"))


def _arm(first: Arm, second: Arm) -> Iterator[str]:
    of = f"{first.name}'s "
    yield from _differ(of, first, second, ("model", "method", "k", "gpu_count"))
    for what in ("kind", "version"):
        yield from _unlike(f"{of}engine {what}", first.engine.get(what), second.engine.get(what))
    yield from _unlike(f"{of}draft", first.draft, second.draft)
    yield from _unlike(f"{of}context", first.max_model_len, second.max_model_len)
    yield from _unlike(f"{of}flags", first.flags or None, second.flags or None)
    yield from _unlike(f"{of}command", _words(first), _words(second))


def _words(arm: Arm) -> str | None:
    """What started it, but for its port, which is another one each time."""
    words = " ".join(arm.command or ())
    return re.sub(r"(^| )--port[ =]\S+", "", words) or None


def _differ(of: str, first: object, second: object, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            yield f"{of}{name.replace('_', '-')}: {one} and {other}"


def _unlike(what: str, one: object, other: object) -> Iterator[str]:
    if one is not None and other is not None and one != other:
        yield f"{what}: {one} and {other}"
