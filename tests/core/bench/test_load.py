"""A load that stands while it is measured."""

from __future__ import annotations

import asyncio
import time
from array import array
from time import perf_counter

import pytest

from speccli.core.bench.client import Answer, Ask
from speccli.core.bench.load import Outcome, Shape, run

STEP_S = 0.004


class Clock:
    """A pretended server: an answer takes as many steps as its number says."""

    def __init__(self, steps: int = 5, *, fails: frozenset[int] = frozenset()) -> None:
        self.flying = 0
        self.seen: list[tuple[int, int]] = []
        """Number, and how many were in flight with it when it began."""
        self._steps, self._fails = steps, fails

    def __getitem__(self, number: int) -> Ask:
        return Ask(str(number), b"")

    async def send(self, ask: Ask, due: float | None) -> Answer:
        number = int(ask.prompt)
        self.flying += 1
        sent = perf_counter()
        answer = Answer(ask.prompt, sent if due is None else due, sent=sent)
        try:
            if number in self._fails:
                answer.error, answer.lost = "connect refused", True
                return answer
            self.seen.append((number, self.flying))
            arrivals = array("d")
            for _ in range(self._steps + number % 3):
                await asyncio.sleep(STEP_S)
                arrivals.append(perf_counter())
            answer.arrivals, answer.first, answer.end = arrivals, arrivals[0], arrivals[-1]
            answer.output_tokens = 2 * len(arrivals) - 1
            return answer
        finally:
            self.flying -= 1


def numbers(answers: list[Answer]) -> list[int]:
    return sorted(int(answer.prompt) for answer in answers)


async def put(server: Clock, **given: object) -> Outcome:
    usual: dict[str, object] = {
        "concurrency": 4,
        "rate": None,
        "warmup": 4,
        "requests": 12,
        "seconds": None,
    }
    return await run(server.send, server, Shape(**(usual | given)))  # type: ignore[arg-type]


async def test_warm_up_comes_first_and_fillers_until_the_last_measured_one_is_answered() -> None:
    server = Clock()
    outcome = await put(server)
    assert numbers(outcome.measured) == list(range(4, 16))
    assert numbers(outcome.others)[:4] == [0, 1, 2, 3]
    assert len(outcome.others) > 4
    # Every measured request met the whole load, the last ones too.
    assert all(flying >= 4 for number, flying in server.seen if 4 <= number < 16)
    assert server.flying == 0


async def test_tokens_in_the_window_are_counted_whoever_they_belong_to() -> None:
    server = Clock()
    outcome = await put(server)
    everything = sum(answer.output_tokens for answer in outcome.answers)
    measured = sum(answer.output_tokens for answer in outcome.measured)
    assert measured <= outcome.tokens < everything
    # The pretended server sends one token at first and two with each later chunk.
    came = [
        2.0 if i else 1.0
        for answer in outcome.answers
        for i, at in enumerate(answer.arrivals)
        if outcome.opened < at <= outcome.closed
    ]
    assert outcome.tokens == pytest.approx(sum(came))


async def test_the_whole_window_has_no_fillers_and_its_tail_counts() -> None:
    outcome = await put(Clock(), window="whole")
    assert numbers(outcome.measured) == list(range(4, 16))
    assert numbers(outcome.others) == [0, 1, 2, 3]
    assert outcome.opened <= min(answer.due for answer in outcome.measured)
    assert outcome.closed == max(answer.end for answer in outcome.measured)
    assert outcome.tokens == sum(answer.output_tokens for answer in outcome.measured)


async def test_a_row_of_so_many_seconds_measures_what_was_sent_in_them() -> None:
    outcome = await put(Clock(), requests=None, seconds=0.3)
    assert outcome.seconds == pytest.approx(0.3)
    sent = [answer.sent for answer in outcome.measured]
    assert min(sent) >= outcome.opened - 0.01
    assert max(sent) < outcome.closed
    assert all(a.sent >= outcome.closed for a in outcome.others if int(a.prompt) >= 4)


async def test_an_open_loop_sends_when_due_however_many_are_in_flight() -> None:
    server = Clock(steps=30)
    outcome = await put(server, concurrency=None, rate=400.0, requests=30)
    due = sorted(answer.due for answer in outcome.measured)
    gaps = [b - a for a, b in zip(due, due[1:], strict=False)]
    assert sum(gaps) / len(gaps) == pytest.approx(1 / 400, rel=0.6)
    assert max(gaps) > 3 * min(gaps)  # arrivals are random, not a clock's
    assert max(flying for _, flying in server.seen) > 10


async def test_a_server_that_is_gone_ends_the_row() -> None:
    server = Clock(fails=frozenset(range(8, 10_000)))
    outcome = await asyncio.wait_for(put(server, requests=1000), 10)
    assert outcome.gave_up == "connect refused"
    assert sum(not answer.ok for answer in outcome.answers) < 20


async def test_a_single_lost_request_does_not() -> None:
    outcome = await put(Clock(fails=frozenset({6})))
    assert outcome.gave_up is None
    assert [answer.prompt for answer in outcome.measured if not answer.ok] == ["6"]


async def test_no_request_outlives_an_interruption() -> None:
    server = Clock(steps=10_000)
    task = asyncio.create_task(put(server))
    await asyncio.sleep(0.1)
    assert server.flying == 4
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.flying == 0


@pytest.mark.parametrize("seed", [1, 3])
async def test_an_open_loop_of_so_many_seconds_ends_where_nothing_is_in_flight(seed: int) -> None:
    async with asyncio.timeout(60):
        outcome = await put(
            Clock(), concurrency=None, rate=3.0, warmup=1, requests=None, seconds=0.5, seed=seed
        )
    assert outcome.measured
    assert outcome.seconds == pytest.approx(0.5, abs=0.05)


async def test_what_the_client_does_after_the_window_is_not_its_cost_in_it() -> None:
    class Busy(Clock):
        async def send(self, ask: Ask, due: float | None) -> Answer:
            answer = await super().send(ask, due)
            if int(ask.prompt) >= 4:
                await asyncio.sleep(0.3)  # past the window
                until = time.process_time() + 0.2
                while time.process_time() < until:
                    pass
            return answer

    outcome = await put(Busy(), concurrency=2, requests=None, seconds=0.2)
    assert outcome.seconds == pytest.approx(0.2, abs=0.02)
    assert outcome.cpu_s < 0.15


async def test_looking_how_late_it_is_wakes_the_client_seldom() -> None:
    """A slow server leaves a client asleep; a timer ten times a second cost a third of its CPU."""
    slow = Clock(steps=100)
    outcome = await put(slow, concurrency=1, warmup=0, requests=2, window="whole")
    assert outcome.seconds > 0.5
    assert 1 <= len(outcome.lags) <= 1 + 4 * outcome.seconds
