"""Load on one server: closed loop (so many in flight) or open loop (Poisson arrivals).

What is measured is a load that stands. The first requests of a row warm it up; then come the
measured ones, and behind them fillers keep it standing until the last measured one is answered.
So no measured request meets a server that is emptier than the row's name says, none is left out
because it was long, and the window has the same load at both of its ends.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal, Protocol

from speccli.core.bench.client import Answer, Ask

_GIVE_UP = 3
"""Requests lost one after the other, with none answered between, after which a row is given up."""
_PAUSE_S = 0.2
"""After a request that failed."""
_TICK_S = 0.25
"""How often the event loop is asked how late it is: seldom, for that wakes the client too."""


class Asks(Protocol):
    """Where requests come from, in the order of their numbers."""

    def __getitem__(self, number: int) -> Ask:
        """The request of this number, from 0; there is no end of them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The load of one row."""

    concurrency: int | None
    """Requests in flight (closed loop)."""
    rate: float | None
    """Requests a second (open loop)."""
    warmup: int
    requests: int | None
    """Measured ones."""
    seconds: float | None
    """Or the time in which the measured ones are sent."""
    window: Literal["steady", "whole"] = "steady"
    """`whole`: no fillers, from the first request to the last answer, as other tools count."""
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    """What a row brought."""

    measured: list[Answer] = field(default_factory=list)
    others: list[Answer] = field(default_factory=list)
    """Warm-up and fillers."""
    opened: float = 0.0
    """The window, `time.perf_counter`."""
    closed: float = 0.0
    cpu_s: float = 0.0
    """CPU time of this process in the window."""
    lags: list[float] = field(default_factory=list)
    """How late timers fired in the window, seconds."""
    gave_up: str | None = None
    """Why it ended early: the server is gone."""

    @property
    def seconds(self) -> float:
        """The window's length."""
        return self.closed - self.opened

    @property
    def answers(self) -> Iterator[Answer]:
        """All of them."""
        yield from self.others
        yield from self.measured

    @property
    def tokens(self) -> float:
        """Tokens that came inside the window, of whichever request."""
        return sum(
            answer.tokens_until(self.closed) - answer.tokens_until(self.opened)
            for answer in self.answers
        )


Send = Callable[[Ask, float | None], Awaitable[Answer]]


async def run(
    send: Send,
    asks: Asks,
    shape: Shape,
    *,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Outcome:
    """Put the load on and measure it. `progress`: measured requests answered, and of how many."""
    run_ = _Run(send, asks, shape, progress)
    gc.collect()
    gc.freeze()  # what the bench holds already need not be looked through while it measures
    run_.tick(perf_counter())
    try:
        await (run_.closed_loop() if shape.rate is None else run_.open_loop())
    finally:
        run_.stop_ticking()
        gc.unfreeze()
    return run_.finished()


class _Run:
    def __init__(
        self, send: Send, asks: Asks, shape: Shape, progress: Callable[[int, int], None]
    ) -> None:
        self._send, self._asks, self._shape, self._progress = send, asks, shape, progress
        self._out = Outcome()
        self._next = 0
        self._pending = 0
        """Measured requests in flight."""
        self._lost = 0
        self._over = asyncio.Event()
        """Nothing more is to be sent."""
        self._cpu = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._cpu_in_time: float | None = None
        """CPU time until the seconds of the row were over."""

    # ---- which request is what ----

    def _is_measured(self, number: int, now: float) -> bool:
        shape = self._shape
        if number < shape.warmup:
            return False
        if shape.requests is not None:
            return number < shape.warmup + shape.requests
        assert shape.seconds is not None
        return not self._out.opened or now < self._out.opened + shape.seconds

    @property
    def _all_sent(self) -> bool:
        shape = self._shape
        if shape.requests is not None:
            return self._next >= shape.warmup + shape.requests
        assert shape.seconds is not None
        return bool(self._out.opened) and perf_counter() >= self._out.opened + shape.seconds

    def _open(self, now: float) -> None:
        self._out.opened = now
        self._cpu = time.process_time()
        self._out.lags.clear()
        if self._shape.seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._shape.seconds, self._time_up)

    def _time_up(self) -> None:
        """The seconds of the row are over; where nothing is in flight, no answer will say so."""
        self._cpu_in_time = time.process_time() - self._cpu
        if not self._pending:
            self._close(perf_counter())
            self._over.set()

    def _close(self, now: float) -> None:
        if not self._out.closed:
            self._out.closed = now
            self._out.cpu_s = time.process_time() - self._cpu

    async def _one(self, number: int, due: float | None = None) -> None:
        now = perf_counter() if due is None else due
        measured = self._is_measured(number, now)
        if measured:
            if not self._out.opened:
                self._open(now)
            self._pending += 1
        answer = await self._send(self._asks[number], due)
        (self._out.measured if measured else self._out.others).append(answer)
        self._lost = self._lost + 1 if answer.lost else 0
        if self._lost >= _GIVE_UP:
            self._out.gave_up = answer.error
            self._over.set()
        if measured:
            self._pending -= 1
            self._progress(len(self._out.measured), self._shape.requests or 0)
            if self._all_sent and not self._pending:
                self._close(perf_counter())
                self._over.set()
        elif not answer.ok:
            await asyncio.sleep(_PAUSE_S)

    # ---- the two kinds of load ----

    async def closed_loop(self) -> None:
        """So many workers, each with one request in flight."""
        shape = self._shape
        workers = shape.concurrency or 1
        if shape.window == "whole":
            await self._work(workers, until=shape.warmup)
            end = None if shape.requests is None else shape.warmup + shape.requests
            await self._work(workers, until=end)
        else:
            await self._work(workers, until=None)

    async def _work(self, workers: int, until: int | None) -> None:
        """Workers take numbers until `until`, or as long as the load must stand."""

        def more() -> bool:
            if self._over.is_set():
                return False
            if until is not None:
                return self._next < until
            return not (self._shape.window == "whole" and self._all_sent)

        async def worker() -> None:
            while more():
                number, self._next = self._next, self._next + 1
                await self._one(number)

        await _all([asyncio.create_task(worker()) for _ in range(workers)])

    async def open_loop(self) -> None:
        """Poisson arrivals; a request is due at its time, however late the client is."""
        shape = self._shape
        assert shape.rate is not None
        chance = random.Random(shape.seed)
        due = perf_counter()
        tasks: set[asyncio.Task[None]] = set()
        most = math.inf if shape.requests is None else 3 * (shape.warmup + shape.requests) + 100
        try:
            while not self._over.is_set() and self._next < most:
                if shape.window == "whole" and self._all_sent:
                    break
                with_pause = due - perf_counter()
                if with_pause > 0:
                    await self._wait(with_pause)
                    continue
                number, self._next = self._next, self._next + 1
                task = asyncio.create_task(self._one(number, due))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                due += chance.expovariate(shape.rate)
        finally:
            await _all(list(tasks))

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return

    # ---- what the client costs ----

    def tick(self, due: float) -> None:
        """How late a timer fires is what this client may add to a latency."""
        now = perf_counter()
        if self._out.opened and not self._out.closed and self._cpu_in_time is None:
            self._out.lags.append(max(0.0, now - due))
        loop = asyncio.get_running_loop()
        self._ticker = loop.call_later(_TICK_S, self.tick, now + _TICK_S)

    def stop_ticking(self) -> None:
        """The row is over."""
        if self._ticker is not None:
            self._ticker.cancel()

    def finished(self) -> Outcome:
        """The outcome, its window closed."""
        out = self._out
        if self._timer is not None:
            self._timer.cancel()
        if out.opened and not out.closed:
            self._close(max((a.end for a in out.measured if a.ok), default=perf_counter()))
        if out.opened and self._shape.seconds is not None and self._shape.window == "steady":
            out.closed = min(out.closed, out.opened + self._shape.seconds)
            out.cpu_s = out.cpu_s if self._cpu_in_time is None else self._cpu_in_time
        if out.opened and self._shape.window == "whole":
            out.closed = max((a.end for a in out.measured if a.ok), default=out.closed)
        return out


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for them; if this is cancelled, or one fails, none is left behind."""
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
