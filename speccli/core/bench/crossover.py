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
    """Where the speed-up falls under 1, going up from the smallest batch."""

    least: int
    most: int
    """The smallest and the largest batch measured."""
    place: float
    """A batch between them, or BELOW, or BEYOND."""
    interval: tuple[float, float] | None
    """95 %; ends may be BELOW or BEYOND. None where runs were not repeated."""
    between: tuple[int, int] | None = None
    """The measured batches on either side of the place."""

    @property
    def words(self) -> str:
        """`91 [84, 99]`, `none up to 128`, `slower from 1 on`, with the interval where it adds."""
        told = self._word(self.place)
        if self.interval is None:
            return f"{told} (measured once: no interval)"
        low, high = (self._word(end) for end in self.interval)
        return told if low == high == told else f"{told} [{low}, {high}]"

    def _word(self, place: float) -> str:
        if place == BELOW:
            return f"slower from {self.least} on"
        return f"none up to {self.most}" if place == BEYOND else f"{place:.0f}"

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
    place = _first_under(batches, [contrast.value for _, contrast in ordered])
    drawn = _drawn(batches, [contrast for _, contrast in ordered])
    between = None
    if place not in {BELOW, BEYOND}:
        over = max(i for i, batch in enumerate(batches) if batch < place)
        between = batches[over], batches[over + 1]
    return Crossover(
        batches[0], batches[-1], place, percentile_interval(drawn) if drawn else None, between
    )


def _first_under(batches: Sequence[int], values: Sequence[float]) -> float:
    if values[0] < 0:
        return BELOW
    for i in range(1, len(values)):
        if values[i] < 0:
            share = values[i - 1] / (values[i - 1] - values[i])
            start, end = math.log(batches[i - 1]), math.log(batches[i])
            return math.exp(start + share * (end - start))
    return BEYOND


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
        places.append(_first_under(batches, values))
    return places


def _t(rng: random.Random, contrast: Contrast) -> float:
    """A draw from Student's t."""
    assert contrast.run is not None
    df = contrast.run.df
    return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(df / 2, 2) / df)
