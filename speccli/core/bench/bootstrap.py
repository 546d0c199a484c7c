"""What chance does to a comparison: prompts that might have been others, runs that differ.

Prompts are resampled whole, with all their requests in all repeats and both arms, so what is easy
for both stays paired. A mean needs no drawing: the variance of its bootstrap is a sum of squares.
Runs of the same thing differ too, by more than their requests explain, and three to five of them
are too few to be resampled; their scatter enters through Student's t. docs/verdict.md has the
reasons, and how often the result is wrong.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from speccli.core.bench import student

DRAWS = 1000
SEED = 20240607
ALPHA = 0.025
"""On each side of an interval that is told: 95 %."""
LEAST_FOR_P99 = 100
"""Prompts under which a p99 is the maximum by another name."""


class Resamples:
    """The prompts of a dataset, drawn anew many times; the same draws for every arm and load."""

    def __init__(self, prompts: Sequence[str], draws: int = DRAWS, seed: int = SEED) -> None:
        """`prompts`: their ids, in any order."""
        self.place = {prompt: i for i, prompt in enumerate(sorted(set(prompts)))}
        rng, places = random.Random(seed), range(len(self.place))
        self.weights: list[list[int]] = []
        for _ in range(draws if places else 0):
            drawn = Counter(rng.choices(places, k=len(places)))
            self.weights.append([drawn[i] for i in places])

    def high_quantile(self, prompts: Sequence[str], values: Sequence[float], q: float) -> Tail:
        """A quantile over one half: of these requests, and in every draw of their prompts."""
        ordered = sorted(zip(values, prompts, strict=True), reverse=True)
        places = [self.place[prompt] for _, prompt in ordered]
        counts = Counter(places)
        per_prompt = [counts[i] for i in range(len(self.place))]
        even = len(set(per_prompt)) == 1
        # Only the largest few matter; where a draw leaves too few of them, more are looked at.
        first = math.ceil((1 - q) * len(ordered) * 3) + 5
        drawn = []
        for weights in self.weights:
            total = len(ordered) if even else sum(map(mul, weights, per_prompt))
            above = (1 - q) * total + 1e-9
            size = first
            while True:
                sums = list(accumulate(map(weights.__getitem__, places[:size])))
                if sums[-1] > above or size >= len(places):
                    break
                size *= 2
            at = min(bisect_right(sums, above), len(ordered) - 1)
            drawn.append(ordered[at][0])
        own = min(math.floor((1 - q) * len(ordered) + 1e-9), len(ordered) - 1)
        return Tail(ordered[own][0], drawn)


@dataclass(frozen=True, slots=True)
class Tail:
    """A quantile and what it was in every draw."""

    value: float
    drawn: Sequence[float]


def sums_by_prompt(
    prompts: Sequence[str], above: Sequence[float], below: Sequence[float]
) -> dict[str, tuple[float, float]]:
    """What each prompt adds to both sides of a ratio of sums."""
    sums: dict[str, tuple[float, float]] = {}
    for prompt, a, b in zip(prompts, above, below, strict=True):
        had = sums.get(prompt, (0.0, 0.0))
        sums[prompt] = had[0] + a, had[1] + b
    return sums


def log_ratio_variance(
    ours: Mapping[str, tuple[float, float]], theirs: Mapping[str, tuple[float, float]]
) -> float | None:
    """Variance of log(ratio of sums / the other's) over resampled prompts, to first order.

    What a bootstrap would come to: Σ (a/Σa − b/Σb − the other arm's)² over prompts. None where
    there are fewer than two.
    """
    ids = ours.keys() | theirs.keys()
    if len(ids) < 2 or not ours or not theirs:
        return None
    one, other = _influence(ours), _influence(theirs)
    squares = math.fsum((one.get(i, 0.0) - other.get(i, 0.0)) ** 2 for i in ids)
    return squares * len(ids) / (len(ids) - 1)


def _influence(sums: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    above = math.fsum(a for a, _ in sums.values())
    below = math.fsum(b for _, b in sums.values())
    if above <= 0 or below <= 0:
        return {}
    return {prompt: a / above - b / below for prompt, (a, b) in sums.items()}


@dataclass(frozen=True, slots=True)
class Scatter:
    """How runs of the same thing differ: the variance of one repeat's difference of arms."""

    variance: float
    df: float


def pooled(own: Sequence[tuple[float, int]], groups: Sequence[int]) -> Scatter | None:
    """Of all comparisons; `own`: each one's variance and repeats; `groups`: repeats of each load.

    Arms that share a baseline share its accidents, so each load counts its repeats once, however
    many arms it compares. None where nothing was repeated.
    """
    weight = sum(n - 1 for _, n in own if n > 1)
    df = sum(n - 1 for n in groups if n > 1)
    if weight < 1 or df < 1:
        return None
    return Scatter(sum(v * (n - 1) for v, n in own if n > 1) / weight, df)


@dataclass(frozen=True, slots=True)
class Contrast:
    """A difference of two arms, on whatever scale it is nearly normal."""

    value: float
    repeats: int
    run: Scatter | None
    """Between repeats; None where nothing in the bench was repeated."""
    prompt_variance: float | None
    """Between prompts; None where single requests are not known."""
    prompts: int

    def width(self, alpha: float) -> float | None:
        """Half of the interval that is missed on each side with probability `alpha`.

        Either part at its own t, added as squares: with few repeats a t at some average of both
        degrees of freedom would be too narrow where the repeats happen to agree.
        """
        if self.run is None:
            return None
        square = student.quantile(alpha, self.run.df) ** 2 * self.run.variance / self.repeats
        if self.prompt_variance is not None and self.prompts > 1:
            square += student.quantile(alpha, self.prompts - 1) ** 2 * self.prompt_variance
        return math.sqrt(square)


def widened(
    low: float, high: float, value: float, run: Scatter, repeats: int
) -> tuple[float, float]:
    """An interval over prompts, with the scatter between runs added to either side as squares."""
    width = student.quantile(ALPHA, run.df) * math.sqrt(run.variance / repeats)
    return (
        value - math.hypot(max(value - low, 0.0), width),
        value + math.hypot(max(high - value, 0.0), width),
    )


def percentile_interval(drawn: Sequence[float]) -> tuple[float, float]:
    """The middle 95 % of what was drawn."""
    ordered = sorted(drawn)
    last = len(ordered) - 1
    return ordered[math.floor(ALPHA * last)], ordered[math.ceil((1 - ALPHA) * last)]
