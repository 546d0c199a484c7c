"""Does a sample come from a distribution: Pearson's chi-square, without SciPy."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kernels_check.reference.sampling import Floats

SMALLEST_EXPECTED = 10.0
"""Cells with less are pooled: the approximation needs a few in each."""


def chi_square(counts: npt.ArrayLike, expected: npt.ArrayLike) -> tuple[float, int, float]:
    """The statistic, its degrees of freedom, and the chance of one as large (the p-value).

    Cells that are expected never must be empty: one that is not makes the p-value zero.
    """
    seen = np.asarray(counts, dtype=np.float64)
    wanted = np.asarray(expected, dtype=np.float64)
    if np.any((wanted == 0) & (seen > 0)):
        return math.inf, 0, 0.0
    small = wanted < SMALLEST_EXPECTED
    cells_seen, cells_wanted = seen[~small], wanted[~small]
    if small.any() and wanted[small].sum() > 0:
        cells_seen = np.append(cells_seen, seen[small].sum())
        cells_wanted = np.append(cells_wanted, wanted[small].sum())
    freedom = len(cells_wanted) - 1
    if freedom < 1:
        return 0.0, 0, 1.0
    statistic = float(np.sum((cells_seen - cells_wanted) ** 2 / cells_wanted))
    return statistic, freedom, upper_gamma(freedom / 2, statistic / 2)


def upper_gamma(a: float, x: float) -> float:
    """The regularized upper incomplete gamma function Q(a, x), by series or continued fraction."""
    if x <= 0:
        return 1.0
    scale = math.exp(-x + a * math.log(x) - math.lgamma(a))
    if x < a + 1:
        term = total = 1.0 / a
        n = a
        while abs(term) > abs(total) * 1e-15:
            n += 1
            term *= x / n
            total += term
        return max(0.0, 1.0 - total * scale)
    return scale * _fraction(a, x)


def _fraction(a: float, x: float) -> float:
    """Lentz's method for the continued fraction of Q(a, x)."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = 1 / tiny, 1 / b
    h = d
    for i in range(1, 10_000):
        an = -i * (i - a)
        b += 2
        d = an * d + b
        d = 1 / (d if abs(d) > tiny else tiny)
        c = b + an / c
        c = c if abs(c) > tiny else tiny
        step = d * c
        h *= step
        if abs(step - 1) < 1e-15:
            break
    return h


def pooled(distribution: Floats, cells: int) -> npt.NDArray[np.int64]:
    """A cell for each token, so that a large vocabulary has `cells` of like mass."""
    upto = np.cumsum(distribution) / distribution.sum()
    return np.asarray(np.minimum((upto * cells).astype(np.int64), cells - 1))
