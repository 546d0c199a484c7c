"""One round of one target, and what the window makes of it."""

from __future__ import annotations

from typing import Any

from speccli.core.sources.base import Scrape
from speccli.core.sources.scrape import ScrapeSource
from speccli.core.sources.targets import parse_targets
from speccli.core.stats.window import Settings, Window

PAGE = 'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
LATE = 10.0


def source_of(*urls: str, **options: Any) -> ScrapeSource:
    usual = {"deadline_s": LATE, "identify_engines": False, "interval_s": 0.2}
    return ScrapeSource(parse_targets(list(urls)), **{**usual, **options})


async def scrape(url: str, **options: Any) -> Scrape:
    """One round of one target."""
    source = source_of(url, **options)
    try:
        (found,) = await source.scrapes()
        return found
    finally:
        await source.aclose()


def state_of(found: Scrape) -> tuple[str, str]:
    """What the window makes of it."""
    window = Window(Settings())
    window.push([found])
    (engine,) = window.snapshot().engines
    return engine.state, engine.reason or ""
