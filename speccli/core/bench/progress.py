"""What a bench tells while it runs: a line a row, and between them how far it has come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from speccli.core.bench.results import Row

if TYPE_CHECKING:
    from speccli.core.bench.measure import Key


_TICK_S = 1.0


class Progress:
    """Words for whoever waits. `say` is a line that stays, `show` one that the next replaces."""

    def __init__(
        self,
        say: Callable[[str], None] = lambda text: None,
        show: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._say, self._show, self._clock, self._sleep = say, show, clock, sleep
        self._began = 0.0
        self._whole = self._done = 0
        self._label = ""
        self._waits: tuple[str, float] | None = None
        """What is waited for, and since when; None between two."""
        self._share = ""
        self._shown = -1.0

    def begin(self, rows: int, arms: Sequence[str], order: str) -> None:
        """So many rows are to be measured."""
        self._began = self._clock()
        self._whole = rows
        names = ", ".join(dict.fromkeys(arms))
        self._say(f"{rows} rows to measure: {names} ({order})" if rows else "nothing is missing")

    def starting(self, arm: str, log: str) -> None:
        """A server is being started."""
        self._say(f"{arm}: starting vLLM (log: {log})")
        self._label = arm
        self.phase("starting")

    def phase(self, words: str) -> None:
        """How far its start has come."""
        self._wait_for(f"{self._label}: {words}")

    def row(self, key: Key) -> None:
        """A row begins."""
        label = key.empty("ok", "").label
        self._wait_for(f"[{self._done + 1}/{self._whole}] {label}: running")

    def requests(self, done: int, of: int) -> None:
        """So many of its requests are answered."""
        self._share = f", {done} of {of} answered" if of else f", {done} answered"
        if self._clock() - self._shown >= 0.2:
            self._tell()

    def measured(self, row: Row) -> None:
        """A row is done."""
        self._waits = None
        self._done += 1
        self._say(f"[{self._done}/{self._whole}] {line(row)}{self._eta}")

    async def tick(self) -> None:
        """Tell every second how long it has been; until cancelled.

        A row's first answer may take a minute, and its warm-up counts for nothing.
        """
        while True:
            await self._sleep(_TICK_S)
            self._tell()

    def _wait_for(self, words: str) -> None:
        self._waits, self._share = (words, self._clock()), ""
        self._tell()

    def _tell(self) -> None:
        if self._waits is None:
            return
        words, since = self._waits
        self._shown = self._clock()
        took = f", {duration(self._shown - since)}" if self._shown - since >= _TICK_S else ""
        self._show(f"specctl: {words}{took}{self._share}{self._eta}")

    @property
    def _eta(self) -> str:
        left = self._whole - self._done
        if not self._done or not left:
            return ""
        return f", about {duration((self._clock() - self._began) / self._done * left)} left"


def line(row: Row) -> str:
    """A row in a line."""
    if row.state == "failed" or row.output_tokens_per_s.value is None:
        return f"{row.label}: {row.state.upper()}: {row.reason}"
    words = [f"{row.output_tokens_per_s.value:.1f} tok/s"]
    for name, spread in (("TPOT", row.tpot_s), ("TTFT", row.ttft_s)):
        if spread.p50.value is not None:
            words.append(f"{name} {1000 * spread.p50.value:.1f} ms")
    if row.acceptance.rate.value is not None:
        words.append(f"acceptance {row.acceptance.rate.value:.3f}")
    text = f"{row.label}: {', '.join(words)}"
    if row.state != "ok":
        text += f": {row.state.upper()}: {row.reason}"
    if row.client is not None and row.client.saturated:
        text += f": THE CLIENT WAS HELD UP: {row.client.reason}"
    return text


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `1 h 05 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"
