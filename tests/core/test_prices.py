"""Hosted prices, and the pool beside them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from genai_prices import types as gp
from genai_prices.data_snapshot import DataSnapshot
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.cost import Pricing
from speccli.core.errors import ExitCode, UsageError
from speccli.core.prices import HostedPrice, PriceBook, PriceTier
from speccli.core.values import Number
from speccli.core.worth import Comparison, PoolCost, compare

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def model(
    name: str,
    input_: str | gp.TieredPrices | None,
    output: str | gp.TieredPrices | None,
    **more: object,
) -> gp.ModelInfo:
    def decimal(price: str | gp.TieredPrices | None) -> Decimal | gp.TieredPrices | None:
        return Decimal(price) if isinstance(price, str) else price

    given_prices = more.pop("prices", None)
    prices = gp.ModelPrice(input_mtok=decimal(input_), output_mtok=decimal(output))
    options = {"context_window": 200_000, **more}
    return gp.ModelInfo(
        id=name,
        match=gp.ClauseEquals(name.lower()),
        prices=given_prices or prices,  # type: ignore[arg-type]
        **options,  # type: ignore[arg-type]
    )


def tiered(base: str, start: int, then: str) -> gp.TieredPrices:
    return gp.TieredPrices(base=Decimal(base), tiers=[gp.Tier(start, Decimal(then))])


def provider(name: str, *models: gp.ModelInfo, own: str | None = None) -> gp.Provider:
    return gp.Provider(
        id=name,
        name=name.title(),
        api_pattern=f"https://{name}",
        model_match=gp.ClauseContains(own) if own else None,
        provider_match=gp.ClauseEquals(name),
        models=list(models),
    )


def book(*providers: gp.Provider, now: datetime = NOW) -> PriceBook:
    return PriceBook(DataSnapshot(list(providers), from_auto_update=False), "9.9", now)


@pytest.fixture(scope="module")
def bundled() -> PriceBook:
    return PriceBook.bundled(NOW)


# ---- names ----


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("claude-sonnet-5", "anthropic:claude-sonnet-5", id="bare"),
        pytest.param("anthropic/claude-sonnet-5", "anthropic:claude-sonnet-5", id="slash"),
        pytest.param("anthropic:claude-sonnet-5", "anthropic:claude-sonnet-5", id="colon"),
        pytest.param("openai/gpt-5", "openai:gpt-5", id="other-maker"),
        pytest.param("CLAUDE-Sonnet-5", "anthropic:claude-sonnet-5", id="case-does-not-count"),
        pytest.param(
            "openrouter:meta-llama/llama-3.3-70b-instruct",
            "openrouter:meta-llama/llama-3.3-70b-instruct",
            id="a-host-and-a-slash",
        ),
    ],
)
def test_a_model_is_found_by_any_of_its_names(bundled: PriceBook, name: str, found: str) -> None:
    price = bundled.find(name)
    assert price.name == found
    assert price.asked == name
    assert price.tiers[0].output_usd > price.tiers[0].input_usd > 0


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("claude-sonet-5", "did you mean claude-sonnet-5", id="typo"),
        pytest.param("openai:gpt-99", "openai:gpt-", id="typo-with-provider"),
        pytest.param("zzzzqqqq", "PROVIDER:MODEL", id="like-nothing"),
        pytest.param("", "PROVIDER:MODEL", id="empty"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    bundled: PriceBook, name: str, hint: str
) -> None:
    with pytest.raises(UsageError, match="no price for a model") as caught:
        bundled.find(name)
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_name_that_many_sell_is_refused_with_who_does() -> None:
    sellers = [provider(name, model("org/llama", "1", "2")) for name in ("a", "b")]
    with pytest.raises(UsageError, match="sold by 2 providers") as caught:
        book(*sellers).find("org/llama")
    assert "a:org/llama or b:org/llama" in (caught.value.hint or "")


def test_a_model_without_token_prices_is_refused() -> None:
    voices = provider("maker", model("voice-1", None, None), own="voice")
    with pytest.raises(UsageError, match="not sold by the token"):
        book(voices).find("voice-1")


# ---- prices ----


def test_tiers_are_told_on_the_limits_of_either_price() -> None:
    deep = model("big-1", tiered("2", 200_000, "4"), tiered("10", 272_000, "15"))
    price = book(provider("maker", deep, own="big")).find("big-1")
    assert price.tiers == (
        PriceTier(0, 2.0, 10.0),
        PriceTier(200_000, 4.0, 10.0),
        PriceTier(272_000, 4.0, 15.0),
    )
    assert price.at_prompt(None) == price.tiers[0]
    assert price.at_prompt(200_000) == price.tiers[0]
    assert price.at_prompt(200_001) == price.tiers[1]
    assert price.at_prompt(1e6) == price.tiers[2]


def test_the_price_of_the_day_is_taken_and_the_next_is_told() -> None:
    def since(day: date | None, output: str) -> gp.ConditionalPrice:
        constraint = gp.StartDateConstraint(day) if day else None
        prices = gp.ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(output))
        return gp.ConditionalPrice(constraint, prices=prices)

    steps = [since(None, "30"), since(date(2026, 8, 1), "20"), since(date(2027, 1, 1), "10")]
    known = book(provider("maker", model("m-1", None, None, prices=steps), own="m-"))
    price = known.find("m-1")
    assert price.tiers[0].output_usd == 20.0
    assert (price.since, price.changes) == (date(2026, 8, 1), date(2027, 1, 1))
    assert known.date.newest_change == date(2026, 8, 1)


def test_a_price_by_the_time_of_day_says_so() -> None:
    prices = gp.ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(2))
    night = gp.TimeOfDateConstraint(time(16, 30, tzinfo=UTC), time(0, 30, tzinfo=UTC))
    steps = [gp.ConditionalPrice(prices=prices), gp.ConditionalPrice(night, prices=prices)]
    known = book(provider("maker", model("m-1", None, None, prices=steps), own="m-"))
    assert known.find("m-1").notes == ("priced by the time of day: this is the price now",)


def test_no_date_is_invented() -> None:
    known = book(provider("maker", model("m-1", "1", "2"), own="m-"))
    assert known.date.newest_change is None
    assert known.find("m-1").since is None


# ---- the default set ----


def test_the_default_set_is_the_newest_generation_cheapest_first() -> None:
    claude = [
        model("claude-haiku-4-5", "0.1", "0.4"),
        model("claude-haiku-5", "1", "5"),
        model("claude-haiku-5-1", "1", "4"),
        model("claude-sonnet-5", "3", "15"),
        model("claude-opus-5", "5", "25"),
        model("claude-grand-5", "50", "250"),
        model("claude-free-5", "0", "0"),
        model("claude-secret-5-9", "1", "1", context_window=None),
        model("claude-old-5-9", "1", "1", deprecated=True),
    ]
    gpt = [model("gpt-6", "1", "8"), model("gpt-6-mini", "1", "2"), model("gpt-image-2", "1", "1")]
    known = book(provider("anthropic", *claude, own="claude"), provider("openai", *gpt, own="gpt"))
    assert [price.model for price in known.defaults()] == [
        "claude-haiku-5-1",
        "claude-sonnet-5",
        "claude-opus-5",
        "gpt-6-mini",
        "gpt-6",
    ]


def test_the_bundled_snapshot_has_a_default_set(bundled: PriceBook) -> None:
    makers = [price.provider for price in bundled.defaults()]
    assert makers == ["anthropic"] * 3 + ["openai"] * 3
    for price in bundled.defaults():
        assert bundled.find(price.name).tiers == price.tiers


def test_the_pools_own_model_is_compared_where_someone_hosts_it() -> None:
    hosts = [
        provider("dear", model("Org/Llama-70B", "1", "2")),
        provider("fair", model("org/llama-70b", "0.5", "0.9")),
        provider("free", model("org/llama-70b", "0", "0")),
    ]
    own = book(*hosts).same_model("org/Llama-70B")
    assert own is not None
    assert (own.provider, own.same_model) == ("fair", True)
    assert book(*hosts).same_model("tiny") is None
    assert book(*hosts).same_model(None) is None


# ---- the pool beside them ----

SONNET = HostedPrice("s", "maker", "s-1", (PriceTier(0, 3.0, 15.0), PriceTier(100_000, 6.0, 30.0)))


def pool(
    *,
    usd: float | None = 2.5,
    out: float = 1000.0,
    in_: float = 3000.0,
    requests: float = 2.0,
    engines: int = 2,
    gpus: int = 4,
    capacity: float | None = None,
    without: float | None = None,
) -> PoolCost:
    pricing = Pricing(usd, gpus, without)
    return PoolCost(
        engines=engines,
        pricing=pricing,
        output_tokens_per_s=Number.known(out),
        input_tokens_per_s=Number.known(in_),
        requests_per_s=Number.known(requests),
        cost_per_1m_output_usd=pricing.per_million(engines, out),
        cost_per_1m_total_usd=pricing.per_million(engines, out + in_),
        capacity_tokens_per_s=capacity,
    )


def value(number: Number) -> float:
    assert number.value is not None, number.reason
    return number.value


def test_a_worked_example() -> None:
    """8 GPUs at 2.50 are 20 USD/h; 3.6M tokens out and 10.8M in would be billed at 86.40 USD."""
    said = compare(pool(capacity=2000.0), SONNET)
    assert value(said.usd_per_1m_output) == pytest.approx(15 + 3 * 3)
    assert value(said.usd_per_1m_total) == pytest.approx((15 + 9) / 4)
    assert value(said.ratio) == pytest.approx(20 / 86.4)
    assert value(said.break_even_output_tokens_per_s) == pytest.approx(1000 * 20 / 86.4)
    assert value(said.break_even_utilisation) == pytest.approx(0.5 * 20 / 86.4)
    assert value(said.break_even_gpu_hour_usd) == pytest.approx(86.4 / 8)


def test_long_prompts_are_compared_at_their_own_tier() -> None:
    assert compare(pool(in_=300_000.0, requests=2.0), SONNET).tier == SONNET.tiers[1]
    assert compare(pool(), SONNET).tier == SONNET.tiers[0]


def test_without_a_gpu_price_there_is_no_ratio_but_a_break_even_price() -> None:
    said = compare(pool(usd=None), SONNET)
    assert said.ratio.value is None
    assert "--gpu-hour-usd" in (said.ratio.reason or "")
    assert value(said.break_even_gpu_hour_usd) == pytest.approx(86.4 / 8)
    assert value(said.usd_per_1m_total) == pytest.approx(6.0)


def test_no_traffic_is_unknown_and_not_zero() -> None:
    said = compare(pool(out=0.0, in_=0.0), SONNET)
    for number in (said.ratio, said.usd_per_1m_total, said.break_even_output_tokens_per_s):
        assert (number.state, number.value) == ("unknown", None)
        assert number.reason == "no output tokens in the window"


def test_a_model_that_costs_nothing_has_no_ratio() -> None:
    said = compare(pool(), HostedPrice("f", "maker", "f", (PriceTier(0, 0.0, 0.0),)))
    assert said.ratio.reason == "the hosted model costs nothing"


def test_utilisation_needs_a_capacity() -> None:
    assert value(pool(capacity=4000.0).utilisation) == pytest.approx(0.25)
    assert "--capacity" in (compare(pool(), SONNET).break_even_utilisation.reason or "")


def test_what_speculation_saves_against_the_measured_baseline() -> None:
    ours = value(pool().cost_per_1m_output_usd)
    assert value(pool(without=2 * ours).saving) == pytest.approx(0.5)
    assert value(pool(without=ours / 2).saving) == pytest.approx(-1.0)
    assert "--baseline-cost" in (pool().saving.reason or "")


prices = st.floats(0.01, 100)
rates = st.floats(1, 1e6)


@given(usd=prices, more=st.floats(1.01, 10), out=rates, in_=rates)
def test_the_ratio_is_monotone_in_our_price_and_inverse_in_our_rate(
    usd: float, more: float, out: float, in_: float
) -> None:
    base = compare(pool(usd=usd, out=out, in_=in_), SONNET)
    dearer = compare(pool(usd=usd * more, out=out, in_=in_), SONNET)
    assert value(dearer.ratio) > value(base.ratio)
    # Twice the requests on the same GPUs: the mean prompt stays, and so does the tier.
    busier = compare(pool(usd=usd, out=2 * out, in_=2 * in_, requests=4.0), SONNET)
    assert value(busier.ratio) == pytest.approx(value(base.ratio) / 2)
    assert value(busier.break_even_output_tokens_per_s) == pytest.approx(
        value(base.break_even_output_tokens_per_s)
    )
    assert value(busier.break_even_gpu_hour_usd) == pytest.approx(
        2 * value(base.break_even_gpu_hour_usd)
    )


@given(usd=prices, out=rates, in_=rates, theirs_in=prices, theirs_out=prices)
def test_at_the_break_even_rate_both_cost_the_same(
    usd: float, out: float, in_: float, theirs_in: float, theirs_out: float
) -> None:
    price = HostedPrice("x", "maker", "x", (PriceTier(0, theirs_in, theirs_out),))
    said = compare(pool(usd=usd, out=out, in_=in_), price)
    even = value(said.break_even_output_tokens_per_s)
    there = pool(usd=usd, out=even, in_=in_ / out * even)
    assert value(compare(there, price).ratio) == pytest.approx(1.0)
    assert value(there.cost_per_1m_total_usd) == pytest.approx(value(said.usd_per_1m_total))
    cheap = pool(usd=value(said.break_even_gpu_hour_usd), out=out, in_=in_)
    assert value(compare(cheap, price).ratio) == pytest.approx(1.0)


@given(out=rates, in_=rates)
def test_both_ways_of_telling_a_price_give_one_ratio(out: float, in_: float) -> None:
    ours = pool(out=out, in_=in_)
    said: Comparison = compare(ours, replace(SONNET, tiers=SONNET.tiers[:1]))
    by_total = value(ours.cost_per_1m_total_usd) / value(said.usd_per_1m_total)
    by_output = value(ours.cost_per_1m_output_usd) / value(said.usd_per_1m_output)
    assert value(said.ratio) == pytest.approx(by_total)
    assert value(said.ratio) == pytest.approx(by_output)
