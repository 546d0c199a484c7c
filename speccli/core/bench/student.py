"""Student's t, which the standard library lacks: tail probability and quantile."""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300


def tail(t: float, df: float) -> float:
    """P(T > t) with `df` degrees of freedom (any positive number), to about 1e-10."""
    half = 0.5 * _incomplete_beta(df / 2, 0.5, df / (df + t * t))
    return half if t >= 0 else 1 - half


@lru_cache(maxsize=4096)
def quantile(alpha: float, df: float) -> float:
    """The t that is exceeded with probability `alpha`, 0 < alpha <= 0.5."""
    low, high = 0.0, 1.0
    while tail(high, df) > alpha:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, df) > alpha else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised one; a continued fraction, on the side where it converges."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Lentz's evaluation of the continued fraction (Abramowitz and Stegun 26.5.8)."""
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-13:
            break
    return value


def _away(value: float) -> float:
    """Not zero, since it is divided by."""
    return value if abs(value) > _TINY else _TINY
