"""Quiet hours: times of day, in a time zone, in which nothing moves by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from speccli.core.errors import UsageError

_SPAN = re.compile(r"\s*(\d{2}):(\d{2})\s*-\s*(\d{2}):(\d{2})\s*")
_DAYS = 2
"""How far ahead the end of quiet hours is looked for."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Spans of local time; a span may go over midnight."""

    spans: tuple[tuple[time, time], ...] = ()
    zone: tzinfo = UTC

    @classmethod
    def of(cls, spans: Sequence[str], zone: str) -> Quiet:
        """From `22:00-06:00` and a name of the IANA database.

        Raises:
            UsageError: neither.
        """
        return cls(tuple(map(_span, spans)), zone_of(zone))

    def holds(self, at: float) -> bool:
        """Whether it is quiet at that time, Unix seconds."""
        here = datetime.fromtimestamp(at, self.zone).time()
        return any(_within(here, begins, ends) for begins, ends in self.spans)

    def ends(self, at: float) -> float:
        """When the quiet that holds at that time is over, Unix seconds.

        Spans that follow one another are one; where it is always quiet, two days on.
        """
        today = datetime.fromtimestamp(at, self.zone).date()
        days = [today + timedelta(days=n) for n in range(_DAYS + 1)]
        ends = (datetime.combine(day, end, self.zone) for day in days for _, end in self.spans)
        later = sorted(each.timestamp() for each in ends)
        loud = (each for each in later if each > at and not self.holds(each))
        return next(loud, at + timedelta(days=_DAYS).total_seconds())

    def clock(self, at: float) -> str:
        """That time of day, as its people read it."""
        return datetime.fromtimestamp(at, self.zone).strftime("%H:%M %Z")


def _within(here: time, begins: time, ends: time) -> bool:
    if begins == ends:
        return True  # the whole day
    return begins <= here < ends if begins < ends else here >= begins or here < ends


def _span(text: str) -> tuple[time, time]:
    found = _SPAN.fullmatch(text)
    hint = "write 22:00-06:00"
    if found is None:
        raise UsageError(f"fallback.quiet {text!r} is no span of a day", hint=hint)
    h1, m1, h2, m2 = map(int, found.groups())
    if (h2, m2) == (24, 0):
        h2 = 0
    try:
        return time(h1, m1), time(h2, m2)
    except ValueError:
        raise UsageError(f"fallback.quiet {text!r} has no such time of day", hint=hint) from None


def zone_of(name: str) -> tzinfo:
    """A time zone by its name.

    Raises:
        UsageError: the database of this machine has none of that name.
    """
    if name.upper() in {"UTC", "GMT", "Z"}:
        return UTC  # needs no database, which slim images have not
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"fallback.time_zone {name!r} is not known here",
            hint="a name as Europe/Berlin; an image without a time zone database needs tzdata",
        ) from None
