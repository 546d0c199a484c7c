"""Threads that hold up no end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from speccli.core import stopping
from speccli.core.stopping import Unwaited, told_to_stop


def test_a_thread_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_JOIN_S", 0.2)
    hangs, begun = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        hangs.wait(60)

    async def main() -> str:
        with told_to_stop():
            hanging = asyncio.create_task(asyncio.to_thread(hang))
            await asyncio.to_thread(begun.wait, 60)
            hanging.cancel()
        return "done"

    began = time.monotonic()
    assert asyncio.run(main()) == "done"
    assert time.monotonic() - began < 30
    hangs.set()


def test_what_ends_in_a_moment_is_waited_for() -> None:
    wrote = threading.Event()

    def write() -> None:
        time.sleep(0.2)
        wrote.set()

    async def main() -> None:
        with told_to_stop():
            writing = asyncio.create_task(asyncio.to_thread(write))
            await asyncio.sleep(0.05)
            writing.cancel()

    asyncio.run(main())
    assert wrote.is_set()


async def test_results_errors_and_more_calls_than_threads_come_back() -> None:
    with told_to_stop():
        assert await asyncio.gather(*(asyncio.to_thread(abs, -n) for n in range(100))) == [
            *range(100)
        ]
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)


def test_its_threads_end_with_it() -> None:
    before = set(threading.enumerate())
    threads = Unwaited()
    assert threads.submit(abs, -1).result(60) == 1
    (thread,) = set(threading.enumerate()) - before
    threads.shutdown()
    thread.join(60)
    assert not thread.is_alive()
