"""How drift tests do on streams that behave like traffic, side by side, on the same streams.

`benchmarks/drift.py` writes the tables of docs/drift.md between their markers. Reproducible by its
seed; about ten minutes on one core. `--quick` is for looking, and writes nothing.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from speccli.core.stats.drift import SIZES, Detector, Dispersion, Look, fit, per_draft_variance
from speccli.core.stats.mix import Mix, PromptBin, bin_edges, expected_rate

DOC = Path(__file__).parents[1] / "docs" / "drift.md"
LOOK_S = 300.0
DAY = 288
"""Looks of five minutes."""
MONTH = 30 * DAY
LIMIT = 8640.0
POSITIONS = (0.73, 0.52, 0.35)
K = len(POSITIONS)
RATE = sum(POSITIONS) / K
PER_DRAFT = per_draft_variance(POSITIONS, RATE)
DRAFTS_A_REQUEST = 100.0
BETWEEN_REQUESTS = 0.08
"""Standard deviation of a request's own acceptance rate about what its traffic has."""
SWING = 0.25
"""The mean prompt swings by this over the day, in natural logarithms, up and down."""
BY_PROMPT = -0.06
"""Acceptance lost per doubling of the prompt."""
SLOW = 0.004
"""Standard deviation of a slow wander (hours) that no counter explains."""
ODD = 0.10
"""What an odd look loses: half of its requests are a batch job's, which accept 20 points less."""


@dataclass(frozen=True)
class Traffic:
    """A stream's looks, endlessly; the fall begins at a look."""

    drafts_a_minute: float
    fall: float = 0.0
    fall_at: int = 0
    start: int = 0
    """Look of the day at which it begins."""
    odd_a_day: float = 0.0
    """Odd looks a day, each alone, on average."""

    def looks(self, rng: random.Random) -> Iterator[Look]:
        """Look after look, without end."""
        slow, i = 0.0, 0
        while True:
            day = 2 * math.pi * (i + self.start) / DAY
            slow = 0.98 * slow + rng.gauss(0.0, SLOW * math.sqrt(1 - 0.98**2))
            load = math.exp(0.7 * math.sin(day) - 0.2 + rng.gauss(0.0, 0.15))
            requests = max(1.0, self.drafts_a_minute * 5 * load / DRAFTS_A_REQUEST)
            requests = max(1, round(rng.gauss(requests, math.sqrt(requests))))
            log = math.log(512) + SWING * math.sin(day + 1.0)
            shift = BY_PROMPT * (log - math.log(512)) / math.log(2)
            rate = RATE + shift + slow - (self.fall if self.fall and i >= self.fall_at else 0.0)
            drafts = requests * DRAFTS_A_REQUEST
            seen = rng.gauss(rate, BETWEEN_REQUESTS / math.sqrt(requests))
            seen = rng.gauss(seen, math.sqrt(PER_DRAFT / drafts))
            if self.odd_a_day and rng.random() < self.odd_a_day / DAY:
                seen -= ODD
            accepted = min(1.0, max(0.0, seen)) * drafts * K
            prompts = requests * math.exp(log) * math.exp(rng.gauss(0.0, 0.6 / math.sqrt(requests)))
            at = (i + 1) * LOOK_S
            yield Look(at, LOOK_S, drafts, drafts * K, accepted, (), prompts, float(requests))
            i += 1


@dataclass(frozen=True)
class Learned:
    """What a baseline of two days says."""

    rate: float
    bins: tuple[PromptBin, ...]
    scatter: Dispersion
    """About what the mix explains."""
    whole: Dispersion
    """About the rate, whatever the mix."""
    worst: float
    """How far the worst look fell short of what the mix explains, in standard deviations."""


def learn(looks: Sequence[Look]) -> Learned:
    """What they teach."""
    mix, seen = Mix(), []
    groups: dict[tuple[float, float], list[tuple[float, Look]]] = {}
    for look in looks:
        prompt = mix.take(look) or 1.0
        seen.append((prompt, look))
        groups.setdefault(bin_edges(prompt), []).append((prompt, look))
    bins = []
    for (low, high), members in sorted(groups.items()):
        drafts = sum(look.drafts for _, look in members)
        prompt = sum(p * look.drafts for p, look in members) / drafts
        rate = sum(look.accepted for _, look in members) / (K * drafts)
        bins.append(PromptBin(low, high, prompt, rate, drafts, len(members)))
    rate = sum(look.accepted for look in looks) / sum(look.draft_tokens for look in looks)
    left = [
        (look.at, look.drafts, look.rate - (expected_rate(bins, p) or rate)) for p, look in seen
    ]
    flat = [(look.at, look.drafts, look.rate - rate) for look in looks]
    scatter = fit(left, PER_DRAFT)
    worst = max(-r / math.sqrt(scatter.variance(n)) for _, n, r in left)
    return Learned(rate, tuple(bins), scatter, fit(flat, PER_DRAFT), worst)


class Test(Protocol):
    """Looks in, whether it alarms out."""

    def take(self, look: Look) -> bool:
        """One look."""


class Ours:
    """The test of speccli.core.stats.drift beside the mix, as the judge runs it."""

    def __init__(self, learned: Learned) -> None:
        self.learned, self.mix, self.detector = learned, Mix(), Detector()

    def take(self, look: Look) -> bool:
        """One look."""
        learned = self.learned
        expected = expected_rate(learned.bins, self.mix.take(look))
        if expected is None:
            return self.detector.alarm
        spread = math.sqrt(learned.scatter.variance(look.drafts))
        return self.detector.take(look, expected, spread, learned.scatter.margin(0.01), LIMIT)


class Blind(Ours):
    """The same, without looking at the mix."""

    def take(self, look: Look) -> bool:
        """One look."""
        scatter = self.learned.whole
        spread = math.sqrt(scatter.variance(look.drafts))
        return self.detector.take(look, self.learned.rate, spread, scatter.margin(0.01), LIMIT)


class OneLook(Ours):
    """The same, and one look decides where the evidence is overwhelming.

    It does where the likelihood ratio of that look alone passes the limit and it falls short by
    twice as much as any look of the baseline did.
    """

    def take(self, look: Look) -> bool:
        """One look."""
        learned = self.learned
        expected = expected_rate(learned.bins, self.mix.take(look))
        if expected is None:
            return self.detector.alarm
        spread = math.sqrt(learned.scatter.variance(look.drafts))
        margin = learned.scatter.margin(0.01)
        was = self.detector.alarm
        now = self.detector.take(look, expected, spread, margin, LIMIT)
        short = (expected - look.rate) / spread
        z = short - margin / spread
        alone = sum(math.exp(min(50.0, s * z - s * s / 2)) for s in SIZES) / len(SIZES)
        if not was and short > 2 * learned.worst and alone >= LIMIT:
            self.detector.alarm = now = True
        return now


@dataclass
class Level:
    """One look under a level."""

    level: float

    def take(self, look: Look) -> bool:
        """One look."""
        return look.rate < self.level


@dataclass
class Score:
    """One look so many standard errors under the baseline, drafts taken as independent."""

    rate: float
    errors: float

    def take(self, look: Look) -> bool:
        """One look."""
        binomial = self.rate * (1 - self.rate) / look.draft_tokens
        return look.rate < self.rate - self.errors * math.sqrt(binomial)


@dataclass
class Cusum:
    """CUSUM with our dispersion; Siegmund's limit for one false alarm in LIMIT looks if iid."""

    learned: Learned
    sum: float = 0.0

    def take(self, look: Look) -> bool:
        """One look."""
        z = (self.learned.rate - look.rate) / math.sqrt(self.learned.whole.variance(look.drafts))
        self.sum = max(0.0, self.sum + z - 0.5) if self.sum < 7.4 else z
        return self.sum >= 7.4


@dataclass
class PageHinkley:
    """Page–Hinkley: the reference is the stream's own running mean."""

    learned: Learned
    n: float = 0.0
    mean: float = 0.0
    sum: float = 0.0

    def take(self, look: Look) -> bool:
        """One look."""
        if self.sum >= 7.4:
            self.n = self.mean = self.sum = 0.0
        self.n += 1
        self.mean += (look.rate - self.mean) / self.n
        z = (self.mean - look.rate) / math.sqrt(self.learned.whole.variance(look.drafts))
        self.sum = max(0.0, self.sum + z - 0.5)
        return self.sum >= 7.4


@dataclass
class Msprt:
    """mSPRT of the mean since the beginning (Robbins' normal mixture), never begun anew."""

    learned: Learned
    weight: float = 0.0
    total: float = 0.0
    count: int = 0

    def take(self, look: Look) -> bool:
        """One look."""
        weight = 1 / self.learned.whole.variance(look.drafts)
        self.weight += weight
        self.total += weight * (self.learned.rate - 0.01 - look.rate)
        prior = 0.03**-2
        log = self.total**2 / (2 * (self.weight + prior))
        log += 0.5 * math.log(prior / (self.weight + prior))
        return self.total > 0 and log >= math.log(LIMIT)


Make = Callable[[Learned], Test]


Months = Sequence[tuple[Learned, Sequence[Look]]]


def sound(per_minute: float, months: int, seed: int, odd: float = 0.0) -> Months:
    """Months in which nothing is wrong, each with its baseline."""
    found = []
    for run in range(months):
        learned, rng = taught(per_minute, seed, run, odd)
        stream = Traffic(per_minute, odd_a_day=odd).looks(rng)
        looks = [look for _, look in zip(range(MONTH), stream, strict=False)]
        found.append((learned, looks))
    return found


def false_alarms(make: Make, months: Months) -> float:
    """Alarms that begin, a month, with nothing wrong."""
    count = 0
    for learned, looks in months:
        test, before = make(learned), False
        for look in looks:
            now = test.take(look)
            count += now and not before
            before = now
    return count / len(months)


def delays(make: Make, per_minute: float, fall: float, runs: int, seed: int) -> list[float]:
    """Hours from a fall to the alarm; a week at most. It begins after one to two sound days."""
    found = []
    for run in range(runs):
        learned, rng = taught(per_minute, seed, run)
        at = DAY + rng.randrange(DAY)
        stream = Traffic(per_minute, fall, at).looks(rng)
        test, hours = make(learned), 7 * 24.0
        for i, look in zip(range(at + 7 * DAY), stream, strict=False):
            if test.take(look) and i >= at:
                hours = (i - at + 1) * LOOK_S / 3600
                break
        found.append(hours)
    return sorted(found)


def taught(
    per_minute: float, seed: int, run: int, odd: float = 0.0
) -> tuple[Learned, random.Random]:
    """A baseline of two days, and the random numbers that go on from there."""
    rng = random.Random(f"{seed}/{per_minute}/{run}")
    stream = Traffic(per_minute, odd_a_day=odd).looks(rng)
    return learn([look for _, look in zip(range(2 * DAY), stream, strict=False)]), rng


def tuned(make: Callable[[float], Make], months: Months) -> float:
    """The tightest setting with at most one false alarm a month on these very streams."""
    low, high = 0.0, 64.0
    for _ in range(12):
        middle = (low + high) / 2
        if false_alarms(make(middle), months) > 1.0:
            low = middle
        else:
            high = middle
    return high


WEEK_H = 168.0


def told(hours: Sequence[float]) -> str:
    """Median, mean and 90th percentile."""
    middle, high = hours[len(hours) // 2], hours[min(len(hours) - 1, 9 * len(hours) // 10)]
    if middle >= WEEK_H:
        return "> 1 week"
    mean = sum(hours) / len(hours)
    more = "≥ " if hours[-1] >= WEEK_H else ""
    return f"{_time(middle)} / {more}{_time(mean)} / {_time(high)}"


def _time(hours: float) -> str:
    if hours >= WEEK_H:
        return "> 1 week"
    return f"{hours * 60:.0f} min" if hours < 2 else f"{hours:.1f} h"


def table(per_minute: float, months: int, runs: int, seed: int) -> str:
    """Every test at one traffic."""
    healthy = sound(per_minute, months, seed)
    points = tuned(lambda p: lambda b: Level(b.rate - p / 100), healthy)
    errors = tuned(lambda e: lambda b: Score(b.rate, e), healthy)
    rows: list[tuple[str, Make]] = [
        ("**specctl**", Ours),
        ("specctl, blind to the mix", Blind),
        ("specctl, were one look enough", OneLook),
        ("fixed threshold, baseline − 5 points", lambda b: Level(b.rate - 0.05)),
        (
            f"fixed threshold, best in hindsight (− {points:.1f})",
            lambda b: Level(b.rate - points / 100),
        ),
        ("z-test, 3 standard errors", lambda b: Score(b.rate, 3.0)),
        (f"z-test, best in hindsight ({errors:.1f})", lambda b: Score(b.rate, errors)),
        ("CUSUM, overdispersed", Cusum),
        ("Page–Hinkley, overdispersed", PageHinkley),
        ("mSPRT since the beginning", Msprt),
    ]
    lines = [
        f"{per_minute:,.0f} drafts a minute",
        "",
        "| test | false alarms in 30 days | −2 points | −5 points | −10 points |",
        "|---|---|---|---|---|",
    ]
    for name, make in rows:
        alarms = false_alarms(make, healthy)
        cells = [told(delays(make, per_minute, f, runs, seed + 1)) for f in (0.02, 0.05, 0.10)]
        lines.append(f"| {name} | {alarms:.2f} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def odd_looks(months: int, seed: int) -> str:
    """False alarms where single looks are odd, at much traffic."""
    rows: list[tuple[str, Make]] = [
        ("**specctl**", Ours),
        ("specctl, were one look enough", OneLook),
        ("fixed threshold, baseline − 5 points", lambda b: Level(b.rate - 0.05)),
        ("z-test, 3 standard errors", lambda b: Score(b.rate, 3.0)),
    ]
    often = (1 / 7, 0.5, 1.0, 3.0)
    streams = [sound(10_000.0, months, seed, odd) for odd in often]
    lines = [
        "False alarms in 30 days at 10,000 drafts a minute, where single looks are odd",
        "",
        "| test | one a week | one in two days | one a day | three a day |",
        "|---|---|---|---|---|",
    ]
    for name, make in rows:
        cells = [f"{false_alarms(make, stream):.2f}" for stream in streams]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    """Fill the tables in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few runs, and docs/drift.md stays")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    months, runs = (2, 8) if options.quick else (24, 60)
    parts = [table(rate, months, runs, options.seed) for rate in (100.0, 10_000.0)]
    parts.append(odd_looks(months, options.seed))
    size = f"{months} months and {runs} falls a cell, seed {options.seed}"
    how = f"{size}; delays: median / mean / 90 %."
    text = "\n\n".join([*parts, how])
    if options.quick:
        print(text)
        return
    page = DOC.read_text()
    begin, end = "<!-- table: benchmarks/drift.py -->\n", "<!-- end -->"
    before, rest = page.split(begin)
    DOC.write_text(before + begin + "\n" + text + "\n\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
