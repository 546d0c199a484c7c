"""The words of evidence: numbers, window, n."""

from __future__ import annotations

from collections.abc import Sequence

from speccli.core.stats.increase import Pool

_SHOWN = 3


def over(pool: Pool) -> str:
    """`over 60 s`, or since when the counters count."""
    if pool.since_start:
        return "since the process started"
    seconds = pool.seconds
    return "in the window" if seconds is None else f"over {duration(seconds)}"


def duration(seconds: float) -> str:
    """`0.5 s`, `60 s`, `90 min`, `5.0 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 600:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 3 * 3600 else f"{seconds / 3600:,.1f} h"


def accepted_of(pool: Pool) -> str:
    """`accepted 836 of 5,000 draft tokens (0.167) over 60 s, n=1000 drafts`."""
    accepted, drafted = pool.sums("accepted_tokens", "draft_tokens") or (0.0, 0.0)
    rate = f" ({accepted / drafted:.3f})" if drafted > 0 else ""
    drafts = pool.sums("drafts")
    n = f", n={drafts[0]:.0f} drafts" if drafts else f", n={drafted:.0f} draft tokens"
    return f"accepted {accepted:,.0f} of {drafted:,.0f} draft tokens{rate} {over(pool)}{n}"


def some(names: Sequence[str]) -> str:
    """`a, b, c and 9 more`."""
    shown = ", ".join(names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def plural(n: float, word: str) -> str:
    """`1 engine`, `1,000 engines`."""
    return f"{n:,.0f} {word}" if n == 1 else f"{n:,.0f} {word}s"
