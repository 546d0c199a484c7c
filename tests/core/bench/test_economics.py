from __future__ import annotations

from dataclasses import replace

import pytest

from speccli.core.bench.economics import economics
from speccli.core.bench.results import Result
from speccli.core.prices import PriceBook
from tests.support.benches import PLAIN, Noise, Planted, bench

BOOK = PriceBook.bundled()
QUIET = Noise(run=0.001, drift=0.001, prompt=0.01, request=0.01)


def two() -> Result:
    arms = [PLAIN, Planted("eagle3", {8: 2.0, 128: 0.8})]
    return bench(arms, batches=(8, 128), prompts=20, repeats=2, noise=QUIET)


def test_cost_is_the_gpus_price_over_what_it_puts_out() -> None:
    found = economics(two(), BOOK)
    plain, busy = (level for level in found.levels if level.arm == "none")
    assert (plain.load, busy.load) == ((8, None), (128, None))
    rate = plain.tokens_per_s.value
    assert rate == pytest.approx(1450, rel=0.02)
    assert rate is not None
    assert plain.usd_per_1m_output.value == pytest.approx(2.5 / (rate * 3600) * 1e6)
    half = plain.usd_at(0.5).value
    assert half == pytest.approx(2 * (plain.usd_per_1m_output.value or 0))


def test_the_cheapest_load_of_each_arm_is_beside_the_market() -> None:
    found = economics(two(), BOOK)
    cheapest = found.cheapest("eagle3")
    assert cheapest is not None
    assert cheapest.load == (128, None)
    assert set(found.hosted) == {"none", "eagle3"}
    each = found.hosted["eagle3"][0]
    ratio, even = each.ratio.value, each.break_even_utilisation.value
    assert ratio is not None
    assert even == pytest.approx(ratio), "at full load: the share at which both cost the same"
    mix = cheapest.input_per_output.value
    assert mix == pytest.approx(129 / 128)


def test_a_price_given_lies_over_the_files() -> None:
    cheap, dear = (economics(two(), BOOK, gpu_hour_usd=usd) for usd in (1.0, 4.0))
    low, high = (each.levels[0].usd_per_1m_output.value or 0 for each in (cheap, dear))
    assert high == pytest.approx(4 * low)


def test_every_gpu_of_an_arm_is_paid_for() -> None:
    result = two()
    four = replace(result, arms=tuple(replace(a, gpu_count=4) for a in result.arms))
    one, many = (economics(r, BOOK).levels[0].usd_per_1m_output.value or 0 for r in (result, four))
    assert many == pytest.approx(4 * one)


def test_without_a_price_there_is_no_cost_and_the_reason() -> None:
    result = two()
    free = replace(result, arms=tuple(replace(a, gpu_hour_usd=None) for a in result.arms))
    found = economics(free, BOOK)
    assert found.why_none == "no GPU price given (--gpu-hour-usd)"
    assert found.hosted == {}
    assert found.levels[0].usd_per_1m_output.value is None


def test_rows_that_are_not_usable_are_not_in_the_rate() -> None:
    result = two()
    broken = replace(
        result,
        rows=tuple(replace(r, state="failed") if r.batch == 8 else r for r in result.rows),
    )
    assert {level.load for level in economics(broken, BOOK).levels} == {(128, None)}


def test_an_offered_rate_is_no_capacity_and_has_no_cost() -> None:
    closed = two()
    rows = tuple(replace(r, batch=None, rate=float(r.batch or 0)) for r in closed.rows)
    load = replace(closed.load, kind="open", batches=(), rates=(8.0, 128.0))
    found = economics(replace(closed, load=load, rows=rows), BOOK)
    assert found.levels == ()
    assert found.why_none is not None
    assert "open loop" in found.why_none
