"""The screen with its poller: rounds emitted by the test, the worker and its death."""

from __future__ import annotations

import signal
from dataclasses import replace

from speccli.core.errors import RecordingError, UnreachableError, UsageError
from tests.tui.world import ScriptedSource, World, text_of, until, wired
from tui.outside import Later


async def test_two_rounds_make_a_rate() -> None:
    world, source = World(1), ScriptedSource()
    app = wired(world, source)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "asked http://10.0.0.4:8000; no answer yet" in text_of(app))
        source.emit(world.round())
        await until(pilot, lambda: "since start" in text_of(app))
        source.emit(world.round())
        await until(pilot, lambda: "274 tok/s" in text_of(app))
    assert source.closed


async def test_one_down_then_all_down_then_back() -> None:
    world, source = World(2), ScriptedSource()
    app = wired(world, source)
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(3):
            source.emit(world.round())
        await until(pilot, lambda: "● OK" in text_of(app))
        world.servers[1].error = "connect refused"
        for _ in range(8):
            source.emit(world.round())
        await until(pilot, lambda: "10.0.0.5:8000/0 is down: connect refused" in text_of(app))
        world.servers[0].error = "no answer within 5 s"
        for _ in range(8):
            source.emit(world.round())
        await until(pilot, lambda: "none of 2 engines can be read" in text_of(app))
        for server in world.servers:
            server.error = None
        source.emit(world.round())
        source.emit(world.round())
        await until(pilot, lambda: "● OK" in text_of(app))
        await pilot.press("e")
        await until(pilot, lambda: "answers again" in text_of(app))


async def test_a_source_that_fails_as_a_whole_is_asked_again() -> None:
    world, source = World(1), ScriptedSource()
    app = wired(world, source)
    async with app.run_test(size=(100, 24)) as pilot:
        source.emit(UnreachableError("no answer from http://prom:9090", hint="is it up"))
        await until(pilot, lambda: "no answer from http://prom:9090: is it up" in text_of(app))
        assert "polling stopped" not in text_of(app)
        source.emit(world.round())
        source.emit(world.round())
        await until(pilot, lambda: "274 tok/s" in text_of(app))
        source.emit(UnreachableError("no answer from http://prom:9090"))
        await until(pilot, lambda: "trying again" in text_of(app))
        assert "274 tok/s" in text_of(app)


async def test_a_token_file_that_is_gone_for_a_moment_is_no_bug_and_asked_for_again() -> None:
    world, source = World(1), ScriptedSource()
    app = wired(world, source)
    async with app.run_test(size=(100, 24)) as pilot:
        source.emit(world.round())
        source.emit(world.round())
        await until(pilot, lambda: "274 tok/s" in text_of(app))
        source.emit(UsageError("token file t: No such file or directory"))
        await until(pilot, lambda: "token file t: No such file" in text_of(app))
        assert "trying again" in text_of(app)
        assert "bug" not in text_of(app)
        source.emit(world.round())
        await until(pilot, lambda: "token file" not in text_of(app))


async def test_a_bad_line_in_a_recording_ends_its_replay_with_the_sentence() -> None:
    world, source = World(1), ScriptedSource()
    app = wired(world, source)
    async with app.run_test(size=(100, 24)) as pilot:
        app.change(live=False)
        source.emit(world.round())
        source.emit(world.round())
        await until(pilot, lambda: "274 tok/s" in text_of(app))
        source.emit(RecordingError("line 7 of r is not a scrape", hint="was it cut"))
        await until(pilot, lambda: "line 7 of r is not a scrape: was it cut" in text_of(app))
        assert "bug" not in text_of(app)
        assert "trying again" not in text_of(app)
        assert "274 tok/s" in text_of(app)
        assert source.asked == 3


async def test_death_of_the_worker_is_said_and_stays_said() -> None:
    world, source = World(1), ScriptedSource()
    app = wired(world, source)
    async with app.run_test(size=(100, 24)) as pilot:
        source.emit(world.round())
        source.emit(world.round())
        await until(pilot, lambda: "274 tok/s" in text_of(app))
        source.emit(RuntimeError("boom"))
        await until(pilot, lambda: "polling stopped: RuntimeError: boom" in text_of(app))
        await pilot.press("s", "p", "p")
        assert "polling stopped: RuntimeError: boom" in text_of(app)
        assert app.is_running


async def test_end_of_a_source_keeps_its_last_state() -> None:
    world, source = World(1), ScriptedSource()
    app = wired(world, source)
    async with app.run_test(size=(100, 24)) as pilot:
        source.emit(world.round())
        source.emit(world.round())
        source.emit(None)
        await until(pilot, lambda: "the source has ended" in text_of(app))
        assert "274 tok/s" in text_of(app)


async def test_window_changes_at_once_in_the_data_at_hand() -> None:
    world, source = World(1), ScriptedSource()
    world.window.settings = World(1, window_s=10.0).window.settings
    app = wired(world, source)
    async with app.run_test(size=(100, 24)) as pilot:
        for second in range(30):
            world.servers[0].by_position = (0.3, 0.0, 0.0) if second < 15 else (0.9, 0.0, 0.0)
            source.emit(world.round())
        await until(pilot, lambda: "acceptance   0.300" in text_of(app))
        asked = source.asked
        await pilot.press("w")
        await until(pilot, lambda: "acceptance   0.203" in text_of(app))
        assert source.asked == asked
        assert "window: 30 s" in text_of(app)
        assert world.window.settings.window_s == 30.0


async def test_window_waits_while_the_screen_is_held() -> None:
    world, source = World(1), ScriptedSource()
    app = wired(world, source)
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.press("p", "w")
        assert app.ui.window_s == 60.0
        assert "p resumes, then w" in text_of(app)


async def test_read_now_cuts_the_pause_short() -> None:
    world, source = World(1), ScriptedSource()
    app = wired(world, source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("R")
        assert app.poller is not None
        assert app.poller.wake.is_set()


async def test_a_signal_leaves_by_the_apps_own_exit() -> None:
    app = wired(World(1), ScriptedSource())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "WAITING" in text_of(app))
        signal.raise_signal(signal.SIGTERM)
        await until(pilot, lambda: not app.is_running)
    assert app.return_code == 143


async def test_a_recording_goes_back_to_all_of_itself() -> None:
    world, source = World(1, window_s=3600.0), ScriptedSource()
    app = wired(world, source)
    async with app.run_test(size=(100, 24)) as pilot:
        app.change(live=False)
        source.emit(world.round())
        source.emit(world.round())
        await until(pilot, lambda: "274 tok/s" in text_of(app))
        await pilot.press("w")
        assert app.ui.window_s is None
        assert "window: the whole recording" in text_of(app)
        await pilot.press("w")
        assert app.ui.window_s == 10.0


async def test_a_source_read_every_30_s_is_not_stale_between_two_reads() -> None:
    world, source = World(1), ScriptedSource()
    app = wired(world, source)
    async with app.run_test(size=(100, 24)) as pilot:
        source.emit(world.round())
        await until(pilot, lambda: "since start" in text_of(app))
        # What a Prometheus is scraped at is known after the first round.
        world.window.settings = replace(world.window.settings, stale_s=76.0)
        source.emit(world.round())
        await until(pilot, lambda: "274 tok/s" in text_of(app))
        world.at += 70
        app.rebuild()
        assert "70 s ago" in text_of(app)
        assert "STALE" not in text_of(app)
        world.at += 7
        app.rebuild()
        assert "STALE 77 s" in text_of(app)


async def test_what_happens_by_itself_happens_on_the_screen_and_is_said() -> None:
    world, source = World(1), ScriptedSource()
    happened: list[float] = []
    later = Later(0.01, lambda: happened.append(world.at), "demo", "the traffic turns hot")
    app = wired(world, source, later=later)
    async with app.run_test(size=(100, 40)) as pilot:
        source.emit(world.round())
        await until(pilot, lambda: bool(happened))
        source.emit(world.round())
        await until(pilot, lambda: text_of(app).count("the traffic turns hot") == 2)
        (once,) = happened
        assert world.at - 2 <= once <= world.at  # before a round, between them or after
