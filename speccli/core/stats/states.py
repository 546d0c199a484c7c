"""What keeps an engine's numbers from being what they seem, in words."""

from __future__ import annotations

from collections.abc import Mapping

from speccli.core.engines.registry import ADAPTERS
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Processes
from speccli.core.stats.track import Track

_MIXED_S = 60.0
"""How long a URL that answered for several processes is believed to go on doing so."""

NOT_ALONE: Mapping[Processes, str | None] = {
    "one": None,
    "unsure": (
        "another process answers at this URL: it was replaced, or it is one of several "
        "(a load balancer? point --endpoint at each one); a few scrapes will tell"
    ),
    "several": (
        "this URL answers for several processes (a load balancer?): point --endpoint at each one"
    ),
}


def processes_of(track: Track, at: float) -> Processes:
    """Who answers at the URL: unless it is one process, no number is any one's."""
    seen = track.several_processes_at
    if seen is not None and at - seen < _MIXED_S:
        return "several"
    return "unsure" if track.doubtful else "one"


def idle(track: Track, window_s: float | None) -> bool:
    """Whether it counts tokens, counted none in the window, and has nothing to do."""
    growth = track.increase(window_s)
    if growth is None:
        return False
    i = growth.layout.index.get("generation_tokens")
    drafted = growth.layout.index.get("draft_tokens")
    tokens = (growth.values[i] if i is not None else 0.0) + (
        growth.values[drafted] if drafted is not None else 0.0
    )
    busy = track.last.gauges.get("running", 0) + track.last.gauges.get("waiting", 0)
    counted = i is not None or drafted is not None
    return counted and tokens == 0 and busy == 0


def both(partial: str | None, note: str | None) -> str:
    """What a page lacks, and what its size has to do with it; the cause goes first."""
    told = [word for word in (partial, note) if word]
    if note and note.startswith("TOO_LARGE: reading stopped"):
        told.reverse()
    return "; ".join(told)


def refused(scrape: Scrape, kind: str | None) -> tuple[str, str]:
    """What an HTTP status other than 200 means; word and reason.

    `kind`: the engine that was read there before; None where none was.
    """
    status = scrape.status or 0
    if status in {401, 403}:
        return "AUTH", f"HTTP {status}: the server wants other credentials (--token, --cert)"
    if 300 <= status < 400:
        # To a login, as a rule: another host has no metrics of this one.
        word = "AUTH" if (scrape.note or "").startswith("redirects to ") else "MISSING"
        return word, f"HTTP {status}: a redirect that leads to no metrics"
    if status == 404:
        return "MISSING", "HTTP 404: no metrics at this path"
    if status >= 500:
        hints = [a.server_error_hint for a in ADAPTERS if kind in {None, a.kind}]
        told = "; ".join(hint for hint in hints if hint)
        return "SERVER", f"HTTP {status}: {told or 'its metrics handler fails'}"
    return "MISSING", f"HTTP {status}"
