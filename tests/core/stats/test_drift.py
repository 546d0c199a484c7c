"""The sequential test, the slope, and whose fault a fall is."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.stats.drift import CLEAR, Detector, Dispersion, Look, fit, per_draft_variance
from speccli.core.stats.mix import (
    Mix,
    PromptBin,
    Seen,
    Verdict,
    bin_edges,
    expected_rate,
    later_broke,
    verdict,
)
from speccli.core.stats.slope import Slope

LIMIT = 8640.0
PAGE = (Path(__file__).parents[3] / "docs" / "drift.md").read_text()
COUNTS = st.floats(0, 1e9)


def look(rate: float, n: float = 1000, at: float = 300.0) -> Look:
    """A look of `n` drafts of 3 tokens."""
    return Look(at, 300.0, n, 3 * n, rate * 3 * n, requests=n / 100, prompt_tokens=5 * n)


@st.composite
def looks(draw: st.DrawFn) -> Look:
    drafts = draw(COUNTS)
    accepted = draw(st.floats(0, 1)) * 3 * drafts
    positions = tuple(draw(st.lists(COUNTS, max_size=3)))
    return Look(draw(COUNTS), draw(COUNTS), drafts, 3 * drafts, accepted, positions, draw(COUNTS))


def run(detector: Detector, rates: list[float], spread: float = 0.02) -> list[bool]:
    return [
        detector.take(look(rate, at=300.0 * i), 0.5, spread, 0.01, LIMIT)
        for i, rate in enumerate(rates, start=1)
    ]


@given(st.floats(0, 1), st.integers(1, 400))
def test_constant_data_never_alarms(rate: float, n: int) -> None:
    detector = Detector()
    for i in range(n):
        assert not detector.take(look(rate, at=300.0 * i), rate, 0.005, 0.01, LIMIT)


@given(st.lists(st.tuples(looks(), st.floats(0, 1), st.floats(0, 1)), max_size=20))
def test_its_state_is_all_of_it(steps: list[tuple[Look, float, float]]) -> None:
    one, other = Detector(), Detector()
    for each, expected, spread in steps:
        one.take(each, expected, spread, 0.01, 5.0)
        other.take(each, expected, spread, 0.01, 5.0)
        other = Detector.from_json(json.loads(json.dumps(other.to_json(), allow_nan=False)))
        assert other == one


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0, 0.5))
def test_lower_rates_are_never_less_evidence(rates: list[float], less: float) -> None:
    one, other = Detector(), Detector()
    for rate in rates:
        one.take(look(rate), 0.5, 0.05, 0.01, math.inf)
        other.take(look(max(0.0, rate - less)), 0.5, 0.05, 0.01, math.inf)
        assert other.strength >= one.strength * (1 - 1e-9)


def test_one_look_alone_never_alarms_however_bad() -> None:
    assert run(Detector(), [0.0]) == [False]


@pytest.mark.parametrize("row", [200, 1000, 10_000])
def test_the_page_says_how_many_looks_a_fall_takes(row: int) -> None:
    scatter = Dispersion(per_draft=per_draft_variance((0.73, 0.52, 0.35), 1.6 / 3), wander=0.01)
    cells = []
    for fall in (0.05, 0.10, 0.20, 0.35):
        detector, looks, alarm = Detector(), 0, False
        while not alarm:
            looks += 1
            low = look(1.6 / 3 - fall, row, at=300.0 * looks)
            spread = math.sqrt(scatter.variance(row))
            alarm = detector.take(low, 1.6 / 3, spread, scatter.margin(0.01), LIMIT)
        cells.append(f"{looks} looks")
    assert f"| {row:,} | {' | '.join(cells)} |\n" in PAGE


def test_a_fall_alarms_is_dated_and_clears_when_it_is_over() -> None:
    detector = Detector()
    alarms = run(detector, [0.5] * 10 + [0.42] * 10)
    assert not any(alarms[:10])
    assert alarms[-1]
    assert detector.began == 300.0 * 10
    assert detector.since.rate == pytest.approx(0.42)
    after = run(detector, [0.5] * 20)
    assert not after[-1]
    assert detector.strength < CLEAR
    assert detector.began is None


def test_the_promise_holds_at_the_edge_of_the_margin() -> None:
    """Normal looks, whose mean is as low as is still in order: one alarm in A looks at most."""
    rng, limit, alarms, n = random.Random(7), 200.0, 0, 40_000
    detector = Detector()
    for i in range(n):
        if detector.take(look(rng.gauss(0.49, 0.02), at=300.0 * i), 0.5, 0.02, 0.01, limit):
            alarms += 1
            detector.clear()
    assert 0 < alarms <= n / limit


def test_the_fit_finds_clustering_and_swing() -> None:
    rng, per_draft = random.Random(3), 0.15
    series = []
    for i in range(1000):
        n = 5000 * math.exp(rng.gauss(0, 0.5))
        noise = rng.gauss(0, math.sqrt(6 * per_draft / n))
        series.append((300.0 * i, n, noise + 0.02 * math.sin(2 * math.pi * i / 288)))
    found = fit(series, per_draft)
    assert 5.5 < found.clustering < 8.0
    assert 0.012 < found.wander < 0.017


def test_a_short_baseline_takes_a_swing_for_granted() -> None:
    found = fit([(300.0 * i, 1e6, 0.0) for i in range(20)], 0.15)
    assert (found.clustering, found.wander) == (1.0, 0.01)
    assert fit([], 0.15) == Dispersion(per_draft=0.15)


def test_variance_of_a_draft_follows_from_its_positions() -> None:
    # 0, 1 or 2 of 2 accepted with chances 0.4, 0.3, 0.3: mean 0.9, square 1.5.
    assert per_draft_variance((0.6, 0.3), 0.45) == pytest.approx((1.5 - 0.81) / 4)


def test_a_slide_is_found_and_a_step_or_level_is_not() -> None:
    def of(rate: list[float]) -> Slope:
        slope, rng = Slope(), random.Random(1)
        for i, value in enumerate(rate):
            noisy = value + rng.gauss(0, 0.01)
            slope.take(300.0 * i, noisy, 1e-4, mix_known=True)
        return slope

    n = 120
    slide = of([0.5 - 0.08 * i / n for i in range(n)]).slide(0.03)
    assert slide is not None
    assert slide.fall == pytest.approx(0.08, abs=0.01)
    assert slide.hours == pytest.approx(9.9, abs=0.2)
    assert of([0.5] * n).slide(0.03) is None
    assert of([0.5] * (n // 2) + [0.4] * (n // 2)).slide(0.03) is None
    assert of([0.5 - 0.08 * i / 30 for i in range(30)]).slide(0.03) is None, "under three hours"


def test_without_the_mix_a_slide_takes_a_day() -> None:
    slope = Slope()
    for i in range(287):
        slope.take(300.0 * i, 0.5 - 0.0003 * i, 1e-4, mix_known=False)
    assert slope.slide(0.03) is None
    for i in range(287, 300):
        slope.take(300.0 * i, 0.5 - 0.0003 * i, 1e-4, mix_known=False)
    assert slope.slide(0.03) is not None
    assert Slope.from_json(json.loads(json.dumps(slope.to_json()))) == slope


BINS = (
    PromptBin(256, 304, 280, 0.60, 9e5, 50),
    PromptBin(304, 362, 330, 0.56, 9e5, 50),
    PromptBin(1024, 1218, 1100, 0.40, 9e5, 50),
)


@pytest.mark.parametrize(
    ("prompt", "rate"),
    [(260, 0.60), (280, 0.60), (330, 0.56), (1200, 0.40), (600, None), (100, None), (2000, None)],
)
def test_expected_of_a_mix(prompt: float, rate: float | None) -> None:
    assert expected_rate(BINS, prompt) == rate


def test_between_bins_it_lies_between() -> None:
    middle = expected_rate(BINS, 304)
    assert middle is not None
    assert 0.56 < middle < 0.60


@given(st.floats(1, 1e6))
def test_a_bin_holds_its_prompt(prompt: float) -> None:
    low, high = bin_edges(prompt)
    assert low <= prompt * (1 + 1e-12)
    assert prompt <= high * (1 + 1e-12)


def test_few_requests_are_taken_with_those_before_them() -> None:
    mix = Mix()
    assert mix.take(Look(1, 1, 0, 0, 0, prompt_tokens=50_000, requests=100)) == 500
    assert mix.take(Look(2, 1, 0, 0, 0, prompt_tokens=10_000, requests=10)) == pytest.approx(550)
    assert mix.take(Look(3, 1, 0, 0, 0, prompt_tokens=90_000, requests=100)) == 900
    assert mix.take(Look(4, 1, 0, 0, 0)) is None


WAS, ALIKE, LATER = (0.7, 0.5, 0.35), (0.6, 0.37, 0.22), (0.69, 0.3, 0.1)


def seen(
    now: tuple[float, ...],
    *,
    expected: float | None = None,
    prompt: float | None = 500,
    prompt_was: float | None = 500,
    proven: bool = False,
    requests: float | None = None,
) -> Verdict | None:
    rate, was = sum(now) / 3, sum(WAS) / 3
    return verdict(Seen(rate, was, expected, prompt, prompt_was, now, WAS, proven, requests))


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        pytest.param(seen(ALIKE), "draft", id="same-mix"),
        pytest.param(seen(ALIKE, prompt=2000), "traffic", id="moved"),
        pytest.param(seen(ALIKE, prompt=300, requests=100), "traffic", id="moved-by-many"),
        pytest.param(seen(ALIKE, prompt=300, requests=14), "unclear", id="moved-by-few"),
        pytest.param(seen(LATER, prompt=2000), "unclear", id="moved-and-later-positions-broke"),
        pytest.param(seen(ALIKE, prompt=650), "unclear", id="moved-somewhat"),
        pytest.param(seen(ALIKE, prompt=None), "unclear", id="mix-unknown"),
        pytest.param(seen(LATER, prompt=None), "draft", id="mix-unknown-later-positions-broke"),
        pytest.param(seen(ALIKE, expected=0.41), "traffic", id="explained"),
        pytest.param(seen(ALIKE, expected=0.51, proven=True), "draft", id="beside-the-mix"),
    ],
)
def test_whose_fault(found: Verdict | None, kind: str) -> None:
    assert found is not None
    assert found.kind == kind


def test_too_early_to_say() -> None:
    assert seen(ALIKE, expected=0.50) is None


def test_the_shape_over_positions() -> None:
    assert later_broke(WAS, LATER) is True
    assert later_broke(WAS, ALIKE) is False
    assert later_broke(WAS, ()) is None
