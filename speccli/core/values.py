"""What a measured number is: a value, stale, or unknown with a reason. Never 0 for unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NumberState = Literal["value", "stale", "unknown"]
QuantileState = Literal["value", "unresolved", "unknown"]

LEAST = 1e-9
"""A count or a rate under it is none: what is divided by it would be past all bounds."""


@dataclass(frozen=True, slots=True)
class Number:
    """One measured number."""

    value: float | None
    """The number in the unit its name gives; None when unknown."""
    state: NumberState
    """`value`, `stale` (measured, but too long ago) or `unknown`."""
    reason: str | None = None
    """Why it is stale or unknown, or what the reader should know of a value."""
    n: int | None = None
    """How many observations stand behind it; None where counting makes no sense."""

    @classmethod
    def known(cls, value: float, *, n: float | None = None, reason: str | None = None) -> Number:
        """A measured value."""
        return cls(value, "value", reason, None if n is None else round(n))

    @classmethod
    def unknown(cls, reason: str, *, n: float | None = None) -> Number:
        """No value, and why."""
        return cls(None, "unknown", reason, None if n is None else round(n))

    def as_stale(self, reason: str) -> Number:
        """The same number, known to be old."""
        return Number(self.value, "stale", reason, self.n) if self.state == "value" else self


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile read from histogram buckets: the bucket it lies in, never a point inside it."""

    low: float
    """Lower bound of the bucket, seconds; 0 inside the first bucket."""
    high: float | None
    """Upper bound of the bucket, seconds; None beyond the last finite bucket."""
    state: QuantileState
    """`value`; `unresolved` inside the first bucket or beyond the last finite one; `unknown`."""
    reason: str | None = None
    n: int | None = None
    """Observations in the histogram over the window."""

    @classmethod
    def unknown(cls, reason: str, *, n: float | None = None) -> Quantile:
        """No interval, and why."""
        return cls(0.0, None, "unknown", reason, None if n is None else round(n))


@dataclass(frozen=True, slots=True)
class Latency:
    """One latency of a window: three quantiles as intervals and the exact mean (sum / count)."""

    p50: Quantile
    p95: Quantile
    p99: Quantile
    mean: Number
