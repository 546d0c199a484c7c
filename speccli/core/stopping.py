"""Being told to stop: a command that watches ends in good order, with what it has."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def told_to_stop() -> Iterator[asyncio.Future[int]]:
    """A future that SIGINT, SIGTERM and SIGHUP complete with their number.

    A signal that is ignored (nohup) stays so.
    """
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def told(number: int) -> None:
        if not stop.done():
            stop.set_result(number)

    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in numbers:
        loop.add_signal_handler(number, told, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
