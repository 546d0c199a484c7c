"""Rows of two arms, paired: by load, dataset and repeat, their requests by prompt."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from speccli.core.bench.bootstrap import (
    LEAST_FOR_P99,
    Contrast,
    Resamples,
    Scatter,
    Tail,
    log_ratio_variance,
    percentile_interval,
    pooled,
    sums_by_prompt,
    widened,
)
from speccli.core.bench.results import Row, Statistic

Load = tuple[int | None, float | None]
"""Batch, or requests per second."""
Requests = Sequence[tuple[str, float, float]]
"""Of each request: its prompt, and both sides of a ratio of sums."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One arm and the baseline at one load on one dataset: the same repeats, in order."""

    arm: str
    dataset: str
    load: Load
    base: tuple[Row, ...]
    ours: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Measure:
    """Something of which arms have more or less."""

    of_row: Callable[[Row], float | None]
    of_requests: Callable[[Row], Requests]
    """The same as a ratio of sums over requests."""
    less_is_better: bool


@dataclass(frozen=True, slots=True)
class Tail99:
    """A p99 in both arms, and how far apart they are; seconds."""

    without: float | None
    with_: float | None
    delta: Statistic
    """With − without; under 0 is better."""


def tpot_of(row: Row) -> list[tuple[str, float]]:
    """Prompt and (e2e − TTFT) / (output tokens − 1) of each request with two tokens or more."""
    each = zip(
        row.samples.prompt,
        row.samples.e2e_s,
        row.samples.ttft_s,
        row.samples.output_tokens,
        strict=True,
    )
    return [(prompt, (e2e - ttft) / (n - 1)) for prompt, e2e, ttft, n in each if n > 1]


def ttft_of(row: Row) -> list[tuple[str, float]]:
    """Prompt and time to the first token of each request."""
    return list(zip(row.samples.prompt, row.samples.ttft_s, strict=True))


def e2e_of(row: Row) -> list[tuple[str, float]]:
    """Prompt and time to the last token of each request."""
    return list(zip(row.samples.prompt, row.samples.e2e_s, strict=True))


def _rate_of(row: Row) -> Requests:
    each = zip(row.samples.prompt, row.samples.output_tokens, row.samples.e2e_s, strict=True)
    return [(prompt, float(n), e2e) for prompt, n, e2e in each]


RATE = Measure(lambda row: row.output_tokens_per_s.value, _rate_of, less_is_better=False)
TPOT = Measure(
    lambda row: row.tpot_s.mean.value,
    lambda row: [(prompt, value, 1.0) for prompt, value in tpot_of(row)],
    less_is_better=True,
)
TTFT = Measure(
    lambda row: row.ttft_s.mean.value,
    lambda row: [(prompt, value, 1.0) for prompt, value in ttft_of(row)],
    less_is_better=True,
)


def pairs(rows: Sequence[Row], base: str, arms: Sequence[str]) -> tuple[list[Pair], list[Row]]:
    """What can be compared, and the rows that are in no pair: their repeat has no other half."""
    there: dict[tuple[str, Load], dict[str, dict[int, Row]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in rows:
        there[row.dataset, (row.batch, row.rate)][row.arm][row.repeat] = row
    found = []
    for arm in arms:
        for (dataset, load), by_arm in there.items():
            ours, theirs = by_arm.get(arm, {}), by_arm.get(base, {})
            both = sorted(ours.keys() & theirs.keys())
            if both:
                found.append(
                    Pair(
                        arm,
                        dataset,
                        load,
                        tuple(theirs[r] for r in both),
                        tuple(ours[r] for r in both),
                    )
                )
    paired = {id(row) for pair in found for row in (*pair.base, *pair.ours)}
    alone = [
        row
        for by_arm in there.values()
        for arm, repeats in by_arm.items()
        if arm in arms or (arm == base and by_arm.keys() & set(arms))
        for row in repeats.values()
        if id(row) not in paired
    ]
    return found, alone


def contrasts(found: Sequence[Pair], measure: Measure) -> list[Contrast | None]:
    """The log of each pair's advantage; None where either side's number is unknown."""
    differences = [_differences(pair, measure.of_row, measure.less_is_better) for pair in found]
    scatters = _scatters(found, differences)
    made: list[Contrast | None] = []
    for pair, own, scatter in zip(found, differences, scatters, strict=True):
        if not own:
            made.append(None)
            continue
        theirs, ours = (_sums(rows, measure) for rows in (pair.base, pair.ours))
        made.append(
            Contrast(
                fmean(own),
                len(own),
                scatter,
                log_ratio_variance(ours, theirs),
                len(ours.keys() | theirs.keys()),
            )
        )
    return made


def _sums(rows: Sequence[Row], measure: Measure) -> dict[str, tuple[float, float]]:
    requests = [each for row in rows for each in measure.of_requests(row)]
    return sums_by_prompt(*(([each[i] for each in requests]) for i in range(3)))  # type: ignore[arg-type]


def _differences(
    pair: Pair, of_row: Callable[[Row], float | None], less_is_better: bool
) -> list[float]:
    """Of each repeat, the log of ours / theirs; of theirs / ours where less is better."""
    own = []
    for theirs, ours in zip(map(of_row, pair.base), map(of_row, pair.ours), strict=True):
        if theirs and ours and theirs > 0 and ours > 0:
            difference = math.log(ours / theirs)
            own.append(-difference if less_is_better else difference)
    return own


def _scatters(
    found: Sequence[Pair], differences: Sequence[Sequence[float]]
) -> list[Scatter | None]:
    """Each one's scatter between repeats: its own, but not less than the whole bench's."""
    own = [(variance(each) if len(each) > 1 else 0.0, len(each)) for each in differences]
    groups: dict[tuple[str, Load], int] = {}
    for pair, each in zip(found, differences, strict=True):
        place = pair.dataset, pair.load
        groups[place] = max(groups.get(place, 0), len(each))
    whole = pooled(own, list(groups.values()))
    if whole is None:
        return [None] * len(found)
    return [Scatter(max(variance_, whole.variance), whole.df) for variance_, _ in own]


def resamples(found: Sequence[Pair]) -> dict[str, Resamples]:
    """Of each dataset's prompts."""
    prompts: dict[str, list[str]] = defaultdict(list)
    for pair in found:
        for row in (*pair.base, *pair.ours):
            prompts[pair.dataset] += row.samples.prompt
    return {dataset: Resamples(ids) for dataset, ids in prompts.items()}


class Tails:
    """The p99 of something, in every pair."""

    def __init__(
        self,
        found: Sequence[Pair],
        of: Callable[[Row], list[tuple[str, float]]],
        drawn: Mapping[str, Resamples],
    ) -> None:
        """`of`: prompt and value of each request of a row; `drawn`: by dataset."""
        self._of = of
        self._found = found
        self._resamples = drawn
        self._seen: dict[tuple[int, ...], Tail | None] = {}

    def all(self) -> list[Tail99]:
        """One a pair."""
        differences = [_differences(pair, self._own, less_is_better=False) for pair in self._found]
        scatters = _scatters(self._found, differences)
        return [
            self._one(pair, scatter) for pair, scatter in zip(self._found, scatters, strict=True)
        ]

    def _own(self, row: Row) -> float | None:
        values = sorted(value for _, value in self._of(row))
        return values[min(math.floor(0.99 * len(values)), len(values) - 1)] if values else None

    def _one(self, pair: Pair, scatter: Scatter | None) -> Tail99:
        theirs, ours = (self._tail(pair.dataset, rows) for rows in (pair.base, pair.ours))
        if theirs is None or ours is None:
            least = min(len(self._prompts(rows)) for rows in (pair.base, pair.ours))
            reason = (
                f"{least} prompts: a p99 needs {LEAST_FOR_P99} that differ"
                if least
                else "single requests are not known"
            )
            return Tail99(None, None, Statistic.unknown(reason, n=least))
        value, n = ours.value - theirs.value, len(pair.base)
        if scatter is None:
            return Tail99(theirs.value, ours.value, Statistic(value, None, None, n))
        scale = ours.value * theirs.value  # of a log's variance, beside a difference's
        low, high = percentile_interval(
            [a - b for a, b in zip(ours.drawn, theirs.drawn, strict=True)]
        )
        run = Scatter(scatter.variance * scale, scatter.df)
        low, high = widened(low, high, value, run, n)
        return Tail99(theirs.value, ours.value, Statistic(value, low, high, n))

    def _prompts(self, rows: Sequence[Row]) -> set[str]:
        """A prompt asked again in another repeat tells little more of the tail."""
        return {prompt for row in rows for prompt, _ in self._of(row)}

    def _tail(self, dataset: str, rows: Sequence[Row]) -> Tail | None:
        key = tuple(id(row) for row in rows)
        if key not in self._seen:
            requests = [each for row in rows for each in self._of(row)]
            enough = len(self._prompts(rows)) >= LEAST_FOR_P99
            self._seen[key] = (
                self._resamples[dataset].high_quantile(
                    [prompt for prompt, _ in requests], [value for _, value in requests], 0.99
                )
                if enough
                else None
            )
        return self._seen[key]
