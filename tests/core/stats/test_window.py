"""Bodies in, snapshots out: the whole metric path, on the ugly things that fleets do."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.cost import Pricing
from speccli.core.findings import Thresholds, evaluate
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot
from speccli.core.stats.window import Settings, Window
from tests.core.pages import REQUEST, STARTED, TARGET, Engine, Hist, page, scrape, spec_page

WHOLE = Settings(window_s=None, span_s=None)
"""As a replay looks at a recording."""
NOW = STARTED + 1000
GEN = 'vllm:generation_tokens_total{engine="0",model_name="m"}'


def replay(bodies: Sequence[str | bytes], settings: Settings = WHOLE) -> Window:
    """One scrape a second of one server."""
    window = Window(settings)
    for i, body in enumerate(bodies):
        window.push([scrape(NOW + i, body)])
    return window


def seen(*bodies: str | bytes) -> Snapshot:
    return replay(bodies).snapshot()


def only(snapshot: Snapshot) -> EngineSnapshot:
    [engine] = snapshot.engines
    return engine


def texts(window: Window) -> list[str]:
    return [event.text for event in window.events]


# ---- the operators' cases ----


def test_t1_uneven_engines_are_pooled_before_dividing_and_created_is_not_counted() -> None:
    def both(first: tuple[float, ...], second: tuple[float, ...]) -> str:
        return "".join(
            spec_page(drafts=dr, drafted=dt, accepted=acc, engine=engine, created=True)
            for engine, (dr, dt, acc) in (("0", first), ("1", second))
        )

    snapshot = seen(both((0, 0, 0), (0, 0, 0)), both((200, 1000, 800), (20, 100, 10)))
    assert snapshot.fleet.acceptance_rate.value == pytest.approx(810 / 1100)
    assert snapshot.fleet.acceptance_length.value == pytest.approx(1 + 810 / 220)
    assert [e.metrics.acceptance_rate.value for e in snapshot.engines] == [0.8, 0.1]


def test_t2_a_gauge_of_eight_processes_is_the_largest_of_them() -> None:
    lines = [
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="m",pid="{pid}"}} '
        + ("0.6530455880475035" if pid == 273 else "0.0")
        for pid in range(271, 279)
    ]
    assert seen("\n".join(lines) + "\n").fleet.kv_cache_usage.value == 0.6530455880475035


def test_t3_a_reset_in_mid_window_is_counted_through() -> None:
    window = Window(WHOLE)
    history = [(0, 1000, 2000), (15, 1090, 2150), (30, 12, 20), (45, 60, 100)]
    for at, accepted, drafted in history:
        body = spec_page(drafts=drafted / 5, drafted=drafted, accepted=accepted)
        window.push([scrape(NOW + at, body)])
    engine = only(window.snapshot())
    assert engine.metrics.acceptance_rate.value == pytest.approx(0.600)
    assert engine.metrics.draft_tokens.value == 250
    assert engine.resets == 1
    assert texts(window) == ["restarted: its counters began again"]


def test_t5_no_drafts_and_no_tokens_is_no_traffic_and_no_zero() -> None:
    body = spec_page(drafts=0, drafted=0, accepted=0, positions=(0, 0), more=[f"{GEN} 0"])
    engine = only(seen(body, body))
    assert (engine.state, engine.reason) == ("no-traffic", "no tokens in the window")
    assert engine.metrics.acceptance_rate.value is None
    assert engine.metrics.acceptance_length.reason == "no drafts in the window"


def test_t5_waiting_work_is_not_no_traffic() -> None:
    body = spec_page(drafts=0, drafted=0, accepted=0, more=[f"{GEN} 0", f"{WAITING} 3"])
    assert only(seen(body, body)).state == "ok"


WAITING = 'vllm:num_requests_waiting{engine="0",model_name="m"}'


def test_t6_tokens_without_speculation_metrics_is_speculation_off() -> None:
    engine = only(seen(f"{GEN} 0\n", f"{GEN} 5000\n"))
    assert (engine.method, engine.k, engine.state) == ("none", None, "ok")
    assert engine.metrics.acceptance_rate.reason == "no speculation metrics: speculation is off"
    assert engine.metrics.output_tokens_per_s.value == 5000


def test_t7_zero_acceptance_is_zero_at_every_position() -> None:
    empty = spec_page(drafts=0, drafted=0, accepted=0, positions=[0] * 5)
    full = spec_page(drafts=1000, drafted=5000, accepted=0, positions=[0] * 5)
    metrics = only(seen(empty, full)).metrics
    assert metrics.acceptance_rate.value == 0.0
    assert metrics.acceptance_rate.n == 5000
    assert [n.value for n in metrics.acceptance_by_position] == [0.0] * 5
    once = only(seen(full))
    assert once.metrics.acceptance_rate.value == 0.0, "one scrape is enough"


def test_t8_the_cliff_of_parallel_drafting_is_in_the_positions() -> None:
    empty = spec_page(drafts=0, drafted=0, accepted=0, positions=[0] * 5)
    full = spec_page(drafts=1000, drafted=5000, accepted=836, positions=(720, 90, 20, 5, 1))
    engine = only(seen(empty, full))
    positions = [n.value for n in engine.metrics.acceptance_by_position]
    assert positions == [0.72, 0.09, 0.02, 0.005, 0.001]
    assert engine.k == 5
    assert engine.metrics.acceptance_length.value == pytest.approx(1.836)


def test_t9_the_public_baseline_pair() -> None:
    empty = spec_page(drafts=0, drafted=0, accepted=0, positions=[0] * 3)
    full = spec_page(drafts=1000, drafted=3000, accepted=1250, positions=(650, 400, 200))
    metrics = only(seen(empty, full)).metrics
    assert metrics.acceptance_length.value == 2.25
    assert metrics.acceptance_rate.value == pytest.approx(0.4167, abs=1e-4)


def queue_page(bounds: Sequence[float], counts: Sequence[float], total: float) -> str:
    name, labels = "vllm:request_queue_time_seconds", 'engine="0",model_name="m"'
    edges = [*map(repr, bounds), "+Inf"]
    lines = [
        f'{name}_bucket{{{labels},le="{le}"}} {n}' for le, n in zip(edges, counts, strict=True)
    ]
    return (
        "\n".join(
            [*lines, f"{name}_count{{{labels}}} {counts[-1]}", f"{name}_sum{{{labels}}} {total}"]
        )
        + "\n"
    )


def test_t11_waits_all_in_the_first_bucket_are_an_interval_and_an_exact_mean() -> None:
    size = len(REQUEST) + 1
    empty, full = queue_page(REQUEST, [0] * size, 0), queue_page(REQUEST, [1000] * size, 20.0)
    metrics = only(seen(empty, full)).metrics
    p99 = metrics.queue_s.p99
    assert (p99.low, p99.high, p99.state) == (0.0, 0.3, "unresolved")
    assert metrics.queue_s.mean.value == pytest.approx(0.020)
    assert metrics.queue_wait_ms.value == pytest.approx(20)


def test_t12_waits_beyond_the_last_bucket_are_more_than_it() -> None:
    bounds = (0.3, 1.0, 10.0, 60.0)
    empty, full = queue_page(bounds, [0] * 5, 0), queue_page(bounds, [0, 0, 0, 0, 100], 30000)
    queue = only(seen(empty, full)).metrics.queue_s
    assert (queue.p99.low, queue.p99.high, queue.p99.state) == (60.0, None, "unresolved")
    assert queue.mean.value == 300


def test_t14_names_of_two_versions_count_each_pod_once() -> None:
    old, new = "vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"

    def pod(names: Sequence[str], n: int, gauge: str) -> str:
        lines = [f'vllm:{gauge}_cache_usage_perc{{engine="0"}} 0.5']
        for name in names:
            lines += [f'{name}_bucket{{engine="0",le="{le}"}} {n}' for le in ("0.1", "+Inf")]
            lines += [f'{name}_count{{engine="0"}} {n}', f'{name}_sum{{engine="0"}} {n / 20}']
        return "\n".join(lines) + "\n"

    pods = {"http://a": ([old], "gpu"), "http://b": ([old, new], "kv"), "http://c": ([new], "kv")}
    window = Window(WHOLE)
    for at, n in ((NOW, 0), (NOW + 1, 500)):
        window.push(
            [scrape(at, pod(names, n, gauge), target) for target, (names, gauge) in pods.items()]
        )
    snapshot = window.snapshot()
    assert snapshot.fleet.itl_s.p99.n == 1500
    assert snapshot.fleet.itl_s.mean.value == pytest.approx(0.05)
    assert [e.sources["itl"] for e in snapshot.engines] == [old, new, new]
    assert [e.metrics.kv_cache_usage.value for e in snapshot.engines] == [0.5] * 3
    assert snapshot.engines[0].sources["kv_cache_usage"] == "vllm:gpu_cache_usage_perc"


HTML = "<!DOCTYPE html><html><title>Sign in</title></html>"
GOOD = spec_page(drafts=10, drafted=30, accepted=20, more=[f"{GEN} 30"])
CUT = GOOD + 'vllm:num_preemptions_total{engine="0",mod'


@pytest.mark.parametrize(
    ("answer", "state", "word"),
    [
        pytest.param(Scrape(NOW, TARGET, 307), "missing", "MISSING: HTTP 307", id="a-redirect"),
        pytest.param(scrape(NOW, HTML), "missing", "AUTH: an HTML page", id="b-login-page"),
        pytest.param(Scrape(NOW, TARGET, 500), "missing", "SERVER: HTTP 500", id="c-500"),
        pytest.param(scrape(NOW, CUT[-40:]), "missing", "TRUNCATED: ", id="d-cut-in-a-label"),
        pytest.param(scrape(NOW, CUT), "partial", "TRUNCATED: ", id="d-cut-late-in-a-page"),
        pytest.param(
            scrape(NOW, GOOD, truncated=True), "partial", "TRUNCATED: ", id="d-transport-says-so"
        ),
        pytest.param(scrape(NOW, ""), "missing", "MISSING: the body is empty", id="f-empty"),
        pytest.param(
            scrape(NOW, GOOD + f"{WAITING} NaN\n"), "partial", "NAN: 1 value(s)", id="g-nan"
        ),
        pytest.param(
            scrape(NOW, GOOD + f"{WAITING} +Inf\n"), "partial", "NAN: 1 value(s)", id="g-inf"
        ),
        pytest.param(
            scrape(NOW, GOOD + f"{WAITING} -Inf\n"), "partial", "NAN: 1 value(s)", id="g-minus-inf"
        ),
        pytest.param(
            scrape(NOW, GOOD + f"{WAITING} 1\n{WAITING} 2\n"),
            "partial",
            "CONFLICT: vllm:num_requests_waiting",
            id="h-conflict",
        ),
        pytest.param(Scrape(NOW, TARGET, 401), "missing", "AUTH: HTTP 401", id="401"),
        pytest.param(Scrape(NOW, TARGET, 403), "missing", "AUTH: HTTP 403", id="403"),
        pytest.param(Scrape(NOW, TARGET, 404), "missing", "MISSING: HTTP 404", id="404"),
        pytest.param(Scrape(NOW, TARGET, 418), "missing", "MISSING: HTTP 418", id="418"),
        pytest.param(
            Scrape(NOW, TARGET, error="connect refused"), "down", "connect refused", id="refused"
        ),
        pytest.param(Scrape(NOW, TARGET), "down", "no answer", id="nothing-at-all"),
    ],
)
def test_t16_a_bad_body_ends_in_a_state_with_a_reason(
    answer: Scrape, state: str, word: str
) -> None:
    window = Window(WHOLE)
    window.push([answer])
    engine = only(window.snapshot())
    assert engine.state == state
    assert (engine.reason or "").startswith(word)
    metrics = engine.metrics
    if state == "partial":
        assert metrics.acceptance_rate.value == pytest.approx(2 / 3)
        assert metrics.waiting.value is None
    else:
        assert metrics.acceptance_rate.value is None
        assert metrics.acceptance_rate.reason == engine.reason
        assert window.snapshot().fleet.acceptance_rate.value is None


def test_t16_500_says_what_it_has_meant() -> None:
    window = Window(WHOLE)
    window.push([Scrape(NOW, TARGET, 500)])
    assert "PROMETHEUS_MULTIPROC_DIR" in (only(window.snapshot()).reason or "")


# ---- engines that come, go and fail ----


def test_an_engine_that_fails_is_stale_for_a_moment_and_then_down() -> None:
    more = spec_page(drafts=20, drafted=60, accepted=40, more=[f"{GEN} 60"])
    window = replay([GOOD, more], Settings(stale_s=5))
    window.push([Scrape(NOW + 2, TARGET, error="timed out")])
    engine = only(window.snapshot(NOW + 3))
    assert (engine.state, engine.metrics.drafts.state) == ("stale", "stale")
    assert engine.metrics.itl_s.p99.state == "unknown"
    window.push([Scrape(NOW + 9, TARGET, error="timed out")])
    engine = only(window.snapshot(NOW + 9))
    assert (engine.state, engine.reason) == ("down", "timed out")
    assert engine.metrics.drafts.value is None
    assert texts(window) == ["cannot be read: timed out"], "said once"
    window.push([scrape(NOW + 10, more.replace(" 30", " 90"))])
    assert texts(window)[-1] == "answers again"


def test_an_engine_that_leaves_its_page_is_missing_and_then_forgotten() -> None:
    two = GOOD + GOOD.replace('engine="0"', 'engine="1"')
    window = replay([two, two, GOOD], Settings())
    assert [(e.engine, e.state) for e in window.snapshot().engines] == [
        ("0", "no-traffic"),
        ("1", "missing"),
    ]
    window.push([scrape(NOW + 90, GOOD)])
    assert [e.engine for e in window.snapshot().engines] == ["0"]
    assert "gone from its server's page" in texts(window)


def test_an_engine_that_leaves_its_page_stays_in_a_whole_recording() -> None:
    two = GOOD + GOOD.replace('engine="0"', 'engine="1"')
    window = replay([two, two])
    for minute in range(1, 60):
        window.push([scrape(NOW + 60 * minute, GOOD)])
    assert [(e.engine, e.state) for e in window.snapshot().engines] == [
        ("0", "no-traffic"),
        ("1", "missing"),
    ]


def test_an_engine_that_comes_later_does_not_add_its_past_to_the_fleet() -> None:
    old = GOOD.replace('engine="0"', 'engine="1"').replace(" 30", " 3000000")
    window = replay([GOOD, GOOD, GOOD + old])
    snapshot = window.snapshot()
    assert snapshot.fleet.draft_tokens.value == 0
    assert snapshot.trail[-1].draft_tokens == 0
    assert texts(window) == ["appeared"]


def test_a_target_that_is_kept_no_more_is_forgotten_with_its_floor() -> None:
    window = Window(Settings(floor=0.9))
    for i in range(3):
        body = spec_page(drafts=1000 * i, drafted=3000 * i, accepted=1000 * i)
        window.push([scrape(NOW + i, body, t) for t in ("http://a", "http://b")])
    assert all(e.low_since for e in window.snapshot().engines)
    window.keep(["http://b"])
    assert [e.target for e in window.snapshot().engines] == ["http://b"]
    assert texts(window)[-1] == "gone from the source"
    window.push([scrape(NOW + 9, body, "http://a")])
    assert window.snapshot().engines[0].low_since is None


def test_a_floor_is_judged_on_drafts_enough_and_said_once_each_way() -> None:
    window = Window(Settings(window_s=10, floor=0.5))
    drafts = accepted = 0.0
    for i in range(60):
        drafts += 100
        accepted += 90 if i < 20 or i > 40 else 9
        window.push(
            [scrape(NOW + i, spec_page(drafts=drafts, drafted=3 * drafts, accepted=3 * accepted))]
        )
    low, back = texts(window)
    assert "fell under the floor 0.5" in low
    assert "is back over the floor" in back
    assert only(window.snapshot()).low_since is None


def test_an_idle_window_ends_the_time_under_the_floor() -> None:
    window = Window(Settings(window_s=10, floor=0.5))
    drafts = 0.0
    low: list[float | None] = []
    for i in range(60):
        drafts += 0 if 10 <= i < 40 else 100
        body = spec_page(drafts=drafts, drafted=3 * drafts, accepted=drafts)
        window.push([scrape(NOW + i, body)])
        low.append(only(window.snapshot()).low_since)
    assert low[9] == low[15] == NOW + 1
    assert low[25] is None
    assert low[-1] == NOW + 40


def test_a_restart_with_a_start_time_counts_right_and_is_told() -> None:
    engine = Engine(k=3)
    engine.serve(random.Random(1), 30, 4)
    first = page(engine)
    fresh = Engine(k=3)
    fresh.serve(random.Random(2), 300, 4)  # grown past the old counts before it is seen
    window = replay([first, page(fresh, started=NOW + 0.5)])
    one = only(window.snapshot())
    assert (one.resets, one.metrics.drafts.value) == (1, fresh.drafts)
    assert texts(window) == ["restarted: its counters began again"]


def test_a_load_balanced_url_never_produces_numbers() -> None:
    rng = random.Random(5)
    processes = [(Engine(k=3), STARTED), (Engine(k=3), STARTED + 400)]
    window = Window(Settings(pricing=Pricing(2.0)))
    order = [0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0]
    for i, which in enumerate(order):
        for engine, _ in processes:
            engine.serve(rng, 20, 4)
        engine, started = processes[which]
        window.push([scrape(NOW + i, page(engine, started=started))])
        if i == 0:
            continue
        snapshot = window.snapshot()
        one = only(snapshot)
        assert one.state == "partial"
        for metrics in (one.metrics, snapshot.fleet):
            assert metrics.acceptance_rate.value is None
            assert metrics.output_tokens_per_s.value is None
            assert metrics.cost_per_1m_output_usd.value is None
            assert metrics.itl_s.p99.state == "unknown"
        assert "point --endpoint at each one" in (one.metrics.drafts.reason or "")
        assert snapshot.by_batch == ()
        assert snapshot.trail == ()
        assert one.processes == ("unsure" if i == 1 else "several")
    assert len(texts(window)) == 1, "said once, not at every flip"
    engine, started = processes[0]
    for i in range(len(order), 90):
        window.push([scrape(NOW + i, page(engine, started=started))])
    assert only(window.snapshot()).state != "partial"


def test_a_pod_that_takes_over_from_another_one_is_a_restart_and_soon_has_numbers() -> None:
    old, new = Engine(k=3), Engine(k=3)
    rng = random.Random(7)
    window = Window(Settings())
    states = []
    for i in range(10):
        old.serve(rng, 20, 4)
        new.serve(rng, 20, 4)
        body = page(old) if i < 3 else page(new, started=NOW - 60)  # ready after a minute
        window.push([scrape(NOW + i, body)])
        one = only(window.snapshot())
        states.append(one.processes)
        assert (one.metrics.drafts.value is None) == (one.processes == "unsure")
    assert states == ["one"] * 3 + ["unsure"] * 3 + ["one"] * 4
    assert one.resets == 1
    assert one.metrics.acceptance_length.value == pytest.approx(2.53, rel=0.1)
    assert texts(window) == ["restarted: its counters began again"]


def test_a_page_with_holes_costs_no_history_and_makes_no_ratio_of_two_times() -> None:
    rng = random.Random(3)
    engine = Engine(k=3, acceptance=0.7)
    window = Window(WHOLE)
    lengths = []
    for i in range(40):
        engine.serve(rng, 20, 4)
        body = page(engine)
        if i % 5 == 3:
            window.push([scrape(NOW + i, body[: rng.randrange(600, len(body))], truncated=True)])
            assert only(window.snapshot()).state == "partial"
        else:
            window.push([scrape(NOW + i, body)])
        lengths.append(only(window.snapshot()).metrics.tokens_per_step.value)
    snapshot = window.snapshot()
    assert only(snapshot).resets == 0
    assert snapshot.fleet.drafts.value == pytest.approx(engine.drafts, rel=0.05)
    expected = 1 + 0.7 + 0.7**2 + 0.7**3
    assert all(length == pytest.approx(expected, rel=0.3) for length in lengths[1:])


def test_sums_over_labels_do_not_restart_when_a_page_is_cut_inside_them() -> None:
    engine = Engine(k=3)
    engine.finished = {"stop": 1000, "length": 500, "abort": 7}
    body = page(engine)
    engine.finished["stop"] += 5
    later = page(engine)
    inside = later.index(b'finished_reason="length"')
    window = Window(WHOLE)
    window.push([scrape(NOW, body)])
    window.push([scrape(NOW + 1, later[:inside], truncated=True)])
    window.push([scrape(NOW + 2, later)])
    one = only(window.snapshot())
    assert (one.resets, one.metrics.requests_per_s.value) == (0, 2.5)


# ---- late, out of order, odd ----


def test_late_scrapes_change_nothing() -> None:
    bodies = [spec_page(drafts=n, drafted=3 * n, accepted=2 * n) for n in (10, 20, 30, 40)]
    window = replay(bodies[:3])
    before = window.snapshot()
    for at, body in [(NOW + 2, bodies[3]), (NOW + 1, bodies[0]), (NOW - 5, bodies[1])]:
        window.push([scrape(at, body)])
    after = window.snapshot()
    assert after.fleet == before.fleet
    assert after.at == before.at
    assert sum(p.draft_tokens for p in after.trail) == sum(p.draft_tokens for p in before.trail)


def test_a_clock_that_is_set_back_takes_the_snapshot_and_the_trail_along() -> None:
    window = Window(Settings(floor=0.9))
    for at in (*range(3600, 3660), *range(20)):
        n = 1000 + at if at >= 3600 else 9000 + at
        body = spec_page(drafts=100 * n, drafted=300 * n, accepted=200 * n)
        window.push([scrape(NOW + at, body)])
    snapshot = window.snapshot()
    assert snapshot.at == NOW + 19
    assert max(point.at for point in snapshot.trail) == NOW + 19
    assert (only(snapshot).low_since or math.inf) <= NOW + 19


def test_a_clock_that_is_set_back_while_nothing_answers_is_followed_too() -> None:
    window = replay([GOOD] * 60)
    for at in range(5):
        window.push([Scrape(NOW - 3600 + at, TARGET, error="timed out")])
    assert window.snapshot().at == NOW - 3600 + 4


def test_a_target_that_lags_sets_no_clock_back() -> None:
    window = Window(WHOLE)
    for at in range(30):
        window.push([scrape(NOW + at, GOOD, "http://a")])
    for at in range(10):
        window.push([scrape(NOW + at, GOOD, "http://b")])
    snapshot = window.snapshot()
    assert (snapshot.at, len(snapshot.trail)) == (NOW + 29, 38)


@given(st.permutations(range(6)))
def test_a_round_is_the_same_in_any_order_of_targets(order: list[int]) -> None:
    rng = random.Random(9)
    engines = [Engine(k=1 + i % 3, hist={"itl": Hist((0.01, 0.1))}) for i in range(6)]
    straight, shuffled = Window(WHOLE), Window(WHOLE)
    for at in range(3):
        for engine in engines:
            engine.serve(rng, 5, 2)
        scrapes = [scrape(NOW + at, page(e), f"http://{i}") for i, e in enumerate(engines)]
        straight.push(scrapes)
        shuffled.push([scrapes[i] for i in order])
    one, other = straight.snapshot(), shuffled.snapshot()
    assert one.fleet.acceptance_rate == other.fleet.acceptance_rate
    assert one.fleet.itl_s.p50 == other.fleet.itl_s.p50
    assert [e.name for e in one.engines] == [e.name for e in other.engines]


def test_ten_engines_are_in_the_order_of_their_numbers() -> None:
    body = "".join(GOOD.replace('engine="0"', f'engine="{i}"') for i in (10, 2, 0, 1))
    assert [e.engine for e in seen(body).engines] == ["0", "1", "2", "10"]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), min_size=1, max_size=8),
    st.integers(2, 4),
)
def test_a_fleet_equals_one_engine_that_did_all_its_work(
    work: list[tuple[int, int]], engines: int
) -> None:
    rng = random.Random(4)
    hist = {"itl": (0.005, 0.01, 0.02), "ttft": (0.1, 1.0)}
    fleet = [Engine(hist={n: Hist(b) for n, b in hist.items()}) for _ in range(engines)]
    many, one = Window(WHOLE), Window(WHOLE)
    for at, (steps, batch) in enumerate([(0, 1), *work]):
        for engine in fleet:
            engine.serve(rng, steps, batch)
        many.push([scrape(NOW + at, page(e), f"http://{i}") for i, e in enumerate(fleet)])
        one.push([scrape(NOW + at, page(merged(fleet)))])
    pooled, single = many.snapshot().fleet, one.snapshot().fleet
    for name in (
        *("acceptance_rate", "acceptance_length", "acceptance_by_position", "drafts"),
        *("draft_tokens", "tokens_per_step", "batch_size"),
    ):
        assert getattr(pooled, name) == getattr(single, name)
    for name in ("itl_s", "ttft_s"):
        assert getattr(pooled, name).p99 == getattr(single, name).p99
        assert getattr(pooled, name).mean.value == pytest.approx(getattr(single, name).mean.value)
    assert pooled.output_tokens_per_s.value == pytest.approx(single.output_tokens_per_s.value)


def merged(fleet: Sequence[Engine]) -> Engine:
    """One engine that has done what all of them did."""
    total = Engine(k=fleet[0].k)
    total.accepted = [sum(column) for column in zip(*(e.accepted for e in fleet), strict=True)]
    for name in ("drafts", "generation", "prompt", "preemptions", "steps"):
        setattr(total, name, sum(getattr(e, name) for e in fleet))
    total.hist = {
        name: Hist(
            hist.bounds,
            [sum(column) for column in zip(*(e.hist[name].counts for e in fleet), strict=True)],
            sum(e.hist[name].sum for e in fleet),
        )
        for name, hist in fleet[0].hist.items()
    }
    return total


@given(st.lists(st.integers(1, 40), min_size=2, max_size=40), st.floats(1, 60))
def test_a_shorter_window_is_a_part_of_a_longer_one(steps: list[int], window_s: float) -> None:
    window = Window(WHOLE)
    drafts = 0
    for at, more in enumerate(steps):
        drafts += more
        window.push(
            [scrape(NOW + at, spec_page(drafts=drafts, drafted=3 * drafts, accepted=drafts))]
        )
    part = window.snapshot(window_s=window_s)
    whole = window.snapshot()
    assert (part.fleet.drafts.value or 0) <= (whole.fleet.drafts.value or 0) == drafts - steps[0]
    assert part.covered_s <= whole.covered_s == len(steps) - 1
    assert part.fleet.acceptance_rate.value == pytest.approx(1 / 3)


@pytest.mark.parametrize("from_the_first", [True, False])
def test_a_window_longer_than_what_is_remembered_is_remembered(*, from_the_first: bool) -> None:
    window = Window(Settings(window_s=7200.0 if from_the_first else 60.0))
    covered = 0.0
    for at in range(0, 9000, 30):
        window.push([scrape(NOW + at, spec_page(drafts=at, drafted=3 * at, accepted=at))])
        if at >= 600:
            covered = window.snapshot(window_s=7200.0).covered_s
    assert covered == pytest.approx(7200, rel=0.07)


# ---- what a snapshot carries ----


def test_numbers_by_batch_are_pooled_over_the_fleet() -> None:
    rng = random.Random(6)
    engines = [Engine(), Engine()]
    window = Window(WHOLE)
    for at in range(30):
        for engine in engines:
            engine.serve(rng, 20, 2 if at < 15 else 12)
        window.push([scrape(NOW + at, page(e), f"http://{i}") for i, e in enumerate(engines)])
    rows = {row.batch: row for row in window.snapshot().by_batch}
    assert set(rows) <= {"1-2", "3-4", "9-16"}
    assert rows["9-16"].itl is not None
    assert rows["9-16"].itl.n == 2 * 15 * 20 * 12
    total = sum(row.itl.n for row in rows.values() if row.itl)
    assert total == sum(e.hist["itl"].n for e in engines) - 2 * 20 * 2


def test_outliers_are_no_rows_by_batch_of_a_fleet_that_was_summed_elsewhere() -> None:
    engine = Engine()
    bodies = []
    for at in range(4):
        engine.serve(random.Random(at), 20, 4)
        bodies.append(page(engine))
    alone = seen(*bodies)
    summed = replace(alone, pooled=alone.subject.pool, pooled_engines=2000, unbinned="pooled")
    assert alone.by_batch
    assert summed.by_batch == ()
    assert summed.fleet.batch_size.value is not None


def test_several_api_servers_that_outliers_show_make_no_batch_size_of_the_summed_fleet() -> None:
    alone = seen(*(page(Engine(steps=n, generation=5 * n)) for n in (10, 20)))
    [engine] = alone.engines
    told = (replace(engine, several_api_servers=True),)
    summed = replace(alone, engines=told, pooled=alone.subject.pool, pooled_engines=2000)
    assert "several API servers" in (summed.fleet.batch_size.reason or "")


def test_the_trail_counts_no_accepted_tokens_without_the_drafted_ones() -> None:
    name = 'vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"}'
    window = replay([f"{GEN} {n}\n{name} {n}\n" for n in (10, 20, 30)])
    [_, point] = window.snapshot().trail
    assert point.generation_tokens == 10
    assert math.isnan(point.accepted_tokens)


def test_what_the_server_says_of_itself_is_kept() -> None:
    window = Window(WHOLE)
    info = {"version": "0.32.0", "method": "eagle3", "k": 7, "draft": "a/draft"}
    window.push([scrape(NOW, GOOD, info=info)])
    window.push([scrape(NOW + 1, GOOD)])
    engine = only(window.snapshot())
    assert (engine.version, engine.method, engine.k, engine.draft) == (
        "0.32.0",
        "eagle3",
        7,
        "a/draft",
    )
    assert engine.name == "engine.test:8000/0"


def test_what_a_server_says_of_itself_replaces_what_it_said_before() -> None:
    window = Window(WHOLE)
    window.push([scrape(NOW, GOOD, info={"method": "eagle3", "k": 4, "draft": "d"})])
    window.push([scrape(NOW + 1, GOOD, info={"method": "none"})])
    engine = only(window.snapshot())
    assert (engine.method, engine.k, engine.draft) == ("none", None, None)


@pytest.mark.parametrize("started", [NOW + 1.5, NOW - 60], ids=["restart", "on-a-clock-that-lags"])
def test_what_a_process_said_of_itself_ends_with_it(started: float) -> None:
    engine = Engine(k=3)
    said = {"version": "0.31.0", "method": "eagle3", "k": 4, "draft": "d"}
    window = Window(WHOLE)
    window.push([scrape(NOW, page(engine), info=said)])
    assert window.unidentified == frozenset()
    window.push([scrape(NOW + 2, page(engine, started=started))])
    one = only(window.snapshot())
    assert (one.version, one.method, one.k, one.draft) == (None, "unknown", 3, None)
    assert window.unidentified == {TARGET}, "to be asked again"
    window.push([scrape(NOW + 3, page(engine, started=started), info={"version": "0.32.0"})])
    assert only(window.snapshot()).version == "0.32.0"
    assert window.unidentified == frozenset()


def test_what_comes_with_the_first_page_of_a_new_process_is_its_own() -> None:
    engine = Engine(k=3)
    window = Window(WHOLE)
    window.push([scrape(NOW, page(engine), info={"method": "eagle3", "draft": "d"})])
    window.push([scrape(NOW + 2, page(engine, started=NOW + 1), info={"method": "mtp"})])
    one = only(window.snapshot())
    assert (one.method, one.draft, window.unidentified) == ("mtp", None, frozenset())


def test_a_note_of_the_source_makes_a_page_partial() -> None:
    window = Window(WHOLE)
    window.push([scrape(NOW, GOOD, note="TOO_LARGE: 22 MB, the rest was left unread")])
    assert only(window.snapshot()).state == "partial"
    assert "TOO_LARGE" in (only(window.snapshot()).reason or "")


def test_a_simulated_page_is_said_to_be_simulated() -> None:
    assert not seen(GOOD).simulated
    assert seen(GOOD + "specctl_simulated 1\n").simulated
    assert Window(WHOLE, simulated=True).snapshot().simulated


def test_nothing_yet_is_a_snapshot_too() -> None:
    snapshot = Window(Settings()).snapshot(NOW)
    assert snapshot.engines == ()
    assert snapshot.covered_s == 0
    assert snapshot.fleet.acceptance_rate.reason == "no data in the window"


def test_one_scrape_covers_no_time_though_it_tells_of_all_since_the_process_began() -> None:
    snapshot = seen(page(Engine()))
    assert snapshot.subject.pool.seconds == NOW - STARTED
    assert snapshot.covered_s == 0


def test_cost_counts_every_engine_that_was_read() -> None:
    window = Window(Settings(pricing=Pricing(3.6)))
    for at in (0, 1):
        body = f"{GEN} {1000 * at}\n"
        window.push([scrape(NOW + at, body, f"http://{i}") for i in range(4)])
    assert window.snapshot().fleet.cost_per_1m_output_usd.value == pytest.approx(1.0)


def test_several_api_servers_make_no_batch_size_and_no_rows_by_batch() -> None:
    engine = Engine()
    window = Window(WHOLE)
    for at in range(4):
        engine.serve(random.Random(at), 10, 4)
        body = (
            page(engine)
            .decode()
            .replace("vllm:num_requests_running{", 'vllm:num_requests_running{pid="7",')
        )
        window.push([scrape(NOW + at, body)])
    snapshot = window.snapshot()
    assert snapshot.by_batch == ()
    assert "several API servers" in (snapshot.fleet.batch_size.reason or "")


def test_counters_that_contradict_each_other_are_unknown_and_never_zero_drafts() -> None:
    pages = [
        spec_page(drafts=20 * i, drafted=80 * i, accepted=90 * i, more=[f"{GEN} {1000 * i}"])
        for i in range(12)
    ]
    snapshot = replay(pages, WHOLE).snapshot()
    metrics = only(snapshot).metrics
    for number in (metrics.drafts, metrics.draft_tokens, metrics.acceptance_rate):
        assert number.state == "unknown"
        assert "contradict" in (number.reason or "")
    assert "SPEC_NOT_ACTIVE" not in {finding.code for finding in evaluate(snapshot, Thresholds())}


def test_one_sample_of_a_queue_that_breathes_does_not_make_a_backlog() -> None:
    ttft = "vllm:time_to_first_token_seconds"
    pages = [
        f'vllm:num_requests_waiting{{engine="0"}} {10 if i == 10 else 0}\n'
        f'{ttft}_bucket{{engine="0",le="+Inf"}} {100 * i}\n{ttft}_count{{engine="0"}} {100 * i}\n'
        for i in range(11)
    ]
    backlog = only(replay(pages, WHOLE).snapshot()).metrics.queue_wait_backlog_ms
    assert backlog.value == pytest.approx(1000 * (10 / 11) / 100)
