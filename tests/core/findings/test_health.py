"""Does it work, can it be read, does it keep its targets: every other rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from speccli.core.cost import Pricing
from speccli.core.findings import Finding, Thresholds, evaluate
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import TrailPoint
from tests.core.findings.bodies import (
    AT,
    A,
    B,
    C,
    Engine,
    answer,
    codes,
    good,
    judge,
    only,
    over_a_minute,
    silence,
    snapshot,
    zero,
)

OLD_ITL = "vllm:time_per_output_token_seconds"
NEW_ITL = "vllm:inter_token_latency_seconds"
TTFT = "vllm:time_to_first_token_seconds"
TPOT = "vllm:request_time_per_output_token_seconds"
QUEUE = "vllm:request_queue_time_seconds"


def busy(**more: Any) -> Engine:
    """A healthy engine's numbers with requests in it."""
    return replace(good(), running=4, waiting=2, **more)


# ---- STALLED ----


def test_work_without_a_token_for_30_s_is_stalled() -> None:
    rounds = [[answer(at, A, busy())] for at in range(0, 35, 5)]
    finding = only(judge(*rounds), "STALLED")
    assert finding.severity == "critical"
    assert finding.evidence == "0 tokens in 30 s with 4 running, 2 waiting"
    assert finding.since == AT
    assert "/health" in finding.cause


def test_requests_that_only_wait_are_stalled_for_another_reason() -> None:
    rounds = [[answer(at, A, replace(good(), running=0, waiting=7))] for at in (0, 20, 40)]
    assert "paused" in only(judge(*rounds), "STALLED").cause


def busy_then(*points: tuple[float, float, float]) -> list[list[Scrape]]:
    """Rounds of (at, output tokens, running)."""
    return [[answer(at, A, replace(good(), gen=gen, running=run))] for at, gen, run in points]


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(busy_then((0, 100, 4), (15, 100, 4), (29, 100, 4)), id="not-long-enough"),
        pytest.param(busy_then((0, 100, 4), (30, 100, 4), (40, 101, 4)), id="a-token-left"),
        pytest.param(busy_then((0, 100, 4), (30, 100, 0), (40, 100, 0)), id="nothing-to-do"),
        pytest.param(busy_then((0, 100, 0), (50, 100, 0), (60, 100, 4)), id="work-just-came"),
        pytest.param(
            [[answer(t, A, Engine(running=4))] for t in (0, 60)], id="tokens-not-exported"
        ),
        pytest.param([[answer(0, A, busy())]], id="one-scrape"),
        pytest.param(
            [[answer(0, A, busy())], [answer(60, A, busy(), started=AT + 50)]], id="just-restarted"
        ),
    ],
)
def test_not_stalled(rounds: list[list[Scrape]]) -> None:
    assert "STALLED" not in codes(judge(*rounds))


def test_a_stall_that_cannot_be_seen_any_more_is_not_told() -> None:
    rounds = [[answer(at, A, busy())] for at in range(0, 40, 5)]
    assert codes(judge(*rounds, [silence(50, A)])) == ["ENGINE_DOWN"]


def test_a_summed_fleet_is_stalled_by_its_trail() -> None:
    shot = snapshot(*[[answer(at, A, busy())] for at in (0, 10)])
    trail = [
        TrailPoint(AT + at, 10, 0, 0, 0, 0 if at > 10 else 5, 0, 0, 3, 9)
        for at in range(10, 60, 10)
    ]
    summed = replace(
        shot, at=AT + 50, engines=(), pooled=shot.subject.pool, pooled_engines=2000, trail=trail
    )
    finding = only(list(evaluate(summed, Thresholds())), "STALLED")
    assert finding.subject == "fleet"
    assert finding.since == AT + 10


# ---- ENGINE_DOWN ----


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("connect refused", "nothing listens"),
        ("no answer within 5 s", "does not answer"),
        ("name not found", "does not resolve"),
        ("certificate not accepted: expired (--ca FILE?)", "certificate"),
        ("OSError: [Errno 5]", "cannot be reached"),
    ],
)
def test_an_engine_that_no_longer_answers_is_down(error: str, word: str) -> None:
    rounds = [[answer(0, A, zero())], [answer(60, A, good())], [silence(90, A, error)]]
    finding = only(judge(*rounds), "ENGINE_DOWN")
    assert finding.severity == "critical"
    assert finding.evidence == f"{error}, last read 30 s ago"
    assert finding.since == AT + 60
    assert word in finding.cause


def test_what_never_answered_is_down_beside_others_and_unknown_alone() -> None:
    finding = only(judge([answer(0, A, zero()), silence(0, B)]), "ENGINE_DOWN")
    assert (finding.subject, finding.severity) == ("b:8000/?", "critical")
    finding = only(judge([silence(0, A)]), "ENGINE_DOWN")
    assert finding.severity == "unknown"
    assert finding.evidence == "connect refused, never answered"


def test_the_engines_of_one_server_go_down_as_one() -> None:
    two = [good(engine="0"), good(engine="1")]
    rounds = [[answer(0, A, *two), answer(0, B, good())], [silence(60, A), answer(60, B, good())]]
    finding = only(judge(*rounds), "ENGINE_DOWN")
    assert finding.subject == "a:8000/*"
    assert "2 engines" in finding.evidence


def test_a_fleet_that_is_down_is_said_once() -> None:
    targets = [f"http://e{i}:8000" for i in range(256)]
    rounds = [[answer(0, t, good()) for t in targets], [silence(60, t) for t in targets]]
    findings = judge(*rounds)
    assert codes(findings) == ["ENGINE_DOWN"]
    assert findings[0].subject == "fleet"
    assert findings[0].evidence.startswith("256 of 256 engines, worst e0:8000/0: connect refused")


def test_one_missed_answer_is_not_down() -> None:
    rounds = [[answer(0, A, zero())], [answer(10, A, good())], [silence(12, A)]]
    assert codes(judge(*rounds)) == ["PARTIAL_DATA"]


# ---- METRICS_MISSING ----


@pytest.mark.parametrize(
    ("scrape", "word", "action"),
    [
        pytest.param(Scrape(AT, A, 401), "AUTH", "--token", id="401"),
        pytest.param(Scrape(AT, A, 200, b"<!DOCTYPE html>"), "AUTH", "--token", id="login-page"),
        pytest.param(Scrape(AT, A, 500), "SERVER", "PROMETHEUS_MULTIPROC_DIR", id="500"),
        pytest.param(Scrape(AT, A, 404), "MISSING", "/metrics", id="404"),
        pytest.param(Scrape(AT, A, 307), "MISSING", "/metrics", id="redirect"),
        pytest.param(Scrape(AT, A, 200), "MISSING", "--disable-log-stats", id="empty-200"),
        pytest.param(Scrape(AT, A, 200, b"up 1\n"), "MISSING", "port", id="another-service"),
        pytest.param(
            Scrape(AT, A, 200, b"# HELP x", truncated=True), "TRUNCATED", "proxy", id="cut"
        ),
        pytest.param(
            Scrape(AT, A, 200, b"vllm:generation_tokens_total NaN\n"), "NAN", "restart", id="nan"
        ),
    ],
)
def test_an_answer_without_metrics_says_what_it_was(scrape: Scrape, word: str, action: str) -> None:
    finding = only(judge([scrape]), "METRICS_MISSING")
    assert finding.severity == "unknown"
    assert finding.evidence.startswith(f"{word}: ")
    assert action in finding.action


def test_an_engine_that_left_its_servers_page_is_missing() -> None:
    rounds = [[answer(0, A, good(), good(engine="1"))], [answer(10, A, good())]]
    finding = only(judge(*rounds), "METRICS_MISSING")
    assert finding.subject == "a:8000/1"
    assert "rank" in finding.action


def test_a_page_with_an_engine_on_it_is_not_missing() -> None:
    assert codes(over_a_minute(zero(3), good())) == []


# ---- METRICS_INCONSISTENT ----


@pytest.mark.parametrize(
    ("last", "words"),
    [
        pytest.param(
            Engine(gen=1836, dt=5000, acc=1600, dr=1000, pos=[720, 90, 20, 5, 1]),
            "acceptance length 2.60 and 1 + Σ positions 1.84, n=1000 drafts",
            id="length-is-not-the-sum-of-positions",
        ),
        pytest.param(
            Engine(gen=2250, dt=5000, acc=1250, dr=1000, pos=[400, 650, 200, 0, 0]),
            "position 1 accepted 650 of 400 accepted at position 0",
            id="a-position-beats-the-one-before",
        ),
        pytest.param(
            Engine(gen=2250, dt=9000, acc=1250, dr=1000, pos=[650, 400, 200, 0, 0]),
            "9,000 draft tokens in 1,000 drafts of 5",
            id="more-drafted-than-k-allows",
        ),
    ],
)
def test_counters_that_contradict_each_other(last: Engine, words: str) -> None:
    finding = only(over_a_minute(zero(), last), "METRICS_INCONSISTENT")
    assert finding.severity == "warning"
    assert words in finding.evidence
    assert "over 60 s" in finding.evidence


def test_more_accepted_than_drafted_since_the_start() -> None:
    last = Engine(gen=900, dt=500, acc=800, dr=1000)
    finding = only(judge([answer(0, A, last)]), "METRICS_INCONSISTENT")
    assert "accepted 800 of 500 draft tokens" in finding.evidence


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(good(), id="sound"),
        pytest.param(
            Engine(gen=1840, dt=5000, acc=840, dr=1000, pos=[720, 90, 20, 5, 1]), id="torn"
        ),
        pytest.param(Engine(gen=1800, dt=5000, acc=800, dr=1000), id="no-positions-no-k"),
        pytest.param(Engine(gen=1800, acc=800, dr=1000, pos=[700, 100]), id="no-draft-tokens"),
    ],
)
def test_counters_that_agree(last: Engine) -> None:
    findings = over_a_minute(zero(len(last.pos)), last)
    assert "METRICS_INCONSISTENT" not in codes(findings)


def test_an_interval_that_was_left_out_is_noted() -> None:
    def at(i: int) -> Engine:
        return Engine(gen=1000 * i, dt=100 * i, acc=300 * i, dr=100 * i)

    rounds = [[answer(0, A, zero(0))], *[[answer(10 * i, A, at(i))] for i in range(1, 6)]]
    findings = [f for f in judge(*rounds) if f.code == "METRICS_INCONSISTENT"]
    assert [finding.severity for finding in findings] == ["info"]
    assert "1 interval left out" in findings[0].evidence


def test_a_load_balancer_in_front_of_several_processes_is_named() -> None:
    rounds = [
        [answer(10 * i, A, good(1000 * i), started=AT - 1000 * (1 + i % 2))] for i in range(5)
    ]
    findings = judge(*rounds)
    assert codes(findings) == ["METRICS_INCONSISTENT"]
    assert "load balancer" in findings[0].cause
    assert "--endpoint" in findings[0].action
    assert findings[0].evidence == "its start time goes back and forth between scrapes"


def test_a_process_that_may_have_been_replaced_is_noted_and_no_warning() -> None:
    rounds = [[answer(10 * i, A, good(1000 + i), started=AT - 1000 + 300 * i)] for i in range(2)]
    finding = only(judge(*rounds), "PARTIAL_DATA")
    assert finding.severity == "info"
    assert "a few scrapes will tell" in finding.evidence


# ---- VERSION_SKEW ----


def ladder(name: str, n: float) -> dict[str, tuple[list[tuple[str, float]], float]]:
    return {name: ([("0.05", n), ("+Inf", n)], n * 0.01)}


def test_t14_two_versions_are_one_finding_and_every_pod_counts_once() -> None:
    def pods(n: float) -> dict[str, Engine]:
        gauge = {"vllm:gpu_cache_usage_perc": 0.5}
        return {
            A: replace(good(n), histograms=ladder(OLD_ITL, n), counts=gauge),
            B: replace(
                good(n),
                histograms={**ladder(OLD_ITL, n), **ladder(NEW_ITL, n)},
                counts={"vllm:kv_cache_usage_perc": 0.25},
            ),
            C: replace(good(n), histograms=ladder(NEW_ITL, n)),
        }

    rounds = [[answer(at, t, e) for t, e in pods(n).items()] for at, n in ((0, 1), (60, 1001))]
    finding = only(judge(*rounds), "VERSION_SKEW")
    assert finding.severity == "warning"
    assert finding.subject == "fleet"
    assert f"itl read from {OLD_ITL} (a:8000/0), {NEW_ITL} (b:8000/0, c:8000/0)" in finding.evidence
    assert "gpu_cache_usage_perc (a:8000/0)" in finding.evidence
    itl = snapshot(*rounds).subject.pool.histogram("itl")
    assert itl is not None
    assert itl.n == 3000


def pair(first: Engine, second: Engine, **infos: dict[str, Any]) -> list[list[Scrape]]:
    return [
        [
            answer(at, A, replace(first, gen=at), info=infos.get("a", {})),
            answer(at, B, replace(second, gen=at), info=infos.get("b", {})),
        ]
        for at in (0, 60)
    ]


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        pytest.param(
            pair(good(version="0.12.0"), good(version="0.32.0")),
            "version 0.12.0 (a:8000/0), 0.32.0 (b:8000/0)",
            id="version",
        ),
        pytest.param(pair(zero(3), zero(5)), "K 3 (a:8000/0), 5 (b:8000/0)", id="k"),
        pytest.param(
            pair(good(), good(), a={"method": "eagle3"}, b={"method": "p-eagle"}),
            "method eagle3 (a:8000/0), p-eagle (b:8000/0)",
            id="method",
        ),
        pytest.param(
            pair(good(), Engine()),
            "method none (b:8000/0), speculating (a:8000/0)",
            id="on-and-off",
        ),
    ],
)
def test_engines_of_one_model_that_differ(rounds: list[list[Scrape]], words: str) -> None:
    assert words in only(judge(*rounds), "VERSION_SKEW").evidence


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(pair(good(), good()), id="alike"),
        pytest.param(pair(good(), good(), a={"version": "0.32.0"}), id="one-does-not-tell"),
        pytest.param(pair(good(), good(), a={"method": "eagle3"}), id="one-method-not-told"),
        pytest.param(pair(zero(3), zero(5, model="another")), id="two-models"),
    ],
)
def test_no_skew(rounds: list[list[Scrape]]) -> None:
    assert "VERSION_SKEW" not in codes(judge(*rounds))


def of_pools(first: str | None, second: str | None) -> list[list[Scrape]]:
    """Two servers that differ in method, K and version."""
    one, other = zero(5, version="0.32.0"), zero(3, version="0.31.0")
    rounds = pair(one, other, a={"method": "eagle3"}, b={"method": "ngram"})
    return [[replace(a, pool=first), replace(b, pool=second)] for a, b in rounds]


def test_pools_that_differ_are_no_skew() -> None:
    assert "VERSION_SKEW" not in codes(judge(*of_pools("main", "standby")))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("main", "main", id="one-pool"),
        pytest.param(None, None, id="pools-not-known"),
        pytest.param("main", None, id="one-pool-not-known"),
        pytest.param(None, "standby", id="the-other-not-known"),
    ],
)
def test_what_differs_inside_a_pool_or_where_none_is_known_is(
    first: str | None, second: str | None
) -> None:
    said = only(judge(*of_pools(first, second)), "VERSION_SKEW").evidence
    assert said == (
        "version 0.31.0 (b:8000/0), 0.32.0 (a:8000/0); K 3 (b:8000/0), 5 (a:8000/0); "
        "method eagle3 (a:8000/0), ngram (b:8000/0)"
    )


def test_a_pool_half_way_through_a_rollout_is_skew_beside_another_that_is_whole() -> None:
    rounds = [
        [
            replace(answer(at, A, replace(zero(5), gen=at)), pool="main"),
            replace(answer(at, B, replace(zero(3), gen=at)), pool="main"),
            replace(answer(at, C, replace(zero(2), gen=at)), pool="standby"),
        ]
        for at in (0, 60)
    ]
    assert only(judge(*rounds), "VERSION_SKEW").evidence == "K 3 (b:8000/0), 5 (a:8000/0)"


# ---- NO_TRAFFIC ----


def test_an_idle_fleet_is_said_once() -> None:
    rounds = [[answer(at, t, good()) for t in (A, B, C)] for at in (0, 60)]
    findings = judge(*rounds)
    assert codes(findings) == ["NO_TRAFFIC"]
    assert findings[0].subject == "fleet"
    assert "on 3 engines" in findings[0].evidence


def test_one_idle_engine_among_busy_ones_is_pointed_at() -> None:
    rounds = [[answer(at, A, good(1 + at)), answer(at, B, good())] for at in (0, 60)]
    finding = only(judge(*rounds), "NO_TRAFFIC")
    assert finding.subject == "b:8000/0"
    assert "load balancer" in finding.action


def test_an_engine_with_requests_in_it_is_not_without_traffic() -> None:
    rounds = [[answer(at, A, replace(good(), running=1))] for at in (0, 10)]
    assert codes(judge(*rounds)) == []


# ---- PARTIAL_DATA ----


def test_a_cut_page_is_partial() -> None:
    rounds = [[answer(0, A, zero())], [replace(answer(60, A, good()), truncated=True)]]
    finding = only(judge(*rounds), "PARTIAL_DATA")
    assert finding.severity == "warning"
    assert finding.evidence.startswith("TRUNCATED: ")


def test_a_gauge_that_is_not_a_number_is_a_note() -> None:
    nan = {"vllm:kv_cache_usage_perc": float("nan")}
    findings = over_a_minute(zero(3), replace(good(), counts=nan))
    assert only(findings, "PARTIAL_DATA").severity == "info"


def test_what_the_source_says_of_itself_is_passed_on() -> None:
    shot = replace(snapshot([answer(0, A, good())]), note="partial response: store 2 is down")
    finding = only(list(evaluate(shot, Thresholds())), "PARTIAL_DATA")
    assert (finding.severity, finding.subject) == ("info", "fleet")
    assert "store 2" in finding.evidence


@pytest.mark.parametrize(("b_answers", "severity"), [(True, "info"), (False, "unknown")])
def test_stale_engines_matter_when_no_other_is_fresh(*, b_answers: bool, severity: str) -> None:
    rounds = [[answer(0, A, good())], [answer(60, B, good())] if b_answers else []]
    finding = only(judge(*rounds, now=60), "PARTIAL_DATA")
    assert finding.severity == severity
    assert finding.since == AT


def test_a_whole_page_is_not_partial() -> None:
    assert codes(over_a_minute(zero(3), good())) == []


# ---- targets ----


def queued(n: float, wait_s: float, waiting: float = 0) -> Engine:
    """`n` requests that waited `wait_s` on average."""
    return replace(
        good(1 + n),
        waiting=waiting,
        histograms={QUEUE: ([("0.3", n), ("+Inf", n)], n * wait_s), TTFT: ([("+Inf", n)], n)},
    )


def test_a_queue_over_its_target_is_a_warning() -> None:
    rounds = [[answer(0, A, queued(0, 0))], [answer(60, A, queued(100, 0.45))]]
    finding = only(judge(*rounds, queue_wait_ms=200.0), "QUEUE_WAIT")
    assert finding.subject == "a:8000/0"
    assert finding.evidence.startswith("queue wait 450 ms (target 200 ms): observed 450 ms")
    assert "n=100 requests" in finding.evidence


def test_a_backlog_counts_before_any_of_it_has_finished() -> None:
    rounds = [[answer(0, A, queued(0, 0))], [answer(60, A, queued(60, 0.001, waiting=5))]]
    finding = only(judge(*rounds, queue_wait_ms=200.0), "QUEUE_WAIT")
    assert "backlog 5,000 ms, 5 waiting" in finding.evidence


def test_a_pile_on_one_engine_is_told_of_that_engine() -> None:
    rounds = [
        [answer(0, A, queued(0, 0)), answer(0, B, queued(0, 0))],
        [answer(60, A, queued(10, 0.9)), answer(60, B, queued(990, 0.01))],
    ]
    finding = only(judge(*rounds, queue_wait_ms=200.0), "QUEUE_WAIT")
    assert finding.subject == "a:8000/0"
    assert "pile up" in finding.cause


def test_a_fleet_over_its_target_is_told_once() -> None:
    targets = (A, B)
    rounds = [
        [answer(0, t, queued(0, 0)) for t in targets],
        [answer(60, t, queued(100, 0.9)) for t in targets],
    ]
    assert only(judge(*rounds, queue_wait_ms=200.0), "QUEUE_WAIT").subject == "fleet"


@pytest.mark.parametrize(
    ("last", "target"),
    [
        pytest.param(queued(100, 0.45), None, id="no-target"),
        pytest.param(queued(100, 0.15), 200.0, id="under-it"),
        pytest.param(replace(good(), waiting=50), 200.0, id="departures-unknown"),
    ],
)
def test_no_queue_wait(last: Engine, target: float | None) -> None:
    first = replace(queued(0, 0), histograms={}) if not last.histograms else queued(0, 0)
    assert "QUEUE_WAIT" not in codes(over_a_minute(first, last, queue_wait_ms=target))


def slow(family: str, *counts: float) -> Engine:
    """Observations at most 0.1, 0.5, 1 s and beyond."""
    bounds = ("0.1", "0.5", "1.0", "+Inf")
    buckets = list(zip(bounds, counts, strict=True))
    return replace(good(1 + counts[-1]), histograms={family: (buckets, counts[-1])})


@pytest.mark.parametrize(
    ("family", "target", "counts", "words"),
    [
        (TTFT, "ttft_p99_ms", (0, 100, 200, 200), "first token p99 500–1,000 ms (target 500 ms)"),
        (TPOT, "tpot_p99_ms", (0, 0, 0, 200), "output token p99 over 1,000 ms (target 500 ms)"),
    ],
)
def test_a_p99_whose_whole_bucket_is_over_the_target(
    family: str, target: str, counts: tuple[float, ...], words: str
) -> None:
    more: dict[str, Any] = {target: 500.0}
    findings = over_a_minute(slow(family, 0, 0, 0, 0), slow(family, *counts), **more)
    finding = only(findings, "P99_REGRESSION")
    assert words in finding.evidence
    assert "n=200" in finding.evidence


@pytest.mark.parametrize(
    ("counts", "target"),
    [
        pytest.param((0, 100, 200, 200), None, id="no-target"),
        pytest.param((0, 100, 200, 200), 600.0, id="the-target-lies-inside-the-bucket"),
        pytest.param((200, 200, 200, 200), 50.0, id="inside-the-first-bucket"),
        pytest.param((0, 0, 0, 99), 500.0, id="too-few-for-a-p99"),
    ],
)
def test_no_p99_regression(counts: tuple[float, ...], target: float | None) -> None:
    findings = over_a_minute(slow(TTFT, 0, 0, 0, 0), slow(TTFT, *counts), ttft_p99_ms=target)
    assert "P99_REGRESSION" not in codes(findings)


def costs(price: float | None, target: float | None, seconds: float = 60) -> list[Finding]:
    rounds = [[answer(0, A, zero(3))], [answer(seconds, A, good())]]
    pricing = Pricing(gpu_hour_usd=price)
    return judge(*rounds, pricing=pricing, cost_per_1m_usd=target)


def test_a_million_tokens_over_the_target_is_a_warning() -> None:
    finding = only(costs(3.6, 20.0), "COST_OVER")
    assert finding.evidence.startswith("$26.67 per 1M output tokens (target $20.00) at 38 tokens/s")


@pytest.mark.parametrize(
    ("price", "target"),
    [
        pytest.param(3.6, None, id="no-target"),
        pytest.param(None, 1.0, id="no-price"),
        pytest.param(3.6, 30.0, id="under-it"),
    ],
)
def test_no_cost_over(price: float | None, target: float | None) -> None:
    assert codes(costs(price, target)) == []


# ---- all together ----


def test_the_worst_comes_first() -> None:
    rounds = [
        [answer(0, A, zero(3)), answer(0, B, zero(3)), answer(0, C, good())],
        [answer(60, A, Engine(gen=1000, dt=3000, acc=0, dr=1000, pos=[0] * 3)),
         Scrape(AT + 60, B, 500), answer(60, C, good(version="0.1"))],
    ]  # fmt: skip
    findings = judge(*rounds)
    assert [f.severity for f in findings] == ["critical", "unknown", "info"]


def test_a_summed_fleet_is_judged_as_one() -> None:
    shot = snapshot([answer(0, A, zero())], [answer(60, A, Engine(gen=900, dt=5000, acc=0, dr=1000,
                                                                  pos=[0] * 5))])  # fmt: skip
    summed = replace(shot, engines=(), pooled=shot.subject.pool, pooled_engines=2000)
    finding = only(list(evaluate(summed, Thresholds())), "ZERO_ACCEPTANCE")
    assert finding.subject == "fleet"


def test_an_idle_summed_fleet_has_no_traffic() -> None:
    shot = snapshot([answer(0, A, good())], [answer(60, A, good())])
    summed = replace(shot, engines=(), pooled=shot.subject.pool, pooled_engines=2000)
    assert codes(list(evaluate(summed, Thresholds()))) == ["NO_TRAFFIC"]
