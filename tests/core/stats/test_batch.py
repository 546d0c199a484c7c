"""Latency by batch size: attributed only where the batch size is known."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.metrics.counters import Counters
from speccli.core.stats import batch
from speccli.core.stats.track import Track
from tests.core.pages import STARTED, counters


def sample(
    at: float,
    steps: float,
    itl: Sequence[float],
    ttft: Sequence[float] = (0, 0),
    *,
    started: float | None = STARTED,
    several: bool = False,
    drop: str | None = None,
) -> Counters:
    """An engine with `steps`, and cumulative ITL and TTFT buckets at 0.1 s and above."""
    hists = {
        "itl": ([0.1], itl, 0.05 * itl[-1]),
        "ttft": ([0.1], ttft, 0.05 * ttft[-1]),
    }
    hists.pop(drop or "", None)
    slots = {} if drop == "steps" else {"steps": steps}
    partial = f"TRUNCATED: {drop} is cut off" if drop else None
    return counters(
        at, slots or {"drafts": 0.0}, hists, started=started, several=several, partial=partial
    )


def binned(track: Track, window_s: float | None = None) -> dict[str, list[float]]:
    bins = track.by_batch(window_s)
    return {batch.LABELS[i]: list(grown) for i, grown in enumerate(bins) if grown is not None}


def test_an_interval_belongs_to_the_mean_batch_of_its_steps() -> None:
    track = Track(sample(0, 0, (0, 0)), None)
    track.push(sample(1, 10, (30, 38), (2, 2)))  # 40 requests in 10 steps
    track.push(sample(2, 20, (90, 118), (2, 2)))  # 80 in 10
    assert binned(track) == {
        "3-4": pytest.approx([30, 38, 1.9, 2, 2, 0.1]),
        "5-8": pytest.approx([60, 80, 4.0, 0, 0, 0]),
    }


@pytest.mark.parametrize(
    ("mean", "label"),
    [
        (0.5, "1-2"),
        (1, "1-2"),
        (2.4, "1-2"),
        (2.5, "3-4"),
        (4, "3-4"),
        (5, "5-8"),
        (16, "9-16"),
        (32, "17-32"),
        (64, "33-64"),
        (128, "65-128"),
        (129, "129+"),
        (5000, "129+"),
    ],
)
def test_a_mean_batch_has_a_label(mean: float, label: str) -> None:
    assert batch.LABELS[batch.bin_of(mean)] == label


def test_nothing_is_attributed_without_a_step_count() -> None:
    track = Track(sample(0, 0, (0, 0), drop="steps"), None)
    track.push(sample(1, 10, (30, 40), drop="steps"))
    assert binned(track) == {}


def test_nothing_is_attributed_with_several_api_servers() -> None:
    track = Track(sample(0, 0, (0, 0), several=True), None)
    track.push(sample(1, 10, (30, 40), several=True))
    assert binned(track) == {}


def test_nothing_is_attributed_without_steps_in_the_interval() -> None:
    track = Track(sample(0, 10, (5, 5)), None)
    track.push(sample(1, 10, (30, 40)))
    track.push(sample(2, 20, (30, 40)))
    assert binned(track) == {}


@pytest.mark.parametrize(
    "between",
    [
        pytest.param([sample(2, 4, (8, 8), started=STARTED + 50)], id="a-restart-told"),
        pytest.param([sample(2, 4, (8, 8))], id="a-restart-not-told"),
        pytest.param([sample(2, 5, (50, 60))], id="one-counter-fell"),
        pytest.param(
            [sample(2, 12, (40, 48), drop="itl"), sample(3, 14, (48, 56))], id="a-page-with-holes"
        ),
    ],
)
def test_an_interval_that_is_not_whole_is_not_attributed(between: list[Counters]) -> None:
    track = Track(sample(0, 0, (0, 0)), None)
    track.push(sample(1, 10, (30, 40)))
    before = binned(track)
    assert before
    for each in between:
        track.push(each)
    assert binned(track) == before
    last = between[-1]
    grown = [last.values[last.layout.histograms["itl"].start] + n for n in (0, 0)]
    steps = last.get("steps") or 0.0
    track.push(sample(9, steps + 10, (grown[0] + 40, grown[0] + 40), started=last.started))
    assert binned(track) != before, "the next whole interval counts again"


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 200)), min_size=1, max_size=30))
def test_bins_hold_every_attributed_observation_once(history: list[tuple[int, int]]) -> None:
    track = Track(sample(0, 0, (0, 0)), None)
    steps = seen = attributed = 0
    for at, (more_steps, more) in enumerate(history, start=1):
        steps, seen = steps + more_steps, seen + more
        attributed += more if more_steps else 0
        track.push(sample(at, steps, (seen / 2, seen)))
    assert sum(grown[1] for grown in binned(track).values()) == attributed


def test_bins_that_did_not_grow_are_shared_and_not_copied() -> None:
    rng = random.Random(3)
    track = Track(sample(0, 0, (0, 0)), None)
    steps = seen = 0
    for at in range(1, 40):
        steps, size = steps + 10, rng.choice([1, 6, 200])
        seen += 10 * size
        track.push(sample(at, steps, (seen, seen)))
    for older, newer in zip(track.points, track.points[1:], strict=False):
        same = [a is b for a, b in zip(older.bins, newer.bins, strict=True)]
        assert same.count(False) <= 1 or newer.at - older.at > 1.5
    unused = batch.bin_of(20)
    assert all(point.bins[unused] is None for point in track.points)


def test_a_window_has_the_growth_of_its_own_intervals() -> None:
    track = Track(sample(0, 0, (0, 0)), None)
    track.push(sample(10, 10, (20, 20)))
    track.push(sample(20, 20, (40, 40)))
    track.push(sample(30, 30, (240, 240)))
    assert {k: v[1] for k, v in binned(track).items()} == {"1-2": 40, "17-32": 200}
    assert {k: v[1] for k, v in binned(track, 20).items()} == {"1-2": 20, "17-32": 200}
    assert {k: v[1] for k, v in binned(track, 10).items()} == {"17-32": 200}
