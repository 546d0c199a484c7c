"""The poller: round after round, slower while everything is down, faster when woken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from speccli.core.errors import SourceError, UnreachableError
from speccli.core.poll import FIRST_PAUSE_S, Poller, pause_or_wake
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings, Window
from tests.core.pages import TARGET, scrape, spec_page
from tests.support.scraping import PAGE, source_of
from tests.support.servers import RawServer, Server, answering

Round = list[Scrape] | Exception | None


class Script:
    """A source that says what it is told to, and a clock that it moves."""

    simulated = False

    def __init__(self, rounds: Sequence[Round], *, interval_s: float = 2.0, takes: float = 0.0):
        self.interval_s = interval_s
        self.rounds = list(rounds)
        self.takes = takes
        self.now = 1000.0
        self.slept: list[float] = []
        self.closed = False

    async def scrapes(self) -> list[Scrape] | None:
        self.now += self.takes
        item = self.rounds.pop(0) if self.rounds else None
        if isinstance(item, Exception):
            raise item
        return item

    async def aclose(self) -> None:
        self.closed = True

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float, wake: asyncio.Event) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Tape:
    def __init__(self) -> None:
        self.rounds: list[list[Scrape]] = []

    def write(self, scrapes: list[Scrape]) -> None:
        self.rounds.append(scrapes)


def up(at: float, drafts: float = 100) -> list[Scrape]:
    return [scrape(at, spec_page(drafts=drafts, drafted=3 * drafts, accepted=2 * drafts))]


def down(at: float) -> list[Scrape]:
    return [Scrape(at, TARGET, error="connect refused")]


def poller(script: Script, **rest: object) -> Poller:
    window = Window(Settings())
    return Poller(script, window, clock=script.clock, sleep=script.sleep, **rest)  # type: ignore[arg-type]


async def run(script: Script, **rest: object) -> list[Snapshot]:
    return [snapshot async for snapshot in poller(script, **rest).snapshots()]


async def test_the_second_round_follows_at_once_and_then_the_interval_holds() -> None:
    script = Script([up(t) for t in range(1, 5)])
    snapshots = await run(script)
    assert len(snapshots) == 4
    assert script.slept == pytest.approx([FIRST_PAUSE_S, 2.0, 2.0, 2.0])


async def test_an_interval_shorter_than_the_first_pause_is_kept() -> None:
    script = Script([up(1), up(2)], interval_s=0.1)
    await run(script)
    assert script.slept == pytest.approx([0.1, 0.1])


async def test_rounds_begin_an_interval_apart_however_long_they_take() -> None:
    script = Script([up(t) for t in range(1, 5)], takes=0.5)
    await run(script)
    assert script.slept == pytest.approx([0.0, 1.5, 1.5, 1.5])


async def test_a_round_longer_than_the_interval_is_followed_at_once_and_never_overlapped() -> None:
    script = Script([up(t) for t in range(1, 4)], takes=7.0)
    await run(script)
    assert script.slept == [0.0, 0.0, 0.0]


async def test_the_pause_doubles_while_everything_is_down_up_to_a_bound() -> None:
    script = Script([up(1), *(down(t) for t in range(2, 8)), up(8), up(9)], interval_s=1.0)
    await run(script)
    assert script.slept == pytest.approx([0.3, 2, 4, 8, 15, 15, 15, 1, 1])


async def test_one_engine_that_answers_keeps_the_pace() -> None:
    half = [*up(1), Scrape(1, "http://other", error="connect refused")]
    script = Script([half, half, half])
    await run(script)
    assert script.slept == pytest.approx([FIRST_PAUSE_S, 2.0, 2.0])


async def test_a_long_interval_is_not_shortened_by_the_bound() -> None:
    script = Script([up(1), down(2), down(3)], interval_s=60.0)
    await run(script)
    assert script.slept == pytest.approx([FIRST_PAUSE_S, 60, 60])


async def test_a_source_without_targets_is_not_down() -> None:
    script = Script([[], [], []])
    await run(script)
    assert script.slept == pytest.approx([FIRST_PAUSE_S, 2.0, 2.0])


async def test_a_clock_set_back_does_not_lengthen_the_pause() -> None:
    script = Script([up(1), up(2), up(3)])
    script.takes = -3600.0
    await run(script)
    assert script.slept == pytest.approx([FIRST_PAUSE_S, 2.0, 2.0])


async def test_a_clock_set_forward_does_not_make_a_negative_pause() -> None:
    script = Script([up(1), up(2)], takes=3600.0)
    await run(script)
    assert script.slept == [0.0, 0.0]


async def test_rounds_go_through_the_window() -> None:
    snapshots = await run(Script([up(1, 100), up(2, 200)]))
    assert [s.at for s in snapshots] == [1, 2]
    assert snapshots[-1].fleet.drafts.value == 100
    assert snapshots[-1].fleet.acceptance_rate.value == pytest.approx(2 / 3)


async def test_the_end_of_the_source_ends_the_snapshots() -> None:
    script = Script([up(1), None, up(2)])
    assert len(await run(script)) == 1
    assert len(script.rounds) == 1


async def test_the_tap_sees_every_round_and_the_failures_too() -> None:
    tape = Tape()
    rounds = [up(1), down(2), []]
    await run(Script(rounds), tap=tape)
    assert tape.rounds == rounds


async def test_a_source_that_cannot_be_read_raises_and_the_next_call_goes_on() -> None:
    script = Script([up(1), UnreachableError("no answer"), up(3)], interval_s=1.0)
    fleet = poller(script)
    with pytest.raises(SourceError, match="no answer"):
        async for _ in fleet.snapshots():
            pass
    assert [s.at async for s in fleet.snapshots()] == [3]


async def test_after_a_source_failed_one_good_round_brings_the_pace_back() -> None:
    script = Script([SourceError("a"), SourceError("b"), up(1), up(2)], interval_s=1.0)
    fleet = poller(script)
    for _ in range(2):
        with pytest.raises(SourceError):
            await fleet.round()
    await fleet.round()
    assert [s.at async for s in fleet.snapshots()] == [2]
    assert script.slept == pytest.approx([FIRST_PAUSE_S])


async def test_age_is_told_against_now_live_and_against_the_newest_sample_in_a_replay() -> None:
    replayed = await run(Script([up(1), up(2, 150)]))
    assert replayed[-1].engines[0].state == "ok"
    [_, live] = await run(Script([up(1), up(2, 150)]), now=lambda: 100.0)
    assert live.engines[0].state == "stale"
    assert "98 s ago" in (live.engines[0].reason or "")


async def test_a_snapshot_can_be_asked_over_another_window() -> None:
    script = Script([up(t, 100 * t) for t in range(1, 9)])
    fleet = poller(script)
    async for _ in fleet.snapshots():
        pass
    assert fleet.snapshot(2.0).fleet.drafts.value == 200
    assert fleet.snapshot(None).fleet.drafts.value == 700
    assert fleet.snapshot().fleet.drafts.value == 700


async def test_three_of_64_engines_that_hang_do_not_slow_the_others() -> None:
    async with Server(answering(PAGE)) as server, RawServer(b"", hang=True) as dead:
        urls = [f"{server.url}/{i}" for i in range(61)] + [f"{dead.url}/{i}" for i in range(3)]
        source = source_of(*urls, interval_s=1.0, deadline_s=30.0)
        fleet = Poller(source, Window(Settings(stale_s=3.0)), now=time.time)
        began = time.monotonic()
        rounds = fleet.snapshots()
        whole = 0
        while whole < 4:
            taken = await anext(rounds)
            whole += sum(e.state in {"ok", "no-traffic"} for e in taken.engines) == 61
            assert time.monotonic() - began < 45.0, "90 s where a round waits for the slowest"
        await rounds.aclose()  # type: ignore[attr-defined]
        await source.aclose()


async def test_a_wake_cuts_the_pause_short_and_is_used_up() -> None:
    wake = asyncio.Event()
    pause = asyncio.create_task(pause_or_wake(3600.0, wake))
    await asyncio.sleep(0)
    assert not pause.done()
    wake.set()
    await pause
    assert not wake.is_set()


async def test_a_wake_during_the_round_makes_the_next_follow_at_once() -> None:
    wake = asyncio.Event()
    wake.set()
    await pause_or_wake(3600.0, wake)
    assert not wake.is_set()


async def test_a_pause_ends_by_itself() -> None:
    wake = asyncio.Event()
    for seconds in (0.0, 0.001):
        await pause_or_wake(seconds, wake)
    assert not wake.is_set()


async def test_a_cancelled_pause_is_cancelled() -> None:
    pause = asyncio.create_task(pause_or_wake(3600.0, asyncio.Event()))
    await asyncio.sleep(0)
    pause.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pause


async def test_waking_the_poller_polls_again() -> None:
    script = Script([up(1), up(2, 200)], interval_s=3600.0)
    fleet = Poller(script, Window(Settings()), clock=lambda: 0.0)
    rounds = fleet.snapshots()
    await anext(rounds)
    fleet.wake.set()
    async with asyncio.timeout(60):
        assert (await anext(rounds)).at == 2
    await rounds.aclose()  # type: ignore[attr-defined]
