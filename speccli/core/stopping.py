"""Being told to stop: a command that watches ends in good order, with what it has."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def told_to_stop() -> Iterator[asyncio.Future[int]]:
    """A future that SIGINT, SIGTERM and SIGHUP complete with their number.

    A signal that is ignored (nohup) stays so. Once told, SIGINT is ignored from the end of this on:
    what is left is to keep what there is and to say so, and a second Ctrl-C cut that off.
    """
    with told_twice() as (stop, _):
        yield stop


@contextlib.contextmanager
def told_twice() -> Iterator[tuple[asyncio.Future[int], asyncio.Future[int]]]:
    """`told_to_stop`, and a future that the next signal completes: to stop at once."""
    loop = asyncio.get_running_loop()
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
