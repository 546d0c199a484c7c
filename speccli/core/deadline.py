"""A wall clock over everything a check does, whatever hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from speccli.core.errors import DeadlineError

T = TypeVar("T")
_START_S = 0.8
"""What Python itself takes before and after, on a busy machine."""
_JOIN_S = 0.2


class Clock:
    """How much of the deadline is left."""

    def __init__(self, deadline_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`deadline_s`: from now on, less what starting and leaving take."""
        self.deadline_s = deadline_s
        self._clock = clock
        self._ends = clock() + max(0.5 * deadline_s, deadline_s - _START_S)

    @property
    def left(self) -> float:
        """Seconds, 0 at least."""
        return max(0.0, self._ends - self._clock())

    def late(self) -> DeadlineError:
        """That it is over."""
        return DeadlineError(
            f"no verdict within {self.deadline_s:g} s", hint="raise --deadline, or see what hangs"
        )


def run(clock: Clock, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own, and do not wait for threads that hang.

    Raises:
        DeadlineError: it is not done in time.
    """
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_within(clock, work))
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        with contextlib.suppress(Exception):
            loop.run_until_complete(asyncio.wait_for(_ended(left), _JOIN_S))
        loop.close()


async def _within(clock: Clock, work: Coroutine[Any, Any, T]) -> T:
    try:
        async with asyncio.timeout(clock.left):
            return await work
    except TimeoutError:
        raise clock.late() from None


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


class LastResort:
    """Ends the process where something that cannot be interrupted (a disk, a name) hangs."""

    def __init__(self, clock: Clock, say: Callable[[], None], code: Callable[[], int]) -> None:
        """`say`: writes the answer that is then given, if none was; `code`: its exit code."""
        self._say = say
        self._code = code
        self._timer = threading.Timer(clock.left + 0.25 * _START_S, self._give_up)
        self._timer.daemon = True

    def __enter__(self) -> LastResort:
        """Begin to watch."""
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The work is done."""
        self._timer.cancel()

    def _give_up(self) -> None:
        self._say()
        sys.stdout.flush()
        os._exit(self._code())


def leave(code: int) -> None:
    """End the process now if a thread hangs that Python would wait for; else return."""
    others = [
        t
        for t in threading.enumerate()
        if t is not threading.main_thread() and not t.daemon and t.is_alive()
    ]
    for thread in others:
        if thread.name.startswith("asyncio_"):
            thread.join(_JOIN_S)
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
