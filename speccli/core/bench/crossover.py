"""From which batch on speculation is slower than none, and how sure that is.

Between two batches that were measured the logarithm of the speed-up is taken to be straight over
the logarithm of the batch; outside of them nothing is said.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from speccli.core.bench.bootstrap import SEED, Contrast, percentile_interval

_DRAWS = 1000
BELOW, BEYOND = 0.0, math.inf
"""Places outside of what was measured: slower at its smallest batch, faster at its largest."""


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where the speed-up falls under 1 and stays there, going up in batch."""

    least: int
    most: int
    """The smallest and the largest batch measured."""
    place: float
    """A batch between them, or BELOW, or BEYOND."""
    interval: tuple[float, float] | None
    """95 %; ends may be BELOW or BEYOND. None where runs were not repeated."""
    between: tuple[int, int] | None = None
    """The measured batches on either side of the place."""
    under: tuple[int, ...] = ()
    """Measured batches below the place at which it is slower nevertheless."""

    @property
    def words(self) -> str:
        """`91 [84, 99]`, `none up to 128`, `slower from 1 on`; the interval where it adds."""
        odd = ", ".join(map(str, self.under))
        return f"{self._told()} (not monotone: slower at {odd} too)" if odd else self._told()

    def _told(self) -> str:
        told = {BELOW: f"slower from {self.least} on", BEYOND: f"none up to {self.most}"}
        place = told.get(self.place, f"{self.place:.0f}")
        if self.interval is None:
            return f"{place} (measured once: no interval)"
        low, high = self.interval
        if low == high == self.place:
            return place
        if self.place in told and {low, high} == {BELOW, BEYOND}:
            other = told[BEYOND if self.place == BELOW else BELOW]
            return f"{place}, or {other}: not certain (95 %)"
        if self.place == BELOW:
            return f"{place}, or from {self._end(high)} on at the latest (95 %)"
        if self.place == BEYOND:
            return f"{place}, or from {self._end(low)} on at the earliest (95 %)"
        return f"{place} [{self._end(low)}, {self._end(high)}]"

    def _end(self, place: float) -> str:
        """An end of the interval; what lies outside of what was measured has no number."""
        if place == BELOW:
            return f"under {self.least}"
        return f"over {self.most}" if place == BEYOND else f"{place:.0f}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; a place outside of what was measured is null, and `state` says which."""
        states = {BELOW: "below", BEYOND: "beyond"}
        ends = self.interval or (None, None)
        return {
            "state": states.get(self.place, "between"),
            "batch": _plain(self.place),
            "low": _plain(ends[0]),
            "high": _plain(ends[1]),
            "low_state": None if ends[0] is None else states.get(ends[0], "between"),
            "high_state": None if ends[1] is None else states.get(ends[1], "between"),
            "between": list(self.between) if self.between else None,
            "measured": [self.least, self.most],
            "words": self.words,
        }


def _plain(place: float | None) -> float | None:
    return None if place is None or place in {BELOW, BEYOND} else round(place, 1)


def crossover(contrasts: dict[int, Contrast]) -> Crossover | None:
    """From the log speed-up by batch; None with fewer than two batches."""
    ordered = sorted(contrasts.items())
    if len(ordered) < 2:
        return None
    batches = [batch for batch, _ in ordered]
    values = [contrast.value for _, contrast in ordered]
    place, last = _under_from(batches, values), _last_over(values)
    drawn = _drawn(batches, [contrast for _, contrast in ordered])
    inside = place not in {BELOW, BEYOND}
    return Crossover(
        batches[0],
        batches[-1],
        place,
        percentile_interval(drawn) if drawn else None,
        (batches[last], batches[last + 1]) if inside else None,
        tuple(batches[i] for i in range(last) if values[i] < 0),
    )


def _last_over(values: Sequence[float]) -> int:
    """The place of the last one that is not slower; -1 where all are."""
    return max((i for i, value in enumerate(values) if value >= 0), default=-1)


def _under_from(batches: Sequence[int], values: Sequence[float]) -> float:
    """The last time it falls under 1."""
    last = _last_over(values)
    if last < 0:
        return BELOW
    if last == len(values) - 1:
        return BEYOND
    share = values[last] / (values[last] - values[last + 1])
    start, end = math.log(batches[last]), math.log(batches[last + 1])
    return math.exp(start + share * (end - start))


def _drawn(batches: Sequence[int], contrasts: Sequence[Contrast]) -> list[float]:
    """The place again and again, every speed-up drawn from what is known of it."""
    parts = []
    for contrast in contrasts:
        if contrast.run is None:
            return []
        run = math.sqrt(contrast.run.variance / contrast.repeats)
        parts.append((contrast, run, math.sqrt(contrast.prompt_variance or 0.0)))
    rng, places = random.Random(SEED), []
    for _ in range(_DRAWS):
        values = [
            contrast.value + run * _t(rng, contrast) + prompt * rng.gauss(0, 1)
            for contrast, run, prompt in parts
        ]
        places.append(_under_from(batches, values))
    return places


def _t(rng: random.Random, contrast: Contrast) -> float:
    """A draw from Student's t."""
    assert contrast.run is not None
    df = contrast.run.df
    return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(df / 2, 2) / df)
