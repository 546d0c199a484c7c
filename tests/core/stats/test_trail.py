"""Charts over wall time: true however the rounds cut the fleet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Snapshot, TrailPoint
from speccli.core.stats.window import Settings, Window
from speccli.core.views import charts
from tests.core.pages import STARTED, scrape

NOW = STARTED + 1000
WHOLE = Settings(window_s=None, span_s=None, stale_s=40.0)


def body(started: float = STARTED, **counts: float) -> str:
    """A vLLM page; `steps` is the count of inter-token latencies, `first` of first tokens."""
    told: Mapping[str, str] = {
        "generated": "vllm:generation_tokens_total",
        "drafted": "vllm:spec_decode_num_draft_tokens_total",
        "accepted": "vllm:spec_decode_num_accepted_tokens_total",
        "waiting": "vllm:num_requests_waiting",
        "running": "vllm:num_requests_running",
    }
    lines = [f"process_start_time_seconds {started}"]
    lines += [f'{name}{{engine="0"}} {counts[k]}' for k, name in told.items() if k in counts]
    for k, name in (("steps", "inter_token_latency"), ("first", "time_to_first_token")):
        if k in counts:
            for end in ('_bucket{engine="0",le="+Inf"}', '_count{engine="0"}'):
                lines.append(f"vllm:{name}_seconds{end} {counts[k]}")
    return "\n".join(lines) + "\n"


def rates(snapshot: Snapshot, since: float, until: float, step: float = 5.0) -> list[float | None]:
    """Output tokens per second, column by column."""
    count = round((until - since) / step)
    columns = charts.pooled_columns(snapshot.trail, until - 1e-3, count * step, count)
    return [column.output_per_s for column in columns]


def near(*values: float) -> object:
    return pytest.approx(list(values), rel=1e-3)


def test_engines_that_are_scraped_at_their_own_seconds_are_charted_together() -> None:
    """A Prometheus scrapes each every 15 s, and every poll of 5 s finds another one."""
    window = Window(WHOLE)
    for at in range(0, 200, 5):
        page = body(generated=100 * at)
        window.push([scrape(NOW + at, page, f"http://{at // 5 % 3}")])
    snapshot = window.snapshot()
    assert rates(snapshot, NOW + 10, NOW + 185) == near(*[300.0] * 35)
    assert rates(snapshot, NOW + 190, NOW + 195) == [None], "not all have been read so far yet"


def two(at: float, *, second: bool = True, generated: float | None = None) -> list[Scrape]:
    page = body(generated=100 * at if generated is None else generated)
    other = scrape(NOW + at, page, "http://b")
    return [
        scrape(NOW + at, body(generated=100 * at), "http://a"),
        other if second else Scrape(NOW + at, "http://b", error="no answer within 5 s"),
    ]


def test_what_an_engine_did_while_it_could_not_be_read_is_charted_when_it_was_done() -> None:
    window = Window(Settings())
    for at in range(61):
        window.push(two(at, second=not 20 < at < 30))
    assert rates(window.snapshot(), NOW, NOW + 60) == near(*[200.0] * 12)


def test_a_round_without_an_engine_that_is_still_awaited_is_not_charted_as_half() -> None:
    window = Window(Settings(stale_s=7.0))
    for at in range(61):
        window.push(two(at, second=at < 58))
        known = [rate for rate in rates(window.snapshot(), NOW, NOW + 60) if rate is not None]
        assert known == near(*[200.0] * len(known))
    for at in range(61, 71):
        window.push(two(at, second=False))
    assert rates(window.snapshot(), NOW + 60, NOW + 70) == near(100.0, 100.0), "nor for ever"


def test_the_growth_over_a_restart_is_charted() -> None:
    window = Window(Settings())
    for at in range(31):
        new = at > 15
        page = body(STARTED if not new else NOW + 15, generated=100 * (at - 15 if new else at))
        window.push([scrape(NOW + at, page)])
    assert rates(window.snapshot(), NOW, NOW + 30) == near(*[100.0] * 6)


def test_a_chart_takes_its_ratios_from_engines_that_tell_all_of_their_terms() -> None:
    window = Window(WHOLE)
    for at in (0, 60):
        full = body(
            generated=200 * at, steps=100 * at, first=2 * at, drafted=300 * at, accepted=150 * at
        )
        short = body(generated=200 * at, drafted=900 * at)
        window.push([scrape(NOW + at, full, "http://a"), scrape(NOW + at, short, "http://b")])
    snapshot = window.snapshot()
    column = charts.pool(snapshot.trail, NOW, NOW + 60)
    fleet = snapshot.fleet
    assert column.tokens_per_step == fleet.tokens_per_step.value == pytest.approx(1.98)
    assert column.acceptance == fleet.acceptance_rate.value == pytest.approx(0.5)
    assert column.output_per_s == fleet.output_tokens_per_s.value == pytest.approx(400)


def test_what_no_engine_tells_is_a_gap() -> None:
    window = Window(WHOLE)
    for at in (0, 60):
        window.push([scrape(NOW + at, body(drafted=30 * at, accepted=20 * at))])
    column = charts.pool(window.snapshot().trail, NOW, NOW + 60)
    assert (column.output_per_s, column.tokens_per_step, column.backlog_ms) == (None, None, None)


def test_fewer_tokens_than_first_tokens_are_a_gap_and_no_zero() -> None:
    wrong = TrailPoint(NOW, 10.0, 0, 0, 0, 5.0, 9.0, 3.0, 0.0, 0.0)
    column = charts.pool([wrong], NOW - 10, NOW)
    assert column.tokens_per_step is None
    assert column.output_per_s == 0.5


def test_the_queue_is_that_of_all_engines_over_what_left_it() -> None:
    """Little's law: the fleet's waiting over the fleet's departures."""
    window = Window(WHOLE)
    for at in range(0, 120, 5):
        page = body(generated=100 * at, first=2 * at, waiting=4)
        window.push([scrape(NOW + at, page, f"http://{at // 5 % 3}")])
    column = charts.pool(window.snapshot().trail, NOW + 30, NOW + 90)
    assert column.backlog_ms == pytest.approx(2000)


@given(st.lists(st.sets(st.integers(0, 3)), min_size=2, max_size=40), st.integers(1, 20))
def test_a_chart_of_everything_adds_up_to_what_the_table_counts(
    rounds: Sequence[set[int]], seconds: int
) -> None:
    window = Window(WHOLE)
    for i, engines in enumerate(rounds):
        at = seconds * i
        window.push(
            scrape(NOW + at + e / 10, body(drafted=(9 + e) * at, accepted=e * at), f"http://{e}")
            for e in engines
        )
    snapshot = window.snapshot()
    told = math.fsum(p.draft_tokens for p in window._trail.until(math.inf))
    counted = [e.increase for e in snapshot.engines if e.increase and not e.increase.since_start]
    assert told == sum(i.values[i.layout.index["draft_tokens"]] for i in counted)


def test_a_long_time_takes_few_points_and_loses_nothing() -> None:
    window = Window(Settings(window_s=None, span_s=None))
    for at in range(9000):
        window.push([scrape(NOW + at, body(generated=100 * at, waiting=3, first=at))])
    snapshot = window.snapshot()
    assert len(snapshot.trail) < 5500
    assert sum(p.generation_tokens for p in snapshot.trail) == 100 * 8999
    for since, step in ((NOW + 8000, 5.0), (NOW, 300.0)):
        assert rates(snapshot, since, since + 900, step) == near(*[100.0] * round(900 / step))
    assert charts.pool(snapshot.trail, NOW, NOW + 9000).backlog_ms == pytest.approx(3000)
