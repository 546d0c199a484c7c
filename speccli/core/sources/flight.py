"""Questions under way: at most one to each target, whatever round it was asked in."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any

from speccli.core.sources.base import Scrape


class Flight:
    """What was asked and what came back, of which some may be late for its round."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Task[Scrape]] = {}
        self._found: dict[str, Scrape] = {}
        self._heard: set[str] = set()

    def __contains__(self, name: str) -> bool:
        """Whether a target still owes an answer."""
        return name in self._asked and not self._asked[name].done()

    @property
    def awaited(self) -> tuple[str, ...]:
        """Targets that were asked and of which nothing was handed over yet."""
        return tuple(name for name in self._asked if name not in self._heard)

    def ask(self, name: str, question: Coroutine[Any, Any, Scrape]) -> None:
        """Ask a target that owes no answer."""
        self._collect()
        self._asked[name] = asyncio.create_task(question)

    async def all(self) -> list[Scrape]:
        """Everything that was asked, however long it takes."""
        return await self._until_done(self._asked)

    async def of_awaited(self) -> list[Scrape]:
        """What came back, once every target has been heard."""
        return await self._until_done(self.awaited)

    async def within(self, seconds: float, asked_now: Iterable[str]) -> list[Scrape]:
        """What came back: of what was asked now within so long, of what is late if it is here.

        While nothing is good it goes on until something is, or until nothing is under way: that
        nobody answers is only known then.
        """
        tasks = {self._asked[name] for name in asked_now if name in self._asked}
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        self._collect()
        while self._asked and not any(each.status == 200 for each in self._found.values()):
            await asyncio.wait(self._asked.values(), return_when=asyncio.FIRST_COMPLETED)
            self._collect()
        return self._handed_over()

    def forget(self, name: str) -> None:
        """It is no target any more: what it still owes is not waited for."""
        if (task := self._asked.pop(name, None)) is not None:
            task.cancel()
        self._found.pop(name, None)
        self._heard.discard(name)

    async def cancel(self) -> None:
        """Ask no more."""
        tasks = list(self._asked.values())
        self._asked.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_done(self, names: Iterable[str]) -> list[Scrape]:
        tasks = {self._asked[name] for name in names}
        if tasks:
            await asyncio.wait(tasks)
        self._collect()
        return self._handed_over()

    def _collect(self) -> None:
        """Of a target that answered late and again in time the newer answer counts.

        Raises:
            Exception: what one of the questions raised; the rest of the answers are kept.
        """
        failed: BaseException | None = None
        for name, task in list(self._asked.items()):
            if not task.done():
                continue
            del self._asked[name]
            if task.cancelled():
                continue
            if (error := task.exception()) is not None:
                failed = failed or error
                continue
            scrape, before = task.result(), self._found.get(name)
            if before is not None and before.info and not scrape.info:
                scrape = replace(scrape, info=before.info)
            self._found[name] = scrape
        if failed is not None:
            raise failed

    def _handed_over(self) -> list[Scrape]:
        found, self._found = self._found, {}
        self._heard |= found.keys()
        return list(found.values())
