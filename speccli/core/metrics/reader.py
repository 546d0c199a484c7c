"""Bodies in, frozen counters out: the exact path once, then the same page at table-lookup speed.

An engine writes the same series in the same order at every scrape, so the text before the value is
looked up whole. A page that differs in any way from the last one takes the exact path again.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from speccli.core.metrics.counters import Counters
from speccli.core.metrics.page import LARGEST, scan
from speccli.core.metrics.parse import LineError, parse_value
from speccli.core.metrics.plan import Plan, plan_of

_BOM = b"\xef\xbb\xbf"
_PLAIN = b"0123456789+-.eE"
"""What the values of an ordinary page are written with."""
_MAX_PLAN = 20_000
"""Lines remembered per page; a page larger than this is read exactly every time."""
_MAX_SHARED = 8
"""Kinds of page a fleet may have (versions, K, models) before old ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one body gave."""

    engines: tuple[Counters, ...]
    word: str | None = None
    """MISSING, AUTH, TRUNCATED, NAN, CONFLICT, GARBLED or None when the body was clean."""
    reason: str | None = None


class Reader:
    """Reads pages of a fleet, whose engines mostly write the same page with other numbers."""

    def __init__(self) -> None:
        """Nothing is known of any page yet."""
        self._plans: list[Plan] = []
        self._last: dict[str, Plan] = {}

    def read(self, target: str, body: bytes, at: float, *, truncated: bool = False) -> Reading:
        """The engines in `target`'s body; `truncated`: the transport lost its end. Never raises."""
        if body.startswith(_BOM):
            body = body[len(_BOM) :]
        if not truncated:
            last = self._last.get(target)
            for plan in (last, *self._plans) if last else self._plans:
                flat = _fill(plan, body)
                if flat is not None:
                    self._last[target] = plan
                    return Reading(tuple(_engines(plan, flat, target, at, None)))
        return self._read_exactly(target, body, at, truncated=truncated)

    def forget(self, target: str) -> None:
        """The target is gone."""
        self._last.pop(target, None)

    def _read_exactly(self, target: str, body: bytes, at: float, *, truncated: bool) -> Reading:
        text = body.lstrip()
        if not text:
            return Reading((), "MISSING", "the body is empty")
        if text[:1] == b"<":
            return Reading((), "AUTH", "an HTML page instead of metrics (a login page, a proxy?)")
        page = scan(body, truncated=truncated)
        if not any(raw.role for raw in page.raws):
            return Reading((), *page.emptiness(text))
        plan = plan_of(page.raws)
        flat = [raw.value for raw in page.raws]
        word, reason = page.problem()
        engines = tuple(_engines(plan, flat, target, at, reason))
        repeats = word is None and not page.timestamps
        if repeats and len(plan.lookup) + len(page.ignored) <= _MAX_PLAN:
            plan.lookup = dict.fromkeys(page.ignored, -1) | plan.lookup
            plan.lookup.pop(b"", None)
            self._plans = [plan, *self._plans][:_MAX_SHARED]
            self._last[target] = plan
        return Reading(engines, word, reason)


def _fill(plan: Plan, body: bytes) -> list[float] | None:
    """The flat list of values if the page has exactly the known series, once each, else None."""
    flat: list[float] = [math.nan] * plan.width
    lookup = plan.lookup
    texts: list[bytes] = []
    keep = texts.append
    try:
        for line in body.split(b"\n"):
            key, _, value = line.rpartition(b" ")
            try:
                place = lookup[key]
            except KeyError:
                if key or value.rstrip(b"\r"):
                    return None
                continue
            if place >= 0:
                flat[place] = float(value)
                keep(value)
    except ValueError:
        return None
    total = sum(flat)  # NaN while a place is empty
    if len(texts) != plan.width or total - total != 0 or not _ordinary(flat, texts):
        return None
    return flat


def _ordinary(flat: list[float], texts: list[bytes]) -> bool:
    """Whether the exact path would read the same: it refuses what Python alone calls a number."""
    if min(flat) < 0 or max(flat) > LARGEST:
        return False
    if not b"".join(texts).translate(None, _PLAIN):
        return True
    try:
        for text in texts:
            parse_value(text.rstrip(b"\r"))
    except LineError:
        return False
    return True


def _engines(
    plan: Plan, flat: list[float], target: str, at: float, partial: str | None
) -> Iterable[Counters]:
    started = flat[plan.started] if plan.started >= 0 else None
    for engine in plan.engines:
        values: array[float] = array("d", engine.pick(flat))
        for slot, members in engine.sums:
            values[slot] = sum(flat[i] for i in members)
        gauges: dict[str, Any] = {
            name: flat[members[0]] if len(members) == 1 else max(flat[i] for i in members)
            for name, members in engine.gauges.items()
        }
        yield Counters(
            target=target,
            engine=engine.engine,
            kind=engine.kind,
            at=at,
            layout=engine.layout,
            values=values,
            gauges=gauges,
            model=engine.model,
            started=started,
            partial=partial,
            several_api_servers=engine.several_api_servers,
            simulated=plan.simulated,
            version=engine.version,
            sources=engine.sources,
        )
