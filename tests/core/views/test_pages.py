"""The pages behind the keys, charts and the journal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

from speccli.core.stats.snapshot import Event, TrailPoint
from speccli.core.views import charts
from speccli.core.views.detail import build_detail, engine_trail
from speccli.core.views.journal import Journal, merged
from speccli.core.views.pages import KEYS, events_page, findings_page, help_page, reasons
from speccli.core.views.state import UiState
from speccli.core.views.text import plain
from tests.tui.world import START, Found, World

UI = UiState(width=100, height=40, tz=UTC)


def text(rows: object) -> str:
    return "\n".join(plain(row).rstrip() for row in rows)  # type: ignore[attr-defined]


def test_detail_names_the_metric_behind_each_number() -> None:
    snapshot = World(2).run(70)
    told = text(build_detail(snapshot, "10.0.0.4:8000/0", UI, snapshot.at))
    assert "vllm:spec_decode_num_accepted_tokens_total" in told
    assert "vllm:request_time_per_output_token_seconds" in told
    assert "acceptance    0.567        n=18k" in told
    assert "   1  0.550  █" in told
    assert "method        eagle3" in told
    assert "draft         —  not told by its metrics" in told
    assert "started       2026-11-29 17:00:19  61 min ago" in told


def test_detail_of_a_dead_engine_says_why_and_shows_no_numbers() -> None:
    world = World(2)
    world.run(20)
    world.servers[0].error = "connect refused"
    snapshot = world.run(10)
    told = text(build_detail(snapshot, "10.0.0.4:8000/0", UI, snapshot.at))
    assert "✖ down  connect refused" in told
    assert "acceptance    —  connect refused" in told
    assert "cannot be read: connect refused" in told


def test_detail_tells_a_restart_once() -> None:
    world = World(1)
    world.run(20)
    world.servers[0].restart(world.at)
    snapshot = world.run(20)
    told = text(build_detail(snapshot, "10.0.0.4:8000/0", UI, snapshot.at))
    assert "restarts      1 seen" in told
    assert told.count("restarted: its counters began again") == 1


def test_detail_shows_findings_for_the_whole_server_too() -> None:
    snapshot = World(2).run(5)
    found = [
        Found("METRICS_MISSING", "critical", "10.0.0.4:8000/*"),
        Found("X", "warning", "fleet"),
    ]
    told = text(build_detail(snapshot, "10.0.0.4:8000/0", UI, snapshot.at, found))
    assert "METRICS_MISSING" in told
    assert "compare the revisions of draft and target" in told
    assert "fleet" not in told


def test_detail_of_an_engine_that_left() -> None:
    snapshot = World(1).run(2)
    assert "is gone" in text(build_detail(snapshot, "elsewhere/0", UI, snapshot.at))


def test_engine_trail_adds_up_to_the_growth() -> None:
    engine = World(1).run(40).engines[0]
    assert engine.increase is not None
    grown = sum(p.draft_tokens for p in engine_trail(engine))
    assert grown == engine.increase.values[engine.increase.layout.index["draft_tokens"]]


def test_every_dash_has_its_reason_in_help() -> None:
    world = World(2, price=None)
    world.servers[1].busy = False
    snapshot = world.run(70)
    told = dict(reasons(snapshot, [e.name for e in snapshot.engines]))
    assert told["no drafts in the window"].startswith("10.0.0.5:8000/0: acceptance, AL")
    assert "fleet, 10.0.0.4:8000/0" in told["no GPU price given (--gpu-hour-usd)"]
    page = text(help_page(snapshot, [e.name for e in snapshot.engines], UI))
    assert "no GPU price given" in page
    assert all(key in page for key, _ in KEYS)


def test_reasons_that_differ_in_a_count_only_are_one() -> None:
    world = World(3)
    for n, server in enumerate(world.servers):
        server.batch = 8 + 8 * n
    told = reasons(world.run(8), ["10.0.0.4:8000/0", "10.0.0.5:8000/0", "10.0.0.6:8000/0"])
    assert len([why for why, _ in told if "p99 needs 100" in why]) == 1


def test_findings_page_gives_evidence_cause_and_action() -> None:
    found = [Found("LOW_ACCEPTANCE", "warning", "a/0", since=START - 720)]
    told = text(findings_page(found, UI, START))
    assert "▲ LOW_ACCEPTANCE  a/0  since 12 min" in told
    assert "  cause     the draft no longer matches the target" in told
    assert "  do        compare the revisions" in told
    assert "nothing to do" in text(findings_page([], UI, START))


def test_journal_notes_beginnings_and_ends_and_ignores_a_flicker() -> None:
    journal, found = Journal(), Found("STALLED", "critical", "http://a/0")
    for at, present in enumerate([True, True, False, True, False, False, False, False]):
        journal.update([found] if present else [], float(at))
    assert [(e.at, e.subject, e.severity) for e in journal.events] == [
        (0.0, "a/0", "critical"),
        (6.0, "a/0", "info"),
    ]


def test_repeated_events_are_one_line_with_a_count() -> None:
    events = [Event(float(at), "a/0", "restarted", "warning") for at in range(4)]
    assert merged(events, [Event(9.0, "a/0", "appeared")]) == [
        (Event(9.0, "a/0", "appeared"), 1),
        (events[3], 4),
    ]
    page = text(events_page(replace(World(1).run(1), events=tuple(events)), UI))
    assert "restarted  ×4" in page


def point(at: float, drafted: float, accepted: float, waiting: float = 0.0) -> TrailPoint:
    return TrailPoint(at, 1.0, drafted, accepted, drafted / 3, 10.0, 1.0, 5.0, waiting, 1.0)


def test_columns_are_pooled_before_dividing() -> None:
    trail = [point(1.0, 1000, 900), point(2.0, 10, 0)]
    column = charts.pooled_columns(trail, 2.0, 4.0, 1)[0]
    assert column.acceptance == 900 / 1010


def test_a_stretch_without_data_is_a_gap() -> None:
    columns = charts.pooled_columns([point(2.0, 10, 5), point(4.0, 10, 5)], 3.5, 4.0, 4)
    assert [c.acceptance for c in columns] == [None, 0.5, None, 0.5]
    assert [c.output_per_s for c in columns] == [None, 10.0, None, 10.0]
    assert charts.sparkline([None, 0.0, 0.5, 1.0], 1.0) == " ▁▄█"


def test_columns_do_not_change_as_time_goes_on() -> None:
    trail = [point(float(at), 10, at % 7) for at in range(1, 200)]
    early = [c.acceptance for c in charts.pooled_columns(trail, 150.0, 60.0, 20)]
    late = [c.acceptance for c in charts.pooled_columns(trail, 153.0, 60.0, 20)]
    assert late[:18] == early[1:19]


def test_waiting_without_departures_is_not_a_number() -> None:
    stuck = TrailPoint(1.0, 1.0, 0, 0, 0, 0, 0.0, 0, 4.0, 2.0)
    assert charts.pooled_columns([stuck], 1.0, 1.0, 1)[0].backlog_ms is None
