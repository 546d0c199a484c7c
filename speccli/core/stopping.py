"""Being told to stop: a command that watches ends in good order, with what it has."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_THREADS = 32
"""As many as a loop has otherwise."""
_JOIN_S = 2.0
"""How long what a thread is doing is waited for at the end."""


@contextlib.contextmanager
def told_to_stop() -> Iterator[asyncio.Future[int]]:
    """A future that SIGINT, SIGTERM and SIGHUP complete with their number.

    A signal that is ignored (nohup) stays so. Once told, SIGINT is ignored from the end of this on:
    what is left is to keep what there is and to say so, and a second Ctrl-C cut that off. So from
    the beginning of this on, no thread of the loop's is waited for longer than a moment at its end.
    """
    with told_twice() as (stop, _):
        yield stop


@contextlib.contextmanager
def told_twice() -> Iterator[tuple[asyncio.Future[int], asyncio.Future[int]]]:
    """`told_to_stop`, and a future that the next signal completes: to stop at once."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Unwaited())
    stop: asyncio.Future[int] = loop.create_future()
    at_once: asyncio.Future[int] = loop.create_future()

    def told(number: int) -> None:
        for future in (stop, at_once):
            if not future.done():
                future.set_result(number)
                return

    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in numbers:
        loop.add_signal_handler(number, told, number)
    try:
        yield stop, at_once
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
        if stop.done():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


class Unwaited(concurrent.futures.ThreadPoolExecutor):
    """Threads for a loop, of which none holds up the end.

    A name server that is silent keeps a thread for minutes, and nothing can interrupt it: Python
    would wait for it, at the end of the loop and at its own.
    """

    def __init__(self) -> None:
        """The threads of the base class are never begun."""
        super().__init__(_THREADS)
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._begun = 0
        self._open: set[concurrent.futures.Future[object]] = set()

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[T]:
        """Call it in a thread."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - for whoever waits
                future.set_exception(error)

        self._open.add(future)  # type: ignore[arg-type]
        future.add_done_callback(self._open.discard)
        self._calls.put(call)
        if self._begun < _THREADS:
            self._begun += 1
            threading.Thread(target=self._work, name="specctl-call", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads; those that are at something are given a moment."""
        for _ in range(self._begun):
            self._calls.put(None)
        self._begun = 0
        if wait:
            concurrent.futures.wait(tuple(self._open), timeout=_JOIN_S)
        super().shutdown(wait=False, cancel_futures=cancel_futures)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
