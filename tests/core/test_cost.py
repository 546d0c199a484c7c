"""What a million tokens costs."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from speccli.core.cost import Pricing

PRICES = st.floats(0, 1000)
RATES = st.floats(0.001, 1e7)
ENGINES = st.integers(1, 5000)


def cost(price: float | None, rate: float | None, engines: int = 1, gpus: int = 1) -> float | None:
    return Pricing(price, gpus).per_million(engines, rate).value


def test_eight_gpus_at_two_dollars_that_make_a_thousand_tokens_a_second() -> None:
    assert cost(2.0, 1000.0, engines=4, gpus=2) == pytest.approx(16 / 3.6)


@given(PRICES, PRICES, RATES, ENGINES, st.integers(1, 16))
def test_cost_grows_with_the_price(
    one: float, two: float, rate: float, engines: int, gpus: int
) -> None:
    low, high = sorted([one, two])
    cheap, dear = cost(low, rate, engines, gpus), cost(high, rate, engines, gpus)
    assert cheap is not None
    assert dear is not None
    assert 0 <= cheap <= dear


@given(PRICES, RATES, RATES, ENGINES)
def test_cost_falls_as_tokens_come_faster(
    price: float, one: float, two: float, engines: int
) -> None:
    slow, fast = sorted([one, two])
    dear, cheap = cost(price, slow, engines), cost(price, fast, engines)
    assert cheap is not None
    assert dear is not None
    assert cheap <= dear


@given(st.floats(0.01, 100), RATES, ENGINES)
def test_idle_engines_are_paid_for(price: float, rate: float, engines: int) -> None:
    one, many = cost(price, rate, engines), cost(price, rate, 2 * engines)
    assume(one)
    assert many == pytest.approx(2 * (one or 0))


@pytest.mark.parametrize(
    ("price", "rate", "engines", "reason"),
    [
        pytest.param(None, 100.0, 1, "no GPU price given", id="no-price"),
        pytest.param(2.0, None, 1, "token rate unknown", id="no-rate"),
        pytest.param(2.0, 0.0, 1, "no tokens in the window", id="no-tokens-is-not-free"),
        pytest.param(2.0, 100.0, 0, "how many engines", id="no-engines-are-not-free"),
    ],
)
def test_a_cost_that_cannot_be_told_says_why(
    price: float | None, rate: float | None, engines: int, reason: str
) -> None:
    number = Pricing(price).per_million(engines, rate)
    assert (number.value, number.state) == (None, "unknown")
    assert reason in (number.reason or "")


def test_a_free_gpu_costs_nothing_and_that_is_a_value() -> None:
    assert cost(0.0, 100.0) == 0.0
