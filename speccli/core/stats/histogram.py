"""What buckets can tell of a quantile: the bucket it lies in, and nothing finer.

Interpolating inside a bucket invents precision: a thousand waits of 20 ms read as a p99 of 297 ms
on vLLM's request-latency ladder (vLLM PR #48175), and 60 s is all that a ladder ending there can
ever say (vLLM #15167).
"""

from __future__ import annotations

import math
import operator

from speccli.core.stats.increase import Buckets
from speccli.core.values import LEAST, Latency, Number, Quantile

_MIN_N = {0.5: 2, 0.95: 20, 0.99: 100}


def quantile(buckets: Buckets, q: float, *, min_n: int | None = None) -> Quantile:
    """The bucket that holds the q-quantile (0 < q < 1).

    `min_n`: observations under which nothing is said (default 1 / (1 - q), the number at which the
    quantile is no longer simply the largest observation).
    """
    n = buckets.n
    need = _MIN_N.get(q, math.ceil(round(1 / (1 - q), 6))) if min_n is None else min_n
    if n < LEAST:
        return Quantile.unknown("nothing observed in the window", n=0)
    if n < need:
        return Quantile.unknown(f"{n:.0f} observed, p{q * 100:g} needs {need}", n=n)
    if any(map(operator.lt, buckets.counts[1:], buckets.counts)):
        return Quantile.unknown("the buckets contradict each other", n=n)
    rank = q * n
    low, below = 0.0, 0.0
    for bound, count in zip(buckets.bounds, buckets.counts, strict=True):
        if count >= rank - 1e-9:
            if math.isinf(bound):
                return Quantile(low, None, "unresolved", "beyond the last bucket", round(n))
            if low == 0.0 and below <= 0.0 and bound == buckets.bounds[0]:
                return Quantile(0.0, bound, "unresolved", "inside the first bucket", round(n))
            return Quantile(low, bound, "value", None, round(n))
        low, below = bound, count
    return Quantile.unknown("the buckets contradict each other", n=n)


def mean(buckets: Buckets) -> Number:
    """Sum / count: exact whatever the buckets, seconds."""
    if buckets.n < LEAST:
        return Number.unknown("nothing observed in the window", n=0)
    if buckets.sum is None or buckets.sum < 0:
        return Number.unknown("the histogram has no usable sum", n=buckets.n)
    return Number.known(buckets.sum / buckets.n, n=buckets.n)


def latency(buckets: Buckets | None, why_absent: str) -> Latency:
    """p50, p95, p99 and mean of one histogram."""
    if buckets is None:
        none = Quantile.unknown(why_absent)
        return Latency(none, none, none, Number.unknown(why_absent))
    return Latency(
        quantile(buckets, 0.5), quantile(buckets, 0.95), quantile(buckets, 0.99), mean(buckets)
    )
