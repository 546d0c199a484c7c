from __future__ import annotations

import math
import re

import pytest

from speccli.core.bench.bootstrap import Contrast, Scatter
from speccli.core.bench.crossover import BELOW, BEYOND, Crossover, crossover


def curve(sd: float = 0.01, **speedups: float) -> dict[int, Contrast]:
    return {
        int(batch[1:]): Contrast(math.log(each), 3, Scatter(sd**2, 8), 1e-5, 100)
        for batch, each in speedups.items()
    }


def at(points: dict[int, Contrast]) -> Crossover:
    found = crossover(points)
    assert found is not None
    return found


def test_it_lies_where_the_line_over_log_batch_meets_one() -> None:
    found = at(curve(b32=1.5, b64=1.25, b128=1 / 1.25))
    assert found.place == pytest.approx(math.sqrt(64 * 128))
    assert found.between == (64, 128)
    assert found.interval is not None
    assert 64 < found.interval[0] < found.place < found.interval[1] < 128
    assert found.words.startswith("91 [")


def test_none_is_said_with_the_largest_batch() -> None:
    found = at(curve(b1=1.9, b128=1.3))
    assert found.place == BEYOND
    assert found.words == "none up to 128"
    assert found.to_json()["batch"] is None
    assert found.to_json()["state"] == "beyond"


def test_slower_from_the_start() -> None:
    found = at(curve(b1=0.8, b32=0.7))
    assert found.place == BELOW
    assert found.words == "slower from 1 on"


def test_near_one_the_interval_says_that_it_may_lie_elsewhere() -> None:
    found = at(curve(0.05, b32=1.3, b128=1.005))
    assert found.place == BEYOND
    assert found.interval is not None
    assert found.interval[0] < 128
    assert found.interval[1] == BEYOND
    assert re.fullmatch(r"none up to 128, or from \d+ on at the earliest \(95 %\)", found.words)


@pytest.mark.parametrize(
    ("place", "low", "high", "said"),
    [
        (BELOW, BELOW, 94.2, "slower from 1 on, or from 94 on at the latest (95 %)"),
        (BELOW, BELOW, BEYOND, "slower from 1 on, or none up to 128: not certain (95 %)"),
        (BEYOND, BELOW, BEYOND, "none up to 128, or slower from 1 on: not certain (95 %)"),
        (97.0, 79.0, BEYOND, "97 [79, over 128]"),
        (14.0, BELOW, 36.0, "14 [under 1, 36]"),
    ],
)
def test_an_interval_that_reaches_out_of_what_was_measured_is_plain(
    place: float, low: float, high: float, said: str
) -> None:
    assert Crossover(1, 128, place, (low, high)).words == said


def test_measured_once_has_a_place_and_no_interval() -> None:
    points = {n: Contrast(math.log(v), 1, None, 1e-5, 10) for n, v in ((64, 1.2), (128, 0.8))}
    found = at(points)
    assert found.interval is None
    assert "measured once" in found.words


def test_one_batch_has_no_crossover() -> None:
    assert crossover(curve(b8=1.2)) is None


def test_exactly_one_at_the_smallest_batch_is_where_it_begins() -> None:
    found = at(curve(b1=1.0, b8=0.9))
    assert found.place == pytest.approx(1.0)
    assert found.between == (1, 8)


def test_a_curve_that_rises_again_is_not_slower_from_its_first_dip_on() -> None:
    found = at(curve(b1=0.95, b8=1.5, b32=1.3, b128=0.8))
    assert found.between == (32, 128)
    assert found.words.endswith("(not monotone: slower at 1 too)")
    dip = at(curve(b1=1.5, b8=0.9, b32=1.3))
    assert dip.place == BEYOND
    assert dip.words == "none up to 32 (not monotone: slower at 8 too)"
