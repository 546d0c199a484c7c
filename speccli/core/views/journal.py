"""What happened, newest first: the window's events, and findings as they come and go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import tzinfo

from speccli.core.stats.snapshot import Event
from speccli.core.views.format import clock_time, date_time
from speccli.core.views.state import Finding, without_scheme
from speccli.core.views.text import Line, Span, glyph, line, middle

_KEPT = 200
_CLEAR_AFTER = 3
"""Rounds a finding must be absent before it is said to be over: it may sit on its threshold."""


class Journal:
    """Turns findings, which are states, into events, which happen once."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._events: deque[Event] = deque(maxlen=_KEPT)
        self._open: dict[tuple[str, str], int] = {}

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything kept, oldest first."""
        return tuple(self._events)

    def tell(self, event: Event) -> None:
        """Note something that no data shows."""
        self._events.append(event)

    def update(self, findings: Iterable[Finding], at: float) -> None:
        """Note what began and what is over as of `at`."""
        present = {(f.code, f.subject): f for f in findings if f.severity != "info"}
        for key, finding in present.items():
            if key not in self._open:
                text = f"{finding.code}: {finding.evidence}"
                who = without_scheme(finding.subject)
                grave = finding.severity == "critical"
                self._events.append(Event(at, who, text, "critical" if grave else "warning"))
            self._open[key] = 0
        for key in [k for k in self._open if k not in present]:
            self._open[key] += 1
            if self._open[key] >= _CLEAR_AFTER:
                del self._open[key]
                self._events.append(Event(at, without_scheme(key[1]), f"{key[0]} is over"))


def merged(events: Iterable[Event], others: Iterable[Event]) -> list[tuple[Event, int]]:
    """All events, newest first; one told again and again is one line with a count."""
    every = sorted([*events, *others], key=lambda e: e.at, reverse=True)
    lines: list[tuple[Event, int]] = []
    places: dict[tuple[str, str], int] = {}
    for event in every:
        key = (event.subject, event.text)
        place = places.get(key)
        if place is not None and lines[place][0].at - event.at < 600:
            lines[place] = (lines[place][0], lines[place][1] + 1)
            continue
        places[key] = len(lines)
        lines.append((event, 1))
    return lines


def event_lines(
    events: Sequence[tuple[Event, int]], width: int, tz: tzinfo | None, *, dates: bool = False
) -> list[Line]:
    """One row an event: when, how grave, who, what."""
    name_width = min(max((len(e.subject) for e, _ in events), default=8), max(12, width // 4))
    rows: list[Line] = []
    for event, times in events:
        when = date_time(event.at, tz) if dates else clock_time(event.at, tz)
        mark = Span("·", "dim") if event.severity == "info" else glyph(event.severity)
        again = f"  ×{times}" if times > 1 else ""
        who = middle(event.subject, name_width).ljust(name_width)
        what = event.text
        rows.append(line(Span(when, "dim"), " ", mark, f" {who}  {what}", Span(again, "dim")))
    return rows
