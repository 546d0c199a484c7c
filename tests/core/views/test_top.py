"""The screen's content: snapshot in, text and severities out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccli.core.stats.snapshot import Snapshot
from speccli.core.values import Number, Quantile
from speccli.core.views import format as fmt
from speccli.core.views.detail import build_detail
from speccli.core.views.pages import events_page, findings_page, help_page
from speccli.core.views.state import UiState
from speccli.core.views.text import clean, plain, width_of
from speccli.core.views.top import TopView, build_view, frame_rows
from tests.core.pages import Engine
from tests.tui.world import PWN, Found, World, hostile, pwned


def ui(width: int = 120, height: int = 40, **rest: object) -> UiState:
    return replace(UiState(width=width, height=height, tz=UTC), **rest)  # type: ignore[arg-type]


def view(snapshot: Snapshot | None, state: UiState | None = None, *found: Found) -> TopView:
    state = state or ui()
    return build_view(snapshot, state, snapshot.at + 1 if snapshot else 0.0, found)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (40, 24), (60, 20), (30, 10)])
def test_the_screen_fills_its_size_exactly(size: tuple[int, int]) -> None:
    shown = view(World(5).run(70), ui(*size))
    rows = [row for block in shown.blocks for row in block.lines]
    assert len(rows) == size[1]
    assert {
        width_of(row) for block in shown.blocks if block.name != "spare" for row in block.lines
    } == {size[0]}


@given(st.integers(20, 260), st.integers(5, 90), st.integers(0, 4))
@settings(max_examples=60)
def test_no_size_breaks_the_layout(width: int, height: int, engines: int) -> None:
    snapshot = World(engines).run(3)
    rows = [row for block in view(snapshot, ui(width, height)).blocks for row in block.lines]
    assert len(rows) >= min(height, 5)
    assert all(width_of(row) in (0, width) for row in rows)


def test_layout_stays_when_numbers_change() -> None:
    world = World(3)
    before = view(world.run(30))
    world.servers[0].error = "connect refused"
    after = view(world.run(30))
    assert [(b.name, len(b.lines)) for b in before.blocks] == [
        (b.name, len(b.lines)) for b in after.blocks
    ]


def test_healthy_fleet_is_ok_and_counted_exactly() -> None:
    shown = view(World(3).run(70))
    assert shown.verdict.word == "OK"
    text = shown.text()
    # 100 drafts of 3 tokens a second, 75 + 55 + 40 accepted
    assert "acceptance   0.567" in text
    assert "length (AL)  2.70  of at most 4" in text
    assert ".75" in text
    assert ".55" in text
    assert ".40" in text
    assert "tokens/step  2.70  at batch 8.7" in text
    assert "TPOT p50/p99 10–25 ms / 10–25 ms" in text
    assert "20 ms  observed 20 · backlog 0" in text


def test_cost_stands_beside_the_baseline() -> None:
    text = view(World(1).run(70)).text()
    # 274 tokens/s at $2.50 an hour
    assert "$/1M output  2.53  without 2.40  costs 6 % more" in text


def test_named_outlier_with_its_finding_and_action() -> None:
    world = World(3)
    world.servers[1].by_position = (0.4, 0.2, 0.1)
    found = Found("LOW_ACCEPTANCE", "warning", "10.0.0.5:8000/0")
    shown = view(world.run(70), ui(120, 24), found)
    assert shown.verdict.severity == "warning"
    first, second, _ = (plain(row).rstrip() for row in shown.block("verdict"))
    assert first.startswith("▲ WARNING  10.0.0.5:8000/0 0.31 < 0.40, n 3,000; fleet 0.456")
    assert second.strip() == "→ compare the revisions of draft and target"
    assert shown.order[0] == "10.0.0.5:8000/0"
    assert "▲ 10.0.0.5:8000/0 low acc" in shown.text()


def test_what_is_pending_is_shown_beside_the_warning() -> None:
    world = World(1)
    world.servers[0].by_position = (0.4, 0.2, 0.1)
    pending = Found("LOW_ACCEPTANCE", "info", "10.0.0.4:8000/0", "pending: under 0.4 for 9 s")
    shown = view(world.run(70), ui(200, 50), pending)
    assert shown.verdict.severity == "warning"
    assert re.search(r"▲ 10\.0\.0\.4:8000/0 +low acc", shown.text())
    assert "LOW_ACCEPTANCE 10.0.0.4:8000/0  pending: under 0.4 for 9 s" in shown.text()


def test_gravest_finding_speaks_and_the_rest_are_counted() -> None:
    found = (
        Found("LOW_ACCEPTANCE", "warning", "10.0.0.4:8000/0"),
        Found("STALLED", "critical", "10.0.0.5:8000/0", "4 waiting, none left"),
        Found("VERSION_SKEW", "info", "fleet"),
    )
    shown = view(World(3).run(70), ui(), *found)
    assert shown.verdict.word == "CRITICAL"
    assert shown.verdict.more == 1
    assert "(+1 more, a)" in shown.text()


@pytest.mark.parametrize("size", [(200, 60), (80, 24), (80, 20), (40, 24), (30, 10)])
def test_a_second_fault_is_counted_however_long_the_first_one_is(size: tuple[int, int]) -> None:
    snapshot = World(3).run(70)
    evidence, action = "accepted 0.31, under 0.40 " * 20, "compare both " * 30
    found = [
        Found("LOW_ACCEPTANCE", "critical", e.name, evidence, action=action)
        for e in snapshot.engines
    ]
    shown = view(snapshot, ui(*size), *found)
    first = plain(shown.block("verdict")[0])
    assert re.match(r"✖ CRITICAL \(\+2( more)?, a\)  \S", first)
    if size[0] >= 80 and size[1] >= 24:
        assert "→ compare both" in shown.text()


def test_nothing_yet_says_whom_it_asked() -> None:
    shown = view(None, ui(80, 24, targets=("http://10.0.0.4:8000",)))
    assert shown.verdict.word == "WAITING"
    assert "asked http://10.0.0.4:8000; no answer yet" in shown.text()
    assert "acceptance   —" in shown.text()


def test_speculation_that_is_off_is_said_and_no_word_of_a_reason_decides_it() -> None:
    off = World(2)
    for server in off.servers:
        server.engine = Engine(k=0)
    shown = view(off.run(70))
    assert (shown.verdict.word, shown.verdict.severity) == ("NO SPECULATION", "unknown")
    assert "speculation is off" in shown.verdict.text
    several = World(2)
    for server in several.servers:
        server.sglang = 2.2
    snapshot = several.run(70)
    reason = "the engine's offset is not told"
    rate = replace(snapshot.fleet, acceptance_rate=Number.unknown(reason))
    snapshot.__dict__["fleet"] = rate
    shown = view(snapshot)
    assert reason in shown.verdict.text
    assert shown.verdict.word == "UNKNOWN"


def test_speculation_that_is_off_is_not_waited_for() -> None:
    off = World(1)
    off.servers[0].engine = Engine(k=0)
    assert view(off.run(3)).verdict.word == "NO SPECULATION"


def test_no_traffic_is_unknown_not_zero() -> None:
    world = World(2)
    for server in world.servers:
        server.busy = False
    shown = view(world.run(70))
    assert shown.verdict.severity == "unknown"
    assert shown.verdict.word == "NO TRAFFIC"
    assert "acceptance   —  no drafts in the window" in shown.text()
    assert "0.000" not in shown.text()


def test_one_down_shows_the_reason_in_its_row() -> None:
    world = World(3)
    world.run(30)
    world.servers[2].error = "connect refused"
    shown = view(world.run(10))
    assert shown.verdict.severity == "warning"
    assert "10.0.0.6:8000/0 is down: connect refused; 2 of 3 engines ok" in shown.text()
    row = next(plain(r) for r in shown.block("engines") if "10.0.0.6" in plain(r))
    assert row.startswith("✖ 10.0.0.6:8000/0 down")
    assert "connect refused" in row


@pytest.mark.parametrize(
    ("change", "said", "advice"),
    [
        pytest.param(
            {"error": "connect refused"}, "connect refused", "is the server up", id="down"
        ),
        pytest.param({"status": 401}, "HTTP 401", "--token", id="not-authorised"),
        pytest.param({"status": 404}, "HTTP 404", "/metrics is added", id="wrong-url"),
    ],
)
def test_sad_frames_say_what_was_tried_and_what_to_do(
    change: dict[str, object], said: str, advice: str
) -> None:
    world = World(2)
    for server in world.servers:
        for name, value in change.items():
            setattr(server, name, value)
    shown = view(world.run(3))
    assert shown.verdict.word == "UNKNOWN"
    text = shown.text()
    assert "none of 2 engines can be read; http://10.0.0.4:8000:" in text
    assert said in text
    assert advice in text


def test_one_scrape_is_labelled_since_start() -> None:
    shown = view(World(1).run(1))
    assert "since start" in plain(shown.block("panels")[0])
    assert "since the process started" in shown.verdict.text
    assert "since start" in plain(shown.block("engines")[2])


def test_old_data_is_dim_with_its_age() -> None:
    snapshot = World(2).run(70)
    shown = build_view(snapshot, ui(), snapshot.at + 42)
    assert "STALE 42 s" in plain(shown.block("header")[0])
    styles = {s.style for row in shown.block("panels") for s in row if s.text.strip()}
    assert styles <= {"dim", "stale"}


def test_paused_screen_is_not_stale() -> None:
    snapshot = World(2).run(70)
    shown = build_view(snapshot, ui(paused=True), snapshot.at + 42)
    assert "PAUSED" in plain(shown.block("header")[0])
    assert "held 42 s" in plain(shown.block("header")[0])
    assert "STALE" not in shown.text()
    assert "the screen is held, data goes on" in plain(shown.block("keys")[0])


def test_simulated_is_told_in_every_width() -> None:
    snapshot = replace(World(1).run(5), simulated=True)
    for width in (40, 80, 200):
        assert "SIMULATED" in plain(view(snapshot, ui(width, 24)).block("header")[0])


def test_state_needs_no_colour() -> None:
    world = World(2)
    world.run(20)
    world.servers[0].error = "connect refused"
    rows = [plain(r) for r in view(world.run(10)).block("engines")]
    assert any(r.startswith("✖ ") and "down" in r for r in rows)
    assert any(r.startswith("● ") and " ok " in r for r in rows)


@pytest.mark.parametrize("sort", ["acceptance", "tokens/step", "batch", "wait", "output", "name"])
def test_every_sort_key_orders_all_engines(sort: str) -> None:
    world = World(4)
    world.servers[2].by_position = (0.5, 0.3, 0.1)
    world.servers[2].batch = 16
    world.servers[2].waiting = 3
    snapshot = world.run(30)
    shown = view(snapshot, ui(sort=sort))
    back = view(snapshot, ui(sort=sort, reverse=True))
    assert sorted(shown.order) == sorted(back.order)
    assert shown.order == back.order[::-1]
    if sort != "name":
        assert shown.order[0] == "10.0.0.6:8000/0"


def apart() -> Snapshot:
    """Engines that differ in everything sorted by; of some nothing or little is known."""
    world = World(8)
    servers = world.servers
    # By decode steps alone the first has the larger batch; prefills make it the second.
    servers[0].batch, servers[1].batch, servers[1].first = 16, 15, 40
    servers[0].queue_s, servers[1].queue_s = 0.0012, 0.0014
    servers[2].by_position = (0.5, 0.3, 0.1)
    servers[3].waiting = 3
    servers[4].by_position = (1.2, 1.1, 1.1)  # more accepted than drafted
    servers[5].sglang = 2.2
    servers[6].busy = False
    world.run(30)
    servers[7].error = "connect refused"
    return world.run(8)


TITLES = {
    "acceptance": "acc",
    "tokens/step": "tok/step",
    "batch": "batch",
    "wait": "wait ms",
    "output": "tok/s",
}


def column(shown: TopView, title: str) -> list[str]:
    """The cells of a column of the engine table, top to bottom."""
    _, head, *rows = (plain(row) for row in shown.block("engines"))
    (found,) = re.finditer(rf" {re.escape(title)}(?= )", head)
    cells = [row[: found.end()].split()[-1] for row in rows if row.strip()]
    return ["—" if " down " in row else cell for row, cell in zip(rows, cells, strict=False)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sort", TITLES)
def test_the_order_is_that_of_the_numbers_shown_and_unknown_ones_are_last(
    sort: str, reverse: bool
) -> None:
    shown = view(apart(), ui(220, 60, sort=sort, reverse=reverse))
    told = column(shown, TITLES[sort])
    known = [float(cell.replace(",", "")) for cell in told if cell != "—"]
    rising = sort in ("acceptance", "tokens/step")
    assert len(told) == 8
    assert len(known) >= 5
    assert known == sorted(known, reverse=rising == reverse)
    assert told[len(known) :] == ["—"] * (8 - len(known))


def test_positions_that_are_not_exported_are_not_explained_by_what_is_known() -> None:
    world = World(1)
    world.servers[0].sglang = 2.2
    snapshot = world.run(70)
    told = "\n".join(map(plain, build_detail(snapshot, "10.0.0.4:8000/0", ui(), snapshot.at)))
    assert "acceptance    0.400" in told
    assert "—  no draft positions are exported" in told


def test_filter_matches_all_words_anywhere() -> None:
    snapshot = World(4).run(5)
    assert view(snapshot, ui(filter="10.0.0.6 llama")).order == ("10.0.0.6:8000/0",)
    nothing = view(snapshot, ui(filter="nowhere"))
    assert nothing.order == ()
    assert "nothing matches “nowhere”: esc clears the filter" in nothing.text()


def test_cursor_stays_in_view_of_a_large_fleet() -> None:
    snapshot = World(60).run(3)
    shown = view(snapshot, ui(sort="name", selected="10.0.0.63:8000/0"))
    assert shown.selected == "10.0.0.63:8000/0"
    assert any("10.0.0.63:8000/0" in plain(r) for r in shown.block("engines"))
    assert "of 60" in plain(shown.block("engines")[0])


def test_only_rows_in_view_are_measured() -> None:
    snapshot = World(60).run(3)
    view(snapshot, ui(80, 24))
    measured = [e for e in snapshot.engines if "metrics" in e.__dict__]
    assert len(measured) <= 10


def test_foreign_text_moves_no_cursor() -> None:
    assert clean("a\x1b[2Jb\u202e\n漢") == "a?[2Jb? ?"


def normal() -> World:
    world = World(3)
    world.run(70)
    return world


def all_down() -> World:
    world = normal()
    for server in world.servers:
        server.error = "connect refused"
    return world


def all_idle() -> World:
    world = World(2)
    for server in world.servers:
        server.busy = False
    return world


def one_restarting() -> World:
    world = normal()
    world.servers[1].status = 503
    return world


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("found", [(), (pwned(),)], ids=["calm", "found"])
@pytest.mark.parametrize("fleet", [normal, all_down, all_idle, one_restarting])
def test_nothing_a_server_says_reaches_the_terminal_as_it_is(
    fleet: Callable[[], World], found: tuple[Found, ...], width: int
) -> None:
    snapshot = hostile(fleet().run(8))
    said = {"title": PWN, "note": None, "trouble": PWN, "filter": ""}
    for state in (
        ui(width, 50),
        ui(width, 50, **said, selected=snapshot.engines[0].name),
        ui(width, 50, stopped=PWN, note=PWN, filter=PWN, filtering=True),
    ):
        now = snapshot.at + 1
        rows = [row for b in build_view(snapshot, state, now, found).blocks for row in b.lines]
        rows += build_view(None, replace(state, targets=(PWN, PWN)), 0.0).block("verdict")
        rows += frame_rows(snapshot, state, now)
        for name in (*(e.name for e in snapshot.engines), PWN):
            rows += build_detail(snapshot, name, state, now, found)
        rows += [*findings_page(found, state, now), *events_page(snapshot, state)]
        rows += help_page(snapshot, [e.name for e in snapshot.engines], state)
        assert all(span.text.isprintable() for row in rows for span in row)


@pytest.mark.parametrize(
    ("quantile", "text", "cell"),
    [
        (Quantile(0.025, 0.05, "value"), "25–50 ms", "25–50"),
        (Quantile(0.0, 0.3, "unresolved"), "<300 ms", "<300"),
        (Quantile(60.0, None, "unresolved"), ">60 s", ">60s"),
        (Quantile(0.75, 1.0, "value"), "0.75–1 s", "0.75–1s"),
        (Quantile(1.0, 2.5, "value"), "1–2.5 s", "1–2.5s"),
        (Quantile.unknown("too few"), "—", "—"),
    ],
)
def test_quantiles_are_intervals(quantile: Quantile, text: str, cell: str) -> None:
    assert fmt.interval(quantile) == text
    assert fmt.cell_interval(quantile) == cell


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(8, "8 s"), (99, "99 s"), (100, "2 min"), (5400, "2 h"), (200_000, "2 d"), (-3, "0 s")],
)
def test_ages(seconds: float, words: str) -> None:
    assert fmt.duration(seconds) == words


@given(st.floats(0, 1e12))
def test_brief_numbers_fit_their_cell(value: float) -> None:
    assert len(fmt.brief(value)) <= 5


@pytest.mark.parametrize(("width", "paused"), [(40, False), (80, False), (80, True), (200, True)])
def test_help_and_quit_are_named(width: int, paused: bool) -> None:
    told = plain(view(World(1).run(2), ui(width, 24, paused=paused)).block("keys")[0])
    assert told.rstrip().endswith("? help  q quit")


def test_eighty_columns_name_every_key() -> None:
    told = plain(view(World(1).run(2), ui(80, 24)).block("keys")[0])
    assert all(f"{key} " in told for key in ("enter", "s", "/", "w", "p", "e", "a", "?", "q"))


def test_a_cut_sentence_names_the_key_that_shows_it_whole() -> None:
    long = (
        "raise --max-model-len, then restart one replica and compare its acceptance with the rest"
    )
    found = Found("LOW_ACCEPTANCE", "warning", "10.0.0.4:8000/0", action=long)
    said = plain(view(World(2).run(70), ui(80, 22), found).block("verdict")[1])
    assert said.rstrip().endswith("… (a)")
    assert len(said) == 80


def test_a_long_verdict_loses_no_letter_between_its_rows() -> None:
    evidence = "2,432 tokens  generated and no speculation series since the process started, n 5"
    found = Found("SPEC_NOT_ACTIVE", "critical", "10.0.0.4:8000/0", evidence, cause="")
    rows = view(World(2).run(70), ui(80, 34), found).block("verdict")
    said = " ".join(plain(row).strip() for row in rows[:2])
    assert " ".join(evidence.split()) in said


def test_the_first_fraction_of_a_second_is_no_alarm() -> None:
    world = World(1)
    world.run(1)
    world.servers[0].busy = False
    world.servers[0].engine.running = 4.0
    scrape = replace(world.servers[0].scrape(world.at + 0.3))
    world.window.push([scrape])
    shown = view(world.window.snapshot(world.at + 0.3))
    assert shown.verdict.word == "WAITING"
    assert "no draft in the first 0.3 s of data" in shown.text()
