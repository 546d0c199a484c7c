"""Every number of the contract, from increases and gauges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.cost import Pricing
from speccli.core.metrics.counters import INF
from speccli.core.stats.increase import Increase, Pool
from speccli.core.stats.measures import Metrics, Stuck, Subject, larger, measure
from speccli.core.values import Number
from tests.core.pages import counters

Hists = Mapping[str, tuple[Sequence[float], Sequence[float], float]]


def grown(
    slots: Mapping[str, float], hists: Hists | None = None, seconds: float | None = 10.0
) -> Increase:
    sample = counters(0, slots, hists)
    return Increase(sample.layout, sample.values, seconds)


def measured(
    *increases: Increase,
    gauges: Sequence[Mapping[str, float]] | None = None,
    kind: str = "vllm",
    price: float | None = None,
    several: bool = False,
    speculating: bool = True,
) -> Metrics:
    subject = Subject(
        Pool(increases), gauges or [{} for _ in increases], kind, several, speculating=speculating
    )
    return measure(subject, Pricing(price))


def spec(drafts: float, drafted: float, accepted: float, *positions: float) -> Increase:
    slots = {"drafts": drafts, "draft_tokens": drafted, "accepted_tokens": accepted}
    return grown(slots | {f"accepted_at:{i}": n for i, n in enumerate(positions)})


# ---- acceptance ----


def test_acceptance_is_pooled_before_dividing() -> None:
    metrics = measured(spec(200, 1000, 800), spec(20, 100, 10))
    assert metrics.acceptance_rate.value == pytest.approx(810 / 1100)
    assert metrics.acceptance_length.value == pytest.approx(1 + 810 / 220)
    assert metrics.acceptance_rate.n == 1100
    assert metrics.drafts.value == 220


def test_the_counter_that_lacks_is_the_one_that_is_named() -> None:
    """Its series was there and no number: it was dropped, and the others stay."""
    left = grown({"drafts": 100, "draft_tokens": 300})
    metrics = measured(left)
    name = "vllm:spec_decode_num_accepted_tokens_total is not exposed"
    assert metrics.acceptance_rate.reason == metrics.acceptance_length.reason == name
    assert metrics.draft_tokens.value == 300
    partial = Subject(Pool([left]), [{}], "vllm", partial=True)
    told = measure(partial, Pricing()).acceptance_rate.reason
    assert told == f"{name}, or could not be read"
    apart = measured(left, grown({"accepted_tokens": 200}))
    assert apart.acceptance_rate.reason == "no engine has all of draft_tokens, accepted_tokens"


def test_acceptance_by_position_is_unconditional() -> None:
    metrics = measured(spec(1000, 5000, 836, 720, 90, 20, 5, 1))
    assert [n.value for n in metrics.acceptance_by_position] == [0.72, 0.09, 0.02, 0.005, 0.001]


def test_zero_acceptance_is_a_value_and_not_unknown() -> None:
    metrics = measured(spec(1000, 5000, 0, 0, 0, 0, 0, 0))
    assert (metrics.acceptance_rate.value, metrics.acceptance_rate.state) == (0.0, "value")
    assert metrics.acceptance_length.value == 1.0
    assert [n.value for n in metrics.acceptance_by_position] == [0.0] * 5


def test_no_drafts_is_unknown_and_not_zero() -> None:
    metrics = measured(spec(0, 0, 0, 0, 0))
    for number in (
        metrics.acceptance_rate,
        metrics.acceptance_length,
        *metrics.acceptance_by_position,
    ):
        assert (number.value, number.reason) == (None, "no drafts in the window")
    assert metrics.drafts.value == 0.0


def test_an_engine_without_speculation_adds_nothing_to_a_ratio() -> None:
    plain = grown({"generation_tokens": 1_000_000})
    assert measured(spec(10, 30, 15), plain).acceptance_rate.value == 0.5
    assert measured(plain, speculating=False).acceptance_rate.reason == (
        "no speculation metrics: speculation is off"
    )
    assert "spec_decode_num_draft" in (measured(plain).acceptance_rate.reason or "")


@pytest.mark.parametrize(
    ("drafts", "drafted", "accepted"),
    [(10, 20, 21), (0, 5, 1), (5, 0, 3)],
    ids=["more-accepted-than-drafted", "tokens-without-drafts", "drafts-without-tokens"],
)
def test_counters_that_contradict_each_other_make_no_number(
    drafts: float, drafted: float, accepted: float
) -> None:
    metrics = measured(spec(drafts, drafted, accepted))
    assert metrics.acceptance_length.value is None
    assert metrics.acceptance_rate.value is None or drafted > 0


def test_varying_draft_lengths_hide_the_positions_that_were_not_always_tried() -> None:
    first, *rest = measured(spec(1000, 1400, 900, 700, 100, 100)).acceptance_by_position
    assert first.value == 0.7
    assert all("draft lengths vary (1.4 of 3" in (n.reason or "") for n in rest)


def test_engines_of_different_k_share_the_positions_both_draft() -> None:
    metrics = measured(spec(100, 300, 150, 90, 40, 20), spec(100, 500, 150, 70, 30, 20, 20, 10))
    assert [n.value for n in metrics.acceptance_by_position] == [0.8, 0.35, 0.2, 0.2, 0.1]


@given(
    st.lists(
        st.tuples(*[st.integers(0, 100)] * 5).map(lambda t: spec(*t[:3], *t[3:])),
        min_size=1,
        max_size=5,
    )
)
def test_every_ratio_of_any_counters_is_possible_or_unknown(increases: list[Increase]) -> None:
    metrics = measured(*increases)
    for number in (metrics.acceptance_rate, *metrics.acceptance_by_position):
        assert number.value is None or 0 <= number.value <= 1
        assert (number.value is None) == bool(number.state == "unknown" and number.reason)
    assert (metrics.acceptance_length.value or 1) >= 1


# ---- steps, batches, waste ----


def tokens(generation: float, ttft: float, itl: float, steps: float | None = None) -> Increase:
    slots = {"generation_tokens": generation} | ({} if steps is None else {"steps": steps})
    return grown(slots, {"ttft": ([1.0], (ttft, ttft), 0.0), "itl": ([1.0], (itl, itl), 0.0)})


def test_tokens_per_step_counts_steps_without_drafts_too() -> None:
    metrics = measured(tokens(1850 + 26, 26, 1000))
    assert metrics.tokens_per_step.value == 1.85
    assert metrics.tokens_per_step.n == 1000


@pytest.mark.parametrize(
    ("increase", "reason"),
    [
        (tokens(5, 5, 0), "no decode steps in the window"),
        (tokens(5, 9, 4), "contradict each other"),
        (grown({"generation_tokens": 5}), "inter_token_latency_seconds is not exposed"),
    ],
)
def test_tokens_per_step_is_unknown_for_a_reason(increase: Increase, reason: str) -> None:
    number = measured(increase).tokens_per_step
    assert number.value is None
    assert reason in (number.reason or "")


def test_batch_size_is_requests_per_step() -> None:
    assert measured(tokens(0, 10, 310, steps=40)).batch_size.value == 8.0
    assert measured(tokens(0, 0, 0, steps=40)).batch_size.value is None
    assert measured(tokens(0, 10, 310)).batch_size.value is None


def test_a_step_count_of_several_api_servers_is_not_used() -> None:
    number = measured(tokens(0, 10, 310, steps=40), several=True).batch_size
    assert number.value is None
    assert "several API servers" in (number.reason or "")


def test_waste_is_what_was_drafted_and_not_accepted_per_second() -> None:
    assert measured(spec(100, 300, 120)).wasted_draft_tokens_per_s.value == 18.0
    assert measured(tokens(1, 1, 1)).wasted_draft_tokens_per_s.value is None


# ---- queue ----


def queue(count: float, total: float, ttft: float, seconds: float | None = 10.0) -> Increase:
    hists: Hists = {
        "queue": ([0.3], (count, count), total),
        "ttft": ([1.0], (ttft, ttft), 0.0),
    }
    return grown({}, hists, seconds)


def test_queue_wait_is_the_larger_of_observed_and_backlog() -> None:
    busy = measured(queue(100, 20.0, 50), gauges=[{"waiting": 10}])
    assert busy.queue_wait_observed_ms.value == 200
    assert busy.queue_wait_backlog_ms.value == 2000
    assert busy.queue_wait_ms.value == 2000
    calm = measured(queue(100, 20.0, 50), gauges=[{"waiting": 0}])
    assert (calm.queue_wait_backlog_ms.value, calm.queue_wait_ms.value) == (0, 200)


def test_a_queue_that_nobody_leaves_is_not_hidden_by_old_waits() -> None:
    metrics = measured(queue(5, 0.1, 0), gauges=[{"waiting": 7}])
    assert metrics.queue_wait_ms.value is None
    assert metrics.queue_wait_ms.reason == "7 waiting and none left the queue"


def test_nothing_waits_where_nothing_was_observed_and_nothing_queues() -> None:
    metrics = measured(queue(0, 0, 0), gauges=[{"waiting": 0}])
    assert (metrics.queue_wait_ms.value, metrics.queue_wait_ms.reason) == (0.0, "nothing waits")


def test_backlog_needs_a_departure_rate() -> None:
    number = measured(queue(5, 1, 5, seconds=None), gauges=[{"waiting": 7}]).queue_wait_backlog_ms
    assert "departure rate unknown" in (number.reason or "")


NUMBERS = st.one_of(
    st.floats(0, 1e6).map(Number.known),
    st.sampled_from([Number.unknown("absent"), Stuck.unknown("7 of them wait for good")]),
)


@given(NUMBERS, NUMBERS)
def test_the_larger_of_two_is_never_less_than_a_known_one(one: Number, two: Number) -> None:
    found = larger(one, two)
    stuck = isinstance(two, Stuck)
    if found.value is not None:
        assert found.value == max(one.value or 0, two.value or 0)
    else:
        assert stuck or one.value is None


# ---- gauges, rates, latencies ----


def test_gauges_are_summed_and_cache_usage_is_the_fullest() -> None:
    gauges = [
        {"running": 3.0, "waiting": 1.0, "kv_cache_usage": 0.2},
        {"running": 5.0, "waiting": 0.0, "kv_cache_usage": 0.9},
    ]
    metrics = measured(grown({}), grown({}), gauges=gauges)
    assert (metrics.running.value, metrics.waiting.value) == (8, 1)
    assert metrics.kv_cache_usage.value == 0.9
    assert measured(grown({})).running.value is None


def test_rates_need_two_scrapes() -> None:
    number = measured(grown({"generation_tokens": 5}, seconds=None)).output_tokens_per_s
    assert (number.value, number.reason) == (None, "a rate needs two scrapes")


def test_rates_are_per_second_of_each_engines_own_time() -> None:
    metrics = measured(
        grown({"generation_tokens": 100, "prompt_tokens": 300, "finished": 5}, seconds=10),
        grown({"generation_tokens": 100, "prompt_tokens": 100, "finished": 5}, seconds=50),
    )
    assert metrics.output_tokens_per_s.value == 12.0
    assert metrics.input_tokens_per_s.value == 32.0
    assert metrics.requests_per_s.value == pytest.approx(0.6)


def test_one_scrape_is_said_to_count_from_the_start() -> None:
    sample = counters(0, {"drafts": 1, "draft_tokens": 2, "accepted_tokens": 1})
    increase = Increase(sample.layout, sample.values, None, since_start=True)
    assert measured(increase).acceptance_rate.reason == (
        "since the process started: one scrape only"
    )


def test_latencies_of_the_pool_are_those_of_the_merged_buckets() -> None:
    fast = grown({}, {"itl": ([0.01, 0.1], (90, 90, 90), 0.5)})
    slow = grown({}, {"itl": ([0.01, 0.1], (0, 10, 10), 0.5)})
    found = measured(fast, slow).itl_s
    assert (found.p50.low, found.p50.high) == (0.0, 0.01)
    assert (found.p99.low, found.p99.high, found.p99.n) == (0.01, 0.1, 100)
    assert found.mean.value == 0.01
    assert INF not in (found.p99.high, found.p50.high)


def test_an_empty_subject_knows_nothing_and_says_so() -> None:
    metrics = measured()
    assert metrics.acceptance_rate.reason == "no data in the window"
    assert metrics.itl_s.p99.reason == "no data in the window"
    assert metrics.acceptance_by_position == ()


# ---- SGLang ----


def sglang(*gauges: Mapping[str, float]) -> Metrics:
    return measured(*(grown({}) for _ in gauges), gauges=gauges, kind="sglang")


def test_sglangs_gauge_is_taken_for_what_it_is() -> None:
    metrics = sglang({"acceptance_length": 2.5, "verified_tokens_per_step": 4.0})
    assert metrics.acceptance_length.value == 2.5
    assert metrics.acceptance_rate.value == 0.5
    assert "own gauge" in (metrics.acceptance_length.reason or "")


def test_sglangs_gauges_of_several_engines_are_not_averaged() -> None:
    metrics = sglang({"acceptance_length": 2.5}, {"acceptance_length": 1.5})
    assert metrics.acceptance_length.value is None
    assert "cannot be pooled" in (metrics.acceptance_length.reason or "")


@pytest.mark.parametrize("verified", [None, 0.0, 1.0, 2.0])
def test_sglangs_rate_needs_a_draft_length_that_fits(verified: float | None) -> None:
    gauges = {"acceptance_length": 2.5}
    if verified is not None:
        gauges["verified_tokens_per_step"] = verified
    assert sglang(gauges).acceptance_rate.value is None


def test_sglangs_absences_have_sglangs_reasons() -> None:
    metrics = sglang({})
    assert "gauge over its log interval" in (metrics.acceptance_rate.reason or "")
    assert "per token, not per step" in (metrics.tokens_per_step.reason or "")
    assert "no step counter" in (metrics.batch_size.reason or "")


def test_positions_without_a_count_of_drafts_are_unknown() -> None:
    [number] = measured(grown({"accepted_at:0": 5})).acceptance_by_position
    assert number.reason == "position 0 is not exported beside drafts"


def test_no_verify_step_is_no_acceptance() -> None:
    assert sglang({"acceptance_length": 0.0}).acceptance_length.value is None


# ---- cost ----


def test_cost_is_of_all_engines_for_all_their_tokens() -> None:
    increases = [grown({"generation_tokens": 1e5, "prompt_tokens": 3e5}, seconds=100)] * 2
    metrics = measured(*increases, price=3.6)
    assert metrics.cost_per_1m_output_usd.value == pytest.approx(1.0)
    assert metrics.cost_per_1m_total_usd.value == pytest.approx(0.25)
    assert measured(*increases).cost_per_1m_output_usd.reason == (
        "no GPU price given (--gpu-hour-usd)"
    )


def test_cost_of_a_pool_summed_elsewhere_counts_its_engines() -> None:
    subject = Subject(Pool([grown({"generation_tokens": 1e6})]), [], "vllm", engines=50)
    few = Subject(Pool([grown({"generation_tokens": 1e6})]), [{}], "vllm")
    cost = measure(subject, Pricing(1.0)).cost_per_1m_output_usd.value
    one = measure(few, Pricing(1.0)).cost_per_1m_output_usd.value
    assert cost is not None
    assert one is not None
    assert cost == pytest.approx(50 * one)


def test_without_a_rate_there_is_no_cost_and_the_reason_is_the_rates() -> None:
    metrics = measured(grown({"generation_tokens": 5}, seconds=None), price=1.0)
    assert metrics.cost_per_1m_output_usd.reason == "a rate needs two scrapes"
