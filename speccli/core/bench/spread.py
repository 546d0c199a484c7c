"""How a latency is spread over requests: quantiles and mean, each with a 95 % bootstrap interval.

No random numbers: the bootstrap of an order statistic is known exactly. Drawing n of n with
replacement, the k-th smallest is at most the j-th smallest of the sample when at least k draws
fall on the first j, and their number is binomial (n, j/n). The mean's interval is the
bootstrap-t's limit, mean ± t · s/√n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean, stdev

from speccli.core.bench import student
from speccli.core.bench.results import Spread, Statistic

_LEAST = {0.5: 1, 0.95: 20, 0.99: 100}
"""Observations from which on a quantile can be told from the largest one."""
_EXACT = 2000
"""Observations up to which binomial sums are summed; beyond, the normal distribution does."""


def spread(
    values: Sequence[float], *, independent: bool = True, prompts: Sequence[str] | None = None
) -> Spread:
    """The spread of `values`, seconds.

    Args:
        values: One observation each.
        independent: Whether an interval can be formed of them; chunks of one answer are not.
        prompts: Of each observation; None: all differ. The same prompt again tells little more of
            a tail, so quantiles need as many that differ.
    """
    if not values:
        return Spread.unknown("no request was answered in full")
    ordered = sorted(values)
    p50, p95, p99 = (quantile(ordered, q, interval=independent) for q in (0.5, 0.95, 0.99))
    if prompts is not None:
        differ = len(set(prompts))
        p95, p99 = (_if_enough(each, q, differ) for each, q in ((p95, 0.95), (p99, 0.99)))
    return Spread(p50, p95, p99, mean(ordered, interval=independent))


def _if_enough(told: Statistic, q: float, differ: int) -> Statistic:
    if told.value is None or differ >= _LEAST[q]:
        return told
    why = f"{differ} prompts: a p{100 * q:g} needs {_LEAST[q]} that differ"
    return Statistic.unknown(why, n=told.n)


def quantile(ordered: Sequence[float], q: float, *, interval: bool = True) -> Statistic:
    """The q-quantile of sorted values, interpolated between ranks as numpy does."""
    n, least = len(ordered), _LEAST.get(q, math.ceil(1 / (1 - q)))
    if n < least:
        return Statistic.unknown(f"{n} observations: a p{100 * q:g} needs {least}", n=n)
    place = q * (n - 1)
    below = math.floor(place)
    above = min(below + 1, n - 1)
    value = ordered[below] + (place - below) * (ordered[above] - ordered[below])
    if not interval or n < 2:
        return Statistic(value, None, None, n)
    low, high = ranks(n, q)
    return Statistic(value, min(ordered[low], value), max(ordered[high], value), n)


def ranks(n: int, q: float) -> tuple[int, int]:
    """Which order statistics (from 0) bound the middle 95 % of the bootstrapped q-quantile."""
    k = max(1, math.ceil(q * n))
    low = _first(n, lambda j: _at_least(n, j / n, k) >= 0.025)
    high = _first(n, lambda j: _at_least(n, j / n, k) >= 0.975)
    return low - 1, high - 1


def _first(n: int, true_from: Callable[[int], bool]) -> int:
    """The smallest of 1..n for which a monotone question is answered by yes."""
    low, high = 1, n
    while low < high:
        middle = (low + high) // 2
        if true_from(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _at_least(n: int, p: float, k: int) -> float:
    """P(binomial (n, p) ≥ k)."""
    if p >= 1:
        return 1.0
    if n > _EXACT:
        return 1 - NormalDist(n * p, math.sqrt(n * p * (1 - p))).cdf(k - 0.5)
    log_p, log_q, all_ = math.log(p), math.log1p(-p), math.lgamma(n + 1)
    return math.fsum(
        math.exp(all_ - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * log_p + (n - i) * log_q)
        for i in range(k, n + 1)
    )


def mean(values: Sequence[float], *, interval: bool = True) -> Statistic:
    """The mean; its interval needs two observations."""
    n, value = len(values), fmean(values)
    if not interval or n < 2:
        return Statistic(value, None, None, n)
    half = student.quantile(0.025, n - 1) * stdev(values) / math.sqrt(n)
    return Statistic(value, value - half, value + half, n)
