"""Durations as people type them, and back."""

from __future__ import annotations

import re

from speccli.core.errors import UsageError

_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|min|h|d)?\s*", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

_MOST_S = 366 * 86400.0
"""Nothing here lasts longer, and dates and timers overflow some way above."""


def seconds(text: str, *, what: str = "duration", least: float = 0.0) -> float:
    """Seconds in `90`, `90s`, `1.5m`, `1h`.

    Raises:
        UsageError: not a duration, one of fewer seconds than `least`, or more than a leap year.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"{what} {text!r} is not a duration", hint="write 30s, 5m or 1h")
    found = float(match.group(1)) * _SECONDS[(match.group(2) or "s").lower()]
    if found < least:
        raise UsageError(f"{what} {text}: at least {least:g} s", hint="write 30s, 5m or 1h")
    if found > _MOST_S:
        shown = text.strip() if len(text.strip()) <= 20 else f"{text.strip()[:20]}…"
        raise UsageError(f"{what} {shown}: at most 366 d", hint="write 30s, 5m or 1h")
    return found
