"""The canary's comparison, on simulated streams: who passes, who is refused, who is not to be told.

A window's load slows both sides alike, as it does in one Service: that is what pairing is for.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from speccli.core.fallback.canary import (
    LEAST_WINDOWS,
    LOOKS,
    Comparison,
    Counts,
    Sample,
    Trial,
    Window,
    compare,
)

RUNS = 400
USUAL = Sample()
MOST = 200
"""Windows of one run."""


@dataclass(frozen=True)
class Stream:
    """Traffic of a canary and its siblings."""

    acceptance: float = 0.6
    slower: float = -0.2
    failing: float = 0.002
    drafts: float = 150.0
    """Of the canary in a window."""

    def window(self, rng: random.Random) -> Window:
        load = math.exp(rng.gauss(0.0, 0.3))
        requests = max(1.0, round(rng.gauss(6, 2)))
        canary = self._side(rng, load * (1 + self.slower), requests, self.failing)
        siblings = self._side(rng, load, 3 * requests, 0.002)
        drafts = max(0.0, round(rng.gauss(self.drafts, self.drafts / 5)))
        # Requests of one window are alike: their rate scatters more than single tokens would.
        rate = min(1.0, max(0.0, rng.gauss(self.acceptance, 0.06)))
        tokens = 3 * drafts
        accepted = min(tokens, max(0.0, rng.gauss(rate * tokens, math.sqrt(tokens / 4))))
        canary = replace(canary, drafts=drafts, draft_tokens=tokens, accepted=accepted)
        return Window(canary, siblings)

    @staticmethod
    def _side(rng: random.Random, pace: float, requests: float, failing: float) -> Counts:
        tokens = 100 * requests
        seconds = tokens * 0.02 * pace * math.exp(rng.gauss(0.0, 0.05))
        failures = float(sum(rng.random() < failing for _ in range(round(requests))))
        return Counts(decode_s=seconds, tokens=tokens, requests=requests, failures=failures)


GOOD = Stream()


def tried(stream: Stream, seed: int, sample: Sample = USUAL) -> Comparison | None:
    rng, trial = random.Random(seed), Trial(sample)
    for _ in range(MOST):
        if found := trial.add(stream.window(rng)):
            return found
    return None


def shares(stream: Stream, sample: Sample = USUAL) -> dict[str, float]:
    found = Counter(
        told.verdict for seed in range(RUNS) if (told := tried(stream, seed, sample)) is not None
    )
    assert sum(found.values()) == RUNS
    return {verdict: found[verdict] / RUNS for verdict in ("passed", "refused", "inconclusive")}


@pytest.mark.parametrize(
    ("stream", "sample"),
    [
        pytest.param(GOOD, Sample(), id="faster-than-n-gram"),
        pytest.param(replace(GOOD, slower=0.0), Sample(), id="as-fast-as-its-siblings"),
        pytest.param(GOOD, Sample(baseline=0.6), id="at-its-baseline"),
    ],
)
def test_a_good_canary_passes_and_is_hardly_ever_refused(stream: Stream, sample: Sample) -> None:
    told = shares(stream, sample)
    assert told["refused"] <= 0.05
    assert told["passed"] >= 0.8


@pytest.mark.parametrize(
    ("stream", "sample"),
    [
        pytest.param(replace(GOOD, acceptance=0.4), Sample(), id="acceptance-at-the-floor"),
        pytest.param(replace(GOOD, acceptance=0.54), Sample(baseline=0.6), id="under-its-baseline"),
        pytest.param(replace(GOOD, slower=0.05), Sample(), id="slower-by-the-whole-margin"),
    ],
)
def test_a_canary_that_is_just_bad_never_passes(stream: Stream, sample: Sample) -> None:
    assert shares(stream, sample)["passed"] <= 0.01


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(replace(GOOD, acceptance=0.3), id="acceptance"),
        pytest.param(replace(GOOD, acceptance=0.0), id="nothing-is-accepted"),
        pytest.param(replace(GOOD, slower=0.15), id="speed"),
        pytest.param(replace(GOOD, failing=0.15), id="failures"),
    ],
)
def test_a_canary_that_is_plainly_bad_is_refused(stream: Stream) -> None:
    told = shares(stream)
    assert told["refused"] >= 0.98
    assert told["passed"] <= 0.01


def test_the_reason_is_said() -> None:
    bad = tried(replace(GOOD, acceptance=0.25, slower=0.3), 1)
    assert bad is not None
    assert "acceptance 0.2" in bad.words
    assert "and 0.400 is wanted" in bad.words
    assert "slower per token than its siblings" in bad.words


def test_too_little_traffic_is_inconclusive_and_says_what_is_missing() -> None:
    rng = random.Random(1)
    few = [GOOD.window(rng) for _ in range(5)]
    told = compare(few, Sample())
    assert told.verdict == "inconclusive"
    assert " of 2,000 drafts" in told.words
    assert compare([], Sample()).verdict == "inconclusive"


def test_siblings_without_traffic_compare_nothing() -> None:
    rng = random.Random(1)
    alone = [replace(GOOD.window(rng), siblings=Counts()) for _ in range(40)]
    told = compare(alone, Sample())
    assert told.verdict == "inconclusive"
    assert f"0 of {LEAST_WINDOWS} windows in which both sides answered" in told.words


def test_what_cannot_be_told_is_looked_at_with_twice_the_traffic_and_then_left() -> None:
    near = replace(GOOD, acceptance=0.41)
    told = shares(near)
    assert told["inconclusive"] >= 0.5
    rng, trial = random.Random(3), Trial(Sample())
    count = 0
    while trial.add(near.window(rng)) is None:
        count += 1
    assert count >= 2000 * 2 ** (LOOKS - 1) / 150 * 0.8


def test_load_that_slows_both_sides_alike_is_no_reason() -> None:
    """Unpaired, a load that doubles and halves would drown the difference."""
    found = [tried(replace(GOOD, slower=-0.1), seed) for seed in range(50)]
    assert all(told is not None and told.verdict == "passed" for told in found)
