"""What a pooled fleet did before anybody watched: the first stretch of its charts, in one query.

Recording rules keep it summed. Without them a Prometheus has to sum every engine's counters anew
for each point, so a larger fleet's charts begin empty there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from speccli.core.engines.base import Adapter
from speccli.core.sources import promql
from speccli.core.sources.promapi import PrometheusApi, Series
from speccli.core.sources.recorded import of_our_version
from speccli.core.stats.snapshot import TrailPoint

MOST_ENGINES = 512
"""Engines up to which their counters are summed anew."""
_SUMMED = (900.0, 30.0)
_ANEW = (600.0, 60.0)
"""How far back, and how far apart, seconds: where rules keep the sums, and where they do not."""
_STILL = ("running", "waiting")
_SLOTS: tuple[str, ...] = (
    *("draft_tokens", "accepted_tokens", "drafts", "generation_tokens"),
    *("ttft.count", "itl.count", *_STILL),
)


async def past(
    api: PrometheusApi,
    selector: promql.Selector,
    adapters: Iterable[Adapter],
    *,
    end: float,
    rules: bool,
) -> list[TrailPoint]:
    """Points that end by `end` (Unix seconds), oldest first.

    Raises:
        SourceError: Prometheus gives no usable answer.
    """
    span, step = _SUMMED if rules else _ANEW
    grown: dict[float, dict[str, float]] = {}
    for expression in _expressions(selector, adapters, step, rules=rules):
        answer = await api.query_range(expression, end=end, span_s=span, step_s=step)
        _add(grown, answer.series, step if rules else 1.0)
    return [_point(at, step, of) for at, of in sorted(grown.items())]


def _expressions(
    selector: promql.Selector, adapters: Iterable[Adapter], step: float, *, rules: bool
) -> Iterable[str]:
    if rules:
        names = promql.Matcher("__name__", "=~", "specctl:.+:(rate2m|sum)")
        slots = promql.one_of("slot", _SLOTS)
        yield of_our_version(f"sum by (slot) ({selector.braces(names, slots)})")
        return
    for adapter in adapters:
        fleet = promql.Fleet(adapter, selector, step)
        parts = {slot: each for slot, each in (*fleet.speculation(), *fleet.work())}
        yield promql.joined((slot, parts[slot]) for slot in _SLOTS if slot in parts)


def _add(grown: dict[float, dict[str, float]], found: Iterable[Series], factor: float) -> None:
    for series in found:
        slot = series.labels.get("slot", "")
        for at, text in series.samples:
            value = float(text)
            if math.isfinite(value):
                of = grown.setdefault(at, {})
                of[slot] = of.get(slot, 0.0) + value * (1.0 if slot in _STILL else factor)


def _point(at: float, seconds: float, of: dict[str, float]) -> TrailPoint:
    def grew(*slots: str) -> tuple[float, ...]:
        """Terms that a chart relates: all of them or none."""
        known = all(slot in of for slot in slots)
        return tuple(of[slot] if known else math.nan for slot in slots)

    drafted, accepted, drafts = grew("draft_tokens", "accepted_tokens", "drafts")
    generated, first, steps = grew("generation_tokens", "ttft.count", "itl.count")
    return TrailPoint(
        at=at,
        seconds=seconds,
        draft_tokens=drafted,
        accepted_tokens=accepted,
        drafts=drafts,
        generation_tokens=of.get("generation_tokens", math.nan)
        if math.isnan(generated)
        else generated,
        first_tokens=first,
        decode_steps=steps,
        waiting=of.get("waiting", math.nan),
        running=of.get("running", math.nan),
    )
