"""Whether a canary may have the traffic: counters of it and of its siblings over the same windows.

Pure. A canary passes when it is shown to be no worse: the lower bound of its acceptance reaches
what it must, the upper bound of its time per output token against its siblings' stays within the
tolerance. It is refused when it is shown to be worse. What is neither is looked at again with
twice the traffic, and then again; after that it is inconclusive. Windows are the units of both
intervals, so that requests of one window may be alike.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from speccli.core.bench.student import quantile

Verdict = Literal["passed", "refused", "inconclusive"]

LOOKS = 3
"""At once, twice and four times the sample that is asked for."""
TOLERANCE = 0.05
"""Share by which its time per output token may be longer than its siblings'."""
BASELINE_SHARE = 0.9
"""Of a baseline's acceptance that must be reached: workloads are never quite the same."""
LEAST_WINDOWS = 8
LEAST_TOKENS = 50.0
"""Output tokens of either side, under which a window compares nothing."""
LEAST_REQUESTS = 20.0
_PASS = 0.004 / LOOKS
"""Chance of a canary that is worse by the whole margin to pass at one look. Few windows are less
regular than t supposes: in simulation it comes to no more than 1 % over all looks."""
_REFUSE = 0.05 / (3 * LOOKS)
"""Chance of a canary that is as it should be to be refused by one of three tests at one look."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Growth of one side's counters over one window."""

    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted: float = 0.0
    decode_s: float = 0.0
    """Seconds that requests spent decoding, all together."""
    tokens: float = 0.0
    """Output tokens in that time."""
    requests: float = 0.0
    """That ended, well or not."""
    failures: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(operator.add, _NUMBERS(self), _NUMBERS(other)))


_NUMBERS = operator.attrgetter(*(each.name for each in fields(Counts)))


@dataclass(frozen=True, slots=True)
class Window:
    """The same time on both sides."""

    canary: Counts
    siblings: Counts


@dataclass(frozen=True, slots=True)
class Sample:
    """What a canary must show, and on how much."""

    drafts: int = 2000
    floor: float = 0.4
    """Acceptance rate (accepted / draft tokens) under which it is bad."""
    baseline: float | None = None
    """Its own, where one was recorded."""
    drafting: bool = True
    """Whether it has a draft at all."""

    @property
    def least(self) -> float:
        """The acceptance rate that it must reach."""
        if self.baseline is None:
            return self.floor
        return max(self.floor, BASELINE_SHARE * self.baseline)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the windows say."""

    verdict: Verdict
    words: str
    drafts: float
    windows: int
    acceptance: float | None
    slower: float | None
    """Its time per output token over its siblings', less one: -0.3 is 30 % faster."""
    failures: float
    requests: float


@dataclass(frozen=True, slots=True)
class _Said:
    """What one test says."""

    verdict: Verdict
    words: str
    value: float | None = None


class Trial:
    """A canary that is tried, window by window."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.windows: list[Window] = []
        self._looks = 0

    def add(self, window: Window) -> Comparison | None:
        """One more; what it comes to, None while more are wanted."""
        self.windows.append(window)
        if lacking(self.windows, self.sample, self._looks) is not None:
            return None
        found = compare(self.windows, self.sample)
        self._looks += 1
        return None if found.verdict == "inconclusive" and self._looks < LOOKS else found

    @property
    def lacks(self) -> str | None:
        """What is missing for the next look; None: nothing."""
        return lacking(self.windows, self.sample, self._looks)


def lacking(windows: Sequence[Window], sample: Sample, looks: int = 0) -> str | None:
    """What is missing for a look; None: nothing."""
    canary, siblings = _sums(windows)
    paired = len(_paired(windows))
    wanted = sample.drafts * 2**looks
    if sample.drafting and canary.drafts < wanted:
        return f"{canary.drafts:,.0f} of {wanted:,} drafts"
    if paired < LEAST_WINDOWS * 2**looks:
        return f"{paired} of {LEAST_WINDOWS * 2**looks} windows in which both sides answered"
    for side, name in ((canary, "the canary"), (siblings, "its siblings")):
        if side.requests < LEAST_REQUESTS:
            return f"{side.requests:.0f} of {LEAST_REQUESTS:.0f} requests of {name}"
    return None


def compare(windows: Sequence[Window], sample: Sample) -> Comparison:
    """Judge what there is. Too little is inconclusive, with what is missing."""
    canary, siblings = _sums(windows)
    paired = _paired(windows)

    def told(verdict: Verdict, words: str, *said: _Said) -> Comparison:
        values = [each.value for each in said] or [None, None]
        return Comparison(
            verdict,
            words,
            canary.drafts,
            len(paired),
            values[0],
            values[1],
            canary.failures,
            canary.requests,
        )

    if missing := lacking(windows, sample):
        return told("inconclusive", f"too little traffic to judge: {missing}")
    said = (_acceptance(windows, sample), _speed(paired), _failures(canary, siblings))
    for verdict in ("refused", "inconclusive"):
        words = [each.words for each in said if each.verdict == verdict]
        if words:
            return told(verdict, "; ".join(words), *said)
    return told("passed", "; ".join(each.words for each in said), *said)


def _sums(windows: Sequence[Window]) -> tuple[Counts, Counts]:
    return _sum(each.canary for each in windows), _sum(each.siblings for each in windows)


def _sum(sides: Iterable[Counts]) -> Counts:
    columns = zip(*map(_NUMBERS, sides), strict=True)
    return Counts(*map(sum, columns))


def _paired(windows: Sequence[Window]) -> list[Window]:
    """Windows in which both sides decoded enough to be compared."""
    return [
        each
        for each in windows
        if min(each.canary.tokens, each.siblings.tokens) >= LEAST_TOKENS
        and min(each.canary.decode_s, each.siblings.decode_s) > 0
    ]


def _acceptance(windows: Sequence[Window], sample: Sample) -> _Said:
    """Accepted / draft tokens: a ratio of sums, with the scatter of its windows."""
    if not sample.drafting:
        return _Said("passed", "it has no draft")
    pairs = [(w.canary.accepted, w.canary.draft_tokens) for w in windows]
    pairs = [pair for pair in pairs if pair[1] > 0]
    drafted = sum(d for _, d in pairs)
    rate = sum(a for a, _ in pairs) / drafted
    n = len(pairs)
    if n < LEAST_WINDOWS:
        return _Said("inconclusive", f"it drafted in {n} windows only", rate)
    spread = sum((a - rate * d) ** 2 for a, d in pairs)
    # Never under what independent tokens would have: a few windows may agree by chance.
    error = max(
        math.sqrt(spread * n / (n - 1)) / drafted, math.sqrt(max(rate * (1 - rate), 0.0) / drafted)
    )
    least = sample.least
    words = f"acceptance {rate:.3f}, and {least:.3f} is wanted"
    if rate + quantile(_REFUSE, n - 1) * error < least:
        return _Said("refused", words, rate)
    if rate - quantile(_PASS, n - 1) * error >= least:
        return _Said("passed", words, rate)
    return _Said("inconclusive", f"{words}: too near to tell", rate)


def _speed(paired: Sequence[Window]) -> _Said:
    """Seconds per output token, the canary's over its siblings' in the same window."""
    ratios = [
        math.log((w.canary.decode_s / w.canary.tokens) / (w.siblings.decode_s / w.siblings.tokens))
        for w in paired
    ]
    n = len(ratios)
    mean = sum(ratios) / n
    error = math.sqrt(sum((each - mean) ** 2 for each in ratios) / (n - 1) / n)
    slower = math.exp(mean) - 1
    words = f"{abs(slower):.1%} {'slower' if slower > 0 else 'faster'} per token than its siblings"
    if mean - quantile(_REFUSE, n - 1) * error > 0 and slower > TOLERANCE / 2:
        return _Said("refused", words, slower)
    if mean + quantile(_PASS, n - 1) * error < math.log1p(TOLERANCE):
        return _Said("passed", words, slower)
    return _Said("inconclusive", f"{words}: too near to tell", slower)


def _failures(canary: Counts, siblings: Counts) -> _Said:
    """Failed requests: as many of all that failed are the canary's as its share of requests.

    Given the failures of both sides, the canary's are binomial where they fail alike.
    """
    total, mine = round(canary.failures + siblings.failures), round(canary.failures)
    share = canary.requests / (canary.requests + siblings.requests)
    words = f"{mine} of its {canary.requests:.0f} requests failed"
    if mine and _at_least(mine, total, share) < _REFUSE:
        others = f"{siblings.failures:.0f} of {siblings.requests:.0f} of its siblings'"
        return _Said("refused", f"{words}, and {others}")
    return _Said("passed", words)


def _at_least(k: int, n: int, p: float) -> float:
    """P(X >= k), X binomial."""
    if p <= 0.0 or p >= 1.0:
        return 1.0 if p >= 1.0 or k == 0 else 0.0
    logs = (
        math.lgamma(n + 1)
        - math.lgamma(i + 1)
        - math.lgamma(n - i + 1)
        + i * math.log(p)
        + (n - i) * math.log1p(-p)
        for i in range(k, n + 1)
    )
    return min(1.0, sum(map(math.exp, logs)))
