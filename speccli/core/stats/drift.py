"""A sequential test for a fall of acceptance, and one for a slide. Pure, incremental, serialisable.

The test is a likelihood-ratio test begun anew at every look (Shiryaev–Roberts), mixed over sizes of
fall: M ← exp(λz − λ²/2) · (M + 1), averaged over λ. While acceptance is no lower than expected
minus a margin, M minus the number of looks is a supermartingale, whatever the past looked like; so
a test that speaks at M ≥ A speaks at most once in A looks on average (Roberts 1966; Pollak 1987;
Shin, Ramdas and Rinaldo, "E-detectors", 2022). docs/drift.md holds it against others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from speccli.core.values import LEAST

SIZES = (0.25, 0.5, 1.0, 2.0)
"""Falls the test is tuned for, in standard deviations of a look."""
_CLIP = 4.0
"""No look speaks louder than so many standard deviations: one alone never decides."""
CLEAR = 20.0
"""Evidence of recovery at which an alarm ends: 20 to 1."""
_DAY_S = 86_400.0
_WANDER_UNSEEN = 0.01
"""Swing taken for granted where the baseline is too short to have seen a day's."""
_WANDER_LEAST = 0.004
"""Less swing than this is not believed, however quiet the days of the baseline were."""
_SWINGS = 3.0
"""Standard deviations of the slow swing that the margin covers: it lasts for hours, so looks in it
all err to one side, and no number of them may add up to an alarm."""
_MOST_FINER = 10.0
"""A look with more drafts than this times the baseline's largest is not believed to be finer."""


@dataclass(frozen=True, slots=True)
class Look:
    """What grew over one check interval of an engine or a fleet."""

    at: float
    """When it ends, Unix seconds."""
    seconds: float
    drafts: float
    draft_tokens: float
    accepted: float
    positions: tuple[float, ...] = ()
    """Accepted at each position; empty where not exported."""
    prompt_tokens: float = 0.0
    requests: float = 0.0
    """Requests that got their first token; 0 where not exported."""
    output_tokens: float = 0.0
    steps: float = 0.0
    served: float = 0.0
    """Requests times steps; 0 where not exported."""

    @property
    def rate(self) -> float:
        """Accepted / draft tokens; 0 without drafts."""
        return self.accepted / self.draft_tokens if self.draft_tokens >= LEAST else 0.0

    @property
    def prompt_mean(self) -> float | None:
        """Mean prompt, tokens; None where nobody tells."""
        known = self.requests >= LEAST and self.prompt_tokens >= LEAST
        return self.prompt_tokens / self.requests if known else None

    def __add__(self, other: Look) -> Look:
        """Both, one after the other or side by side (`seconds` adds up: set it by hand then)."""
        long = max(len(self.positions), len(other.positions))
        mine = self.positions + (0.0,) * (long - len(self.positions))
        theirs = other.positions + (0.0,) * (long - len(other.positions))
        sums = {
            f.name: getattr(self, f.name) + getattr(other, f.name)
            for f in fields(self)
            if f.name not in {"at", "positions"}
        }
        positions = tuple(a + b for a, b in zip(mine, theirs, strict=True))
        return Look(at=max(self.at, other.at), positions=positions, **sums)

    def to_json(self) -> list[Any]:
        """A flat list, in the order of the fields."""
        return [list(v) if isinstance(v, tuple) else v for v in map(self._get, _LOOK)]

    def _get(self, name: str) -> Any:
        return getattr(self, name)

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Look:
        """The look it was made from; ValueError or TypeError where it was made from none."""
        parts = dict(zip(_LOOK, value, strict=True))
        positions = tuple(_finite(x) for x in parts.pop("positions"))
        return cls(positions=positions, **{k: _finite(v) for k, v in parts.items()})


_LOOK = tuple(f.name for f in fields(Look))
NOTHING = Look(0.0, 0.0, 0.0, 0.0, 0.0)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


@dataclass(frozen=True, slots=True)
class Dispersion:
    """How much the acceptance rate of a look scatters while nothing is wrong."""

    per_draft: float = 0.16
    """Variance of one draft's own rate, were drafts independent."""
    clustering: float = 8.0
    """By how much drafts of one request resemble each other: variance over the independent."""
    wander: float = 0.015
    """Standard deviation of what does not average out with more drafts: the day's swing."""
    most_drafts: float = 0.0
    """Drafts in the largest look it was measured on; 0: not measured, all values assumed."""
    looks: int = 0
    span_s: float = 0.0

    def variance(self, drafts: float) -> float:
        """Variance of the rate of a look with so many drafts."""
        most = _MOST_FINER * self.most_drafts or drafts
        finer = max(1.0, min(drafts, most))
        return self.per_draft * self.clustering / finer + self.wander**2

    def margin(self, least: float) -> float:
        """A fall that is still in order: at least `least`, and as far as the swing takes it."""
        return max(least, _SWINGS * self.wander)


def per_draft_variance(positions: Sequence[float], rate: float) -> float:
    """Variance of one draft's rate: from its positions, else the most it can be."""
    k = len(positions)
    if k == 0:
        return max(1e-4, rate * (1 - rate))
    mean = sum(positions)
    square = sum((2 * i + 1) * p for i, p in enumerate(positions))
    return max(1e-4, (square - mean * mean) / (k * k))


def fit(looks: Sequence[tuple[float, float, float]], per_draft: float) -> Dispersion:
    """The scatter of healthy looks: (end, drafts, rate − expected rate), in order of time.

    Neighbours tell what averages out with drafts (successive differences do not see a slow
    swing); what the whole scatters beyond that is the swing. Both are upper bounds (80 %).
    """
    looks = [(at, n, r) for at, n, r in looks if n >= 1]
    if len(looks) < 4:
        return Dispersion(per_draft=per_draft)
    pairs = list(zip(looks, looks[1:], strict=False))
    noise = sum((b[2] - a[2]) ** 2 / (1 / a[1] + 1 / b[1]) for a, b in pairs) / len(pairs)
    noise *= _upper(2 * len(pairs) / 3)
    clustering = max(1.0, noise / per_draft)
    total = sum(n for _, n, _ in looks)
    mean = sum(n * r for _, n, r in looks) / total
    seen = sum((r - mean) ** 2 for _, _, r in looks) / (len(looks) - 1)
    expected = clustering * per_draft * sum(1 / n for _, n, _ in looks) / len(looks)
    span = looks[-1][0] - looks[0][0]
    least = _WANDER_LEAST if span >= 0.9 * _DAY_S else _WANDER_UNSEEN
    wander = max(least, math.sqrt(max(0.0, seen - expected)))
    most = max(n for _, n, _ in looks)
    return Dispersion(per_draft, clustering, wander, most, len(looks), span)


def _upper(df: float) -> float:
    """A variance's 80 % upper limit over its estimate (Wilson and Hilferty 1931)."""
    df = max(1.0, df)
    root = 1 - 2 / (9 * df) - 0.8416 * math.sqrt(2 / (9 * df))
    return 1 / max(0.05, root) ** 3


@dataclass(slots=True)
class Detector:
    """The test itself: looks in, an alarm out, and when it began."""

    evidence: list[float] = field(default_factory=lambda: [0.0] * len(SIZES))
    recovery: list[float] = field(default_factory=lambda: [0.0] * len(SIZES))
    alarm: bool = False
    run: float = 0.0
    """Sum of what speaks for a fall since it last was nothing: it dates the beginning."""
    began: float | None = None
    """When acceptance began to be low, Unix seconds; None while nothing speaks for it."""
    since: Look = NOTHING
    """What was counted from then on."""
    expected: float = 0.0
    """Accepted tokens that were expected from then on."""

    @property
    def strength(self) -> float:
        """The evidence that is held against the limit."""
        return sum(self.evidence) / len(SIZES)

    def take(self, look: Look, expected: float, spread: float, margin: float, limit: float) -> bool:
        """One look; returns whether the alarm is on.

        `expected`: its rate if all is well; `spread`: its standard deviation; `limit`: looks
        without a false alarm, on average.
        """
        z = (expected - margin - look.rate) / max(spread, 1e-6)
        z = max(-_CLIP, min(_CLIP, z))
        self.run = max(0.0, self.run + z)
        if self.run == 0.0 and not self.alarm:
            self.since, self.began, self.expected = NOTHING, None, 0.0
        else:
            self.began = look.at - look.seconds if self.began is None else self.began
            self.since = self.since + look
            self.expected += expected * look.draft_tokens
        if not self.alarm:
            self.evidence = _updated(self.evidence, z)
            self.alarm = self.strength >= max(1.0, limit)
        else:
            self.recovery = _updated(self.recovery, -z)
            if sum(self.recovery) / len(SIZES) >= CLEAR:
                self.clear()
        return self.alarm

    def clear(self) -> None:
        """Forget all evidence."""
        self.evidence, self.recovery = [0.0] * len(SIZES), [0.0] * len(SIZES)
        self.alarm, self.run, self.began = False, 0.0, None
        self.since, self.expected = NOTHING, 0.0

    def to_json(self) -> dict[str, Any]:
        """Its whole state."""
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**state, "since": self.since.to_json()}

    @classmethod
    def from_json(cls, value: Any) -> Detector:
        """The detector of a state; ValueError, TypeError or KeyError where it is none."""
        lists = [[_finite(x) for x in value[name]] for name in ("evidence", "recovery")]
        if any(len(each) != len(SIZES) for each in lists):
            raise ValueError("another number of sizes")
        return cls(
            lists[0],
            lists[1],
            bool(value["alarm"]),
            _finite(value["run"]),
            None if value["began"] is None else _finite(value["began"]),
            Look.from_json(value["since"]),
            _finite(value["expected"]),
        )


def _updated(evidence: Sequence[float], z: float) -> list[float]:
    return [
        min(1e12, math.exp(size * z - size * size / 2) * (old + 1))
        for old, size in zip(evidence, SIZES, strict=True)
    ]
