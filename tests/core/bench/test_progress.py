"""What a bench tells whoever waits for it."""

from __future__ import annotations

import asyncio

from speccli.core.bench.measure import Key
from speccli.core.bench.progress import Progress


class Waiting:
    """A clock that its own sleep moves on, and what was shown."""

    def __init__(self, until: float) -> None:
        self.now, self.until = 100.0, 100.0 + until
        self.shown: list[str] = []
        self.progress = Progress(
            lambda text: None, self.shown.append, clock=lambda: self.now, sleep=self.sleep
        )

    async def sleep(self, seconds: float) -> None:
        if self.now >= self.until:
            raise asyncio.CancelledError
        self.now += seconds

    async def over(self) -> None:
        task = asyncio.ensure_future(self.progress.tick())
        await asyncio.gather(task, return_exceptions=True)


async def test_a_row_without_an_answer_yet_tells_how_long_it_has_been() -> None:
    waiting = Waiting(until=41)
    waiting.progress.begin(9, ["a"], "interleaved")
    waiting.progress.row(Key("a", "builtin", 8, None, 0))
    await waiting.over()
    assert waiting.shown[0].startswith("specctl: [1/9] a, batch 8")
    assert waiting.shown[0].endswith(": running")
    assert waiting.shown[-1].endswith(": running, 41 s")
    assert len(waiting.shown) == 42  # once at its beginning, then once a second


async def test_answers_are_counted_beside_the_time() -> None:
    waiting = Waiting(until=3)
    waiting.progress.begin(9, ["a"], "interleaved")
    waiting.progress.row(Key("a", "builtin", 8, None, 0))
    waiting.progress.requests(1, 16)
    waiting.progress.requests(2, 16)  # at the same moment as the row's beginning: not shown
    await waiting.over()
    assert waiting.shown[-1].endswith(": running, 3 s, 2 of 16 answered")
    assert len(waiting.shown) == 4


async def test_a_start_tells_its_phase_and_how_long_it_has_been() -> None:
    waiting = Waiting(until=120)
    waiting.progress.begin(9, ["a"], "blocks")
    waiting.progress.starting("a", "a.log")
    waiting.progress.phase("loading weights")
    await waiting.over()
    assert waiting.shown[-1] == "specctl: a: loading weights, 2 min"


async def test_between_two_rows_nothing_is_drawn_over_what_was_said() -> None:
    waiting = Waiting(until=5)
    key = Key("a", "builtin", 8, None, 0)
    waiting.progress.begin(9, ["a"], "interleaved")
    waiting.progress.row(key)
    waiting.progress.measured(key.empty("failed", "gone"))
    shown = len(waiting.shown)
    await waiting.over()
    assert len(waiting.shown) == shown
