"""The screen without a poller: snapshots posted by hand, keys pressed, text read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.pilot import Pilot

from speccli.core.stats.snapshot import Snapshot
from tests.tui.world import Found, World, plain_app, text_of, until
from tui.app import TopApp
from tui.messages import SnapshotReady, SourceTrouble
from tui.screens.page import PageScreen
from tui.screens.top import TopScreen
from tui.widgets.lines import Lines


async def post(pilot: Pilot[None], snapshot: Snapshot) -> None:
    app = pilot.app
    assert isinstance(app, TopApp)
    app.post_message(SnapshotReady(snapshot))
    await until(pilot, lambda: app.latest is snapshot)


def main_screen(app: TopApp) -> TopScreen:
    screen = app.screen_stack[0]
    assert isinstance(screen, TopScreen)
    return screen


def lines(app: TopApp, block: str) -> str:
    from speccli.core.views.text import plain

    return "\n".join(plain(x).rstrip() for x in app.screen.query_one(f"#{block}", Lines).lines)


async def test_nothing_yet_is_a_frame_with_a_sentence() -> None:
    app = plain_app(World(1))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "WAITING" in text_of(app))
        assert "no engine yet" in text_of(app)


async def test_forty_columns_keep_verdict_and_speculation() -> None:
    app, world = plain_app(World(2)), World(2)
    async with app.run_test(size=(40, 24)) as pilot:
        await post(pilot, world.run(70))
        text = text_of(app)
        assert "● OK" in text
        assert "acceptance   0.567" in text
        assert all(len(row) <= 40 for row in text.split("\n"))


async def test_resize_lays_out_anew() -> None:
    app, world = plain_app(World(2)), World(2)
    async with app.run_test(size=(80, 24)) as pilot:
        await post(pilot, world.run(70))
        assert lines(app, "charts") == ""
        await pilot.resize_terminal(200, 60)
        await until(pilot, lambda: "output tok/s" in lines(app, "charts"))
        await pilot.resize_terminal(40, 20)
        await until(pilot, lambda: lines(app, "charts") == "")
        assert app.ui.width == 40


async def test_pause_holds_the_screen_and_not_the_data() -> None:
    world = World(2)
    app = plain_app(world)
    async with app.run_test(size=(80, 24)) as pilot:
        await post(pilot, world.run(70))
        await pilot.press("p")
        world.servers[0].by_position = (0.1, 0.0, 0.0)
        newer = world.run(90)
        await post(pilot, newer)
        assert "acceptance   0.567" in text_of(app)
        assert "PAUSED" in text_of(app)
        assert app.latest is newer
        await pilot.press("p")
        await until(pilot, lambda: "acceptance   0.300" in text_of(app))
        assert "PAUSED" not in text_of(app)


async def test_sort_and_reverse_reorder_without_new_data() -> None:
    world = World(3)
    world.servers[1].by_position = (0.5, 0.3, 0.1)
    app = plain_app(world)
    async with app.run_test(size=(80, 24)) as pilot:
        await post(pilot, world.run(30))
        await pilot.press("s", "s")
        assert app.ui.sort == "acceptance"
        assert main_screen(app).view.order[0] == "10.0.0.5:8000/0"  # type: ignore[union-attr]
        await pilot.press("r")
        assert main_screen(app).view.order[-1] == "10.0.0.5:8000/0"  # type: ignore[union-attr]


async def test_filter_is_typed_kept_and_cleared() -> None:
    world = World(3)
    app = plain_app(world)
    async with app.run_test(size=(80, 24)) as pilot:
        await post(pilot, world.run(5))
        await pilot.press("/", "q", "backspace", "0", ".", "5")
        assert app.is_running
        assert app.ui.filter == "0.5"
        assert "filter 0.5" in lines(app, "keys")
        await pilot.press("enter")
        assert not isinstance(app.screen, PageScreen)
        assert main_screen(app).view.order == ("10.0.0.5:8000/0",)  # type: ignore[union-attr]
        await pilot.press("escape")
        assert len(main_screen(app).view.order) == 3  # type: ignore[union-attr]


async def test_cursor_follows_its_engine_and_detail_opens_it() -> None:
    world = World(30)
    app = plain_app(world)
    async with app.run_test(size=(80, 24)) as pilot:
        await post(pilot, world.run(3))
        await pilot.press("down", "j", "j", "up")
        assert app.ui.selected == "10.0.0.6:8000/0"
        await pilot.press("end")
        assert "10.0.0.33:8000/0" in lines(app, "engines")
        await pilot.press("pageup", "home", "down", "enter")
        await until(pilot, lambda: "─ 10.0.0.5:8000/0" in text_of(app))
        await pilot.press("right")
        await until(pilot, lambda: "─ 10.0.0.6:8000/0" in text_of(app))
        await pilot.press("end", "escape")
        await until(pilot, lambda: not isinstance(app.screen, PageScreen))
        assert app.ui.selected == "10.0.0.6:8000/0"


@pytest.mark.parametrize(
    ("key", "says"),
    [("e", "events, newest first"), ("a", "LOW_ACCEPTANCE"), ("question_mark", "why — ?")],
)
async def test_pages_open_go_on_and_close_by_the_same_key(key: str, says: str) -> None:
    world = World(2)
    found = [Found("LOW_ACCEPTANCE", "warning", "10.0.0.5:8000/0")]
    app = plain_app(world, judge=lambda _: found)
    async with app.run_test(size=(80, 24)) as pilot:
        await post(pilot, world.run(5))
        await pilot.press(key)
        await until(pilot, lambda: says in text_of(app))
        await post(pilot, world.run(5))
        await pilot.press(key)
        await until(pilot, lambda: "users feel" in text_of(app))


async def test_help_tells_why_each_dash_is_one() -> None:
    world = World(2, price=None)
    app = plain_app(world)
    async with app.run_test(size=(100, 60)) as pilot:
        await post(pilot, world.run(70))
        await pilot.press("?")
        await until(pilot, lambda: "no GPU price given (--gpu-hour-usd)" in text_of(app))


async def test_copy_is_the_snapshot_on_screen() -> None:
    world, shown = World(1), []

    def as_json(snapshot: Snapshot) -> str:
        shown.append(snapshot)
        return json.dumps({"at": snapshot.at})

    app = plain_app(world, as_json=as_json)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("y")
        assert "nothing to copy yet" in lines(app, "keys")
        first = world.run(3)
        await post(pilot, first)
        await pilot.press("p")
        await post(pilot, world.run(3))
        await pilot.press("y")
        assert shown == [first]
        assert app.clipboard == json.dumps({"at": first.at})
        assert "copied" in lines(app, "keys")


async def test_picture_is_written_and_named(tmp_path: Path) -> None:
    app = plain_app(World(1), directory=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("S")
        path = tmp_path / "specctl-top-20261129T180019.svg"
        assert path.read_text().startswith("<svg")
        assert "picture:" in lines(app, "keys")


async def test_picture_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    app = plain_app(World(1), directory=tmp_path / "nowhere")
    async with app.run_test(size=(120, 24)) as pilot:
        await pilot.press("S")
        assert "No such file or directory" in lines(app, "keys")


async def test_answers_to_keys_go_away() -> None:
    world = World(1)
    app = plain_app(world)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("y")
        world.at += 10
        app._tick()
        assert lines(app, "keys").startswith("enter open")


async def test_rows_that_stay_the_same_are_not_painted_again() -> None:
    world = World(3)
    app = plain_app(world)
    async with app.run_test(size=(120, 40)) as pilot:
        await post(pilot, world.run(70))
        await pilot.pause()
        blocks = {w.id: w for w in app.screen.query(Lines)}
        before = {name: w.painted for name, w in blocks.items()}
        world.at += 1
        app.rebuild()
        after = {name: w.painted for name, w in blocks.items()}
        assert {n: after[n] - before[n] for n in after if after[n] != before[n]} == {"header": 1}


async def test_a_broken_rule_takes_no_numbers_away() -> None:
    def judge(_: Snapshot) -> Sequence[Found]:
        raise ZeroDivisionError("rule")

    world = World(1)
    app = plain_app(world, judge=judge)
    async with app.run_test(size=(100, 24)) as pilot:
        await post(pilot, world.run(70))
        assert "acceptance   0.567" in text_of(app)
        assert "findings are not judged: ZeroDivisionError: rule" in lines(app, "keys")


async def test_trouble_of_the_source_is_said_and_goes() -> None:
    world = World(1)
    app = plain_app(world)
    async with app.run_test(size=(100, 24)) as pilot:
        await post(pilot, world.run(3))
        app.post_message(SourceTrouble("no answer from http://prom:9090: is it up?"))
        await until(pilot, lambda: "no answer from http://prom:9090" in lines(app, "banner"))
        await post(pilot, world.run(1))
        assert lines(app, "banner") == ""


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130)])
async def test_leaving(key: str, code: int) -> None:
    app = plain_app(World(1))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
    assert app.return_code == code


def test_newest_snapshot_replaces_the_one_not_looked_at() -> None:
    first, second = SnapshotReady(World(1).run(1)), SnapshotReady(World(1).run(2))
    assert second.can_replace(first)
    assert not second.can_replace(SourceTrouble("x"))
    assert SourceTrouble("y").can_replace(SourceTrouble("x"))
