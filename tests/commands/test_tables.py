"""The status for people: whole numbers at any width, in good days and bad."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from speccli.core.doctor.base import Area, Check
from speccli.core.findings import evaluate
from speccli.core.findings.base import Thresholds
from speccli.core.prices import PriceBook
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings, Window
from speccli.core.views.state import severity_of, worst_by_engine
from speccli.core.views.text import GLYPHS
from speccli.core.worth import worth
from speccli.tables.cost import cost_table
from speccli.tables.doctor import doctor_table
from speccli.tables.status import status_table
from tests.core.pages import Engine
from tests.tui.world import PWN, World, hostile, pwned

LONG = "http://vllm-llama-3-3-70b-{}.vllm.production.svc.cluster.local:8000"


def normal() -> Snapshot:
    return World(4).run(70)


def drift() -> Snapshot:
    world = World(4)
    world.run(30)
    world.servers[2].by_position = (0.3, 0.1, 0.03)
    return world.run(70)


def one_down() -> Snapshot:
    world = World(4)
    world.run(30)
    world.servers[1].error = "certificate not accepted: certificate has expired (--ca FILE?)"
    return world.run(70)


def all_down() -> Snapshot:
    world = World(4)
    world.run(30)
    for server in world.servers:
        server.error = "connect refused"
    return world.run(70)


def never_answered() -> Snapshot:
    world = World(2)
    for server in world.servers:
        server.error = "name not found"
    return world.run(2)


def no_traffic() -> Snapshot:
    world = World(4)
    for server in world.servers:
        server.busy = False
    return world.run(70)


def long_names() -> Snapshot:
    world = World(4)
    for i, server in enumerate(world.servers):
        server.url = LONG.format(i)
    return world.run(70)


def many() -> Snapshot:
    world = World(50)
    world.run(2)
    world.servers[45].error = "connect refused"
    return world.run(8)


def no_speculation() -> Snapshot:
    world = World(2)
    for server in world.servers:
        server.engine = Engine(k=0)
    return world.run(70)


CASES = [
    *(normal, drift, one_down, all_down, never_answered, no_traffic, no_speculation),
    *(long_names, many),
]


def shown(snapshot: Snapshot, width: int) -> str:
    findings = evaluate(snapshot, Thresholds(hold_s=10))
    return printed(status_table(snapshot, findings), width)


def printed(table: RenderableType, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, emoji=False).print(table)
    return out.getvalue()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_number_is_whole_at_every_width(case: object) -> None:
    assert callable(case)
    snapshot = case()
    widest = shown(snapshot, 200)
    whole = set(re.findall(r"[\w.,$<>–-]*\d[\w.,–-]*", widest))
    for width in (50, 60, 72, 80, 100, 120):
        text = shown(snapshot, width)
        assert max(map(len, text.splitlines())) <= width
        rows = text[text.index("  engine") :] if "  engine" in text else ""
        for row in rows.splitlines()[1:]:
            cells = re.split(r"  +", row.strip())[2:] if row[:2] in {"● ", "▲ ", "✖ ", "○ "} else []
            for cell in cells:
                assert "…" not in cell, (width, row)
                assert set(re.findall(r"[\w.,$<>–-]*\d[\w.,–-]*", cell)) <= whole, (width, row)


def test_at_80_columns_the_usual_fleet_keeps_every_column() -> None:
    text = shown(normal(), 80)
    (head,) = [line for line in text.splitlines() if line.startswith("  engine")]
    assert head.split() == [
        *("engine", "state", "acc", "tok/step", "batch"),
        *("wait", "ms", "TPOT", "p99", "tok/s", "$/1M"),
    ]


def test_an_engine_that_is_down_says_why_and_takes_no_room_from_others() -> None:
    text = shown(one_down(), 80)
    assert "4 engines (3 ok, 1 down)" in text
    assert "    certificate not accepted: certificate has expired (--ca FILE?)" in text
    assert "● 10.0.0.4:8000/0  ok     0.567" in text


def test_a_fleet_that_is_down_shows_no_grid_of_dashes() -> None:
    text = shown(all_down(), 80)
    assert "4 engines (4 down)" in text
    assert "tokens/step" not in text
    assert "no data in the window" not in text


def test_targets_that_never_answered_are_not_called_engines() -> None:
    text = shown(never_answered(), 80)
    assert text.startswith("2 targets (2 down)")
    assert "✖ 10.0.0.4:8000 " in text


def test_engines_of_one_domain_stay_apart() -> None:
    for width in (60, 80, 120):
        rows = [line for line in shown(long_names(), width).splitlines() if line[:1] == "●"]
        assert len({row[2:].split("  ")[0] for row in rows}) == 4, width


def test_of_a_large_fleet_the_worst_are_shown() -> None:
    text = shown(many(), 100)
    assert "✖ 10.0.0.49:8000/0" in text
    assert "… and 10 more engines (-o json has them all)" in text


def test_a_restart_is_told_beside_the_numbers() -> None:
    world = World(2)
    world.run(20)
    world.servers[0].restart(world.at)
    assert "restarted 1 time since it is watched" in shown(world.run(20), 80)


def test_words_from_servers_do_not_move_the_cursor() -> None:
    window = Window(Settings())
    page = b'vllm:num_requests_running{model_name="\x1b[2J\xe6\xa8\xa1",engine="\x07"} 1\n'
    window.push([Scrape(1.79e9, "http://a:1", 200, page)])
    window.push([Scrape(1.79e9, "http://b:1", error="\x1b]0;x\x07")])
    text = shown(window.snapshot(), 80)
    assert not {"\x1b", "\x07"} & set(text)


@pytest.mark.parametrize("case", CASES[:-2], ids=lambda case: case.__name__)
def test_an_engine_is_as_well_in_the_table_as_on_the_screen(case: object) -> None:
    assert callable(case)
    snapshot = case()
    worst = worst_by_engine(evaluate(snapshot, Thresholds(hold_s=10)))
    text = shown(snapshot, 120)
    for engine in snapshot.engines:
        severity, word = severity_of(engine, worst)
        name = re.escape(engine.name.removesuffix("/?"))
        assert re.search(rf"^{GLYPHS[severity]} {name} +{word}\b", text, re.MULTILINE)


def test_the_head_has_the_words_of_the_rows_and_of_the_screen() -> None:
    assert "4 engines (4 no traffic)" in shown(no_traffic(), 80)
    head, _, _ = shown(no_speculation(), 120).partition("\n")
    assert head.endswith(" · no speculation")


def assert_harmless(text: str) -> None:
    assert "pwn" in text
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_nothing_a_server_says_reaches_the_table_as_it_is(case: object) -> None:
    assert callable(case)
    assert_harmless(printed(status_table(hostile(case()), [pwned()]), 80))


def test_nothing_a_server_says_reaches_the_table_of_costs_as_it_is() -> None:
    book = PriceBook.bundled()
    (price,) = (book.find("anthropic:claude-sonnet-5"),)
    price = replace(price, asked=PWN, provider=PWN, model=PWN, notes=(PWN,), same_model=True)
    for snapshot in (normal(), never_answered()):
        result = worth(hostile(snapshot), [price], book.date, None)
        assert_harmless(printed(cost_table(result), 100))


@pytest.mark.parametrize("area", ["source", "settings"])
def test_nothing_a_server_says_reaches_the_table_of_checks_as_it_is(area: Area) -> None:
    check = Check(area, "reach", "fail", PWN, why=PWN, fix=PWN, subject=PWN)
    assert_harmless(printed(doctor_table([check]), 80))
