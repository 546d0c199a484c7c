from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from speccli.core.baseline.record import Profile
from speccli.core.baseline.watch import Watched, ensure_counted, watch
from speccli.core.config import Settings
from speccli.core.errors import SpecctlError
from speccli.core.open import Opened, open_source
from tests.support.recordings import counter, speculation
from tests.support.servers import Server

LONG_S = 3600.0
GRACE_S = 30.0
"""Longer than a last look takes here, even on a slow machine."""


@dataclass
class Engine:
    """An engine's page, given out when the test says so."""

    drafts: int = 1000
    pages: int | None = None
    """After how many it answers no more."""
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/metrics":
            return web.Response(status=404)
        if self.pages == 0:
            self.answers.clear()
        await self.answers.wait()
        if self.pages is not None:
            self.pages -= 1
        n = self.drafts
        text = speculation(3 * n, 2 * n, n, [n, n, 0])
        text += counter("vllm:generation_tokens_total", ("", 3 * n))
        return web.Response(text=text + "process_start_time_seconds 1795000000.0\n")


def opened(url: str, *, interval: str = "1h", deadline: str = "1m") -> Opened:
    settings = Settings(endpoint=(url,), interval=interval, deadline=deadline)
    return open_source(settings, replay=None, default_window_s=60.0)


@dataclass
class Recorder:
    """Watches a server in the background, and remembers what it was told."""

    source: Opened
    last_look_s: float = GRACE_S
    profile: Profile = field(default_factory=lambda: Profile(60.0))
    told: list[float | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        watching = watch(
            self.source,
            self.profile,
            lasting_s=LONG_S,
            tell=lambda _, drafts: self.told.append(drafts),
            last_look_s=self.last_look_s,
        )
        self.task = asyncio.create_task(watching)

    async def stopped(self) -> Watched:
        """Told to stop; what it came to."""
        os.kill(os.getpid(), signal.SIGINT)
        return await self.task

    def said(self, watched: Watched) -> str:
        """Why nothing could be counted."""
        with pytest.raises(SpecctlError) as caught:
            ensure_counted(self.profile, watched)
        return caught.value.message


async def until(met: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not met():  # noqa: ASYNC110 - what is waited for knows no events
            await asyncio.sleep(0.01)


async def test_what_was_made_since_the_last_round_is_counted_when_told_to_stop() -> None:
    engine = Engine()
    async with Server(engine) as server:
        recorder = Recorder(opened(server.url))
        await until(lambda: len(recorder.told) == 2)  # the next round is an hour away
        engine.drafts += 5000
        watched = await recorder.stopped()
    assert recorder.told == [None, 0.0, 5000.0]
    assert (watched.stopped, recorder.profile.drafts) == (True, 5000.0)
    ensure_counted(recorder.profile, watched)


async def test_a_slow_answer_that_is_under_way_is_waited_for_when_told_to_stop() -> None:
    engine = Engine()
    async with Server(engine) as server:
        recorder = Recorder(opened(server.url, interval="0.1s"))
        await until(lambda: recorder.told)
        engine.answers.clear()
        asked = len(server.asked)
        await until(lambda: len(server.asked) > asked)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.1)  # it may not have ended by then, else nothing is shown here
        assert not recorder.task.done()
        engine.drafts += 7000
        engine.answers.set()
        await recorder.task
    assert recorder.profile.drafts == 7000.0


@pytest.mark.parametrize("again", [False, True], ids=["too-slow", "told-again"])
async def test_the_last_look_is_not_waited_for_forever(again: bool) -> None:
    engine = Engine()
    async with Server(engine) as server:
        recorder = Recorder(opened(server.url, interval="0.1s"), 600.0 if again else 0.2)
        await until(lambda: recorder.told)
        engine.drafts += 3000
        await until(lambda: 3000.0 in recorder.told)
        engine.answers.clear()
        asked = len(server.asked)
        await until(lambda: len(server.asked) > asked)
        os.kill(os.getpid(), signal.SIGINT)
        while again and not recorder.task.done():  # signals that come at once are one
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.05)
        async with asyncio.timeout(60):
            await recorder.task
        engine.answers.set()
    assert recorder.profile.drafts == 3000.0


async def test_drafts_are_not_0_where_the_engine_has_not_answered_yet() -> None:
    engine = Engine()
    engine.answers.clear()
    async with Server(engine) as server:
        recorder = Recorder(opened(server.url), last_look_s=0.05)
        await until(lambda: server.asked)
        watched = await recorder.stopped()
        engine.answers.set()
    assert recorder.profile.drafts is None
    assert recorder.said(watched) == f"no answer yet from {server.url}"


async def test_drafts_are_not_0_where_the_engine_was_too_slow() -> None:
    engine = Engine()
    engine.answers.clear()
    async with Server(engine) as server:
        recorder = Recorder(opened(server.url, deadline="0.2s"))
        await until(lambda: recorder.told)
        watched = await recorder.stopped()
        engine.answers.set()
    assert set(recorder.told) == {None}
    why = f"no engine could be read ({server.url}: no answer within 0.2 s)"
    assert recorder.said(watched) == why


async def test_drafts_are_not_0_where_nobody_listens() -> None:
    recorder = Recorder(opened("http://127.0.0.1:1"))
    await until(lambda: recorder.told)
    watched = await recorder.stopped()
    assert recorder.said(watched).endswith("(http://127.0.0.1:1: connect refused)")


async def test_drafts_are_not_0_after_a_single_answer() -> None:
    engine = Engine(pages=1)
    async with Server(engine) as server:
        recorder = Recorder(opened(server.url, interval="0.1s"), last_look_s=0.05)
        await until(lambda: recorder.told)
        watched = await recorder.stopped()
        engine.answers.set()
    assert recorder.told == [None]
    assert recorder.said(watched) == (
        "drafts are counted between two answers, and each engine gave one"
    )
