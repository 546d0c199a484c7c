"""A short run of the fuzzer; `scripts/fuzz` runs it for longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speccli.core.stats.measures import Metrics
from speccli.core.stats.window import Settings, Window
from speccli.core.values import Number
from tests.core.pages import scrape, spec_page
from tests.fuzz.fuzz import Impossible, Tally, check_metrics, run, session


def test_broken_pages_make_no_impossible_number_and_no_exception() -> None:
    tally = run(1, bodies=500, seconds=None)
    assert tally.bodies >= 500
    assert tally.numbers["a rate"] > 200, "a fuzzer that reads nothing proves nothing"
    assert tally.numbers["resets"] > 20
    words = " ".join(tally.states)
    for word in ("TRUNCATED", "GARBLED", "MISSING", "AUTH", "stale", "down"):
        assert word in words


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(101630, id="a-cost-past-all-bounds-of-a-count-of-1e-320"),
        pytest.param(5001246, id="growth-that-was-dropped-came-back-in-the-trail"),
    ],
)
def test_what_was_found_once_is_not_found_again(seed: int) -> None:
    session(seed, Tally())


def test_a_session_is_made_from_its_seed_alone() -> None:
    one, two = Tally(), Tally()
    for tally in (one, two):
        session(7, tally)
    assert one == two


def good() -> Metrics:
    window = Window(Settings())
    for at in (1, 2):
        window.push([scrape(at, spec_page(drafts=100 * at, drafted=300 * at, accepted=200 * at))])
    return window.snapshot().fleet


@pytest.mark.parametrize(
    "wrong",
    [
        {"acceptance_rate": Number.known(1.01)},
        {"acceptance_rate": Number(None, "unknown")},
        {"acceptance_by_position": (Number.known(-0.1),)},
        {"acceptance_length": Number.known(0.9)},
        {"tokens_per_step": Number.known(float("inf"))},
        {"draft_tokens": Number.known(-1)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_the_fuzzer_knows_an_impossible_number_when_it_sees_one(wrong: dict[str, object]) -> None:
    check_metrics(good())
    with pytest.raises(Impossible):
        check_metrics(replace(good(), **wrong))  # type: ignore[arg-type]
