"""What the fleet is, as a Prometheus knows it: engines, jobs, recording rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from speccli.core.sources import promql
from speccli.core.sources.promapi import PrometheusApi, Series
from speccli.core.sources.recorded import loaded

INTERVAL_S = 15.0
"""Scrape interval believed until two samples have shown it."""


@dataclass(frozen=True, slots=True)
class Census:
    """What the fleet is, as Prometheus knows it."""

    engines: Mapping[str, int]
    """Living engines by kind."""
    jobs: tuple[str, ...]
    """Scrape jobs that had engines in the last 15 minutes."""
    interval_s: float
    """Seconds between two scrapes of a target."""
    rules: bool
    """Whether specctl's recording rules of this version run there, and none of another."""
    simulated: bool
    note: str | None = None
    rules_note: str | None = None
    """What is to be said of recording rules of another version, where they would be read."""

    @property
    def total(self) -> int:
        """Living engines."""
        return sum(self.engines.values())


async def take_census(api: PrometheusApi, selector: promql.Selector) -> Census:
    """Count the fleet: two small queries.

    Raises:
        SourceError: Prometheus gives no usable answer.
    """
    answer = await api.query(promql.census(selector))
    engines: dict[str, int] = {}
    jobs: dict[str, None] = {}
    example: Mapping[str, str] = {}
    simulated = False
    rules: list[Series] = []
    for series in answer.series:
        slot, _, kind = series.labels.get("slot", "").partition(".")
        if slot == "engines" and series.value:
            engines[kind] = round(series.value)
        elif slot == "job":
            jobs[series.labels.get("job", "")] = None
        elif slot == "example":
            example = series.labels
        elif slot == "simulated":
            simulated = True
        elif slot == "rules":
            rules.append(series)
    interval = INTERVAL_S
    if example:
        job, instance = example.get("job", ""), example.get("instance", "")
        seen = await api.query(promql.example(engines, selector, job, instance), at=api.now())
        interval = interval_of(seen.series) or interval
    there, fits = loaded(rules), selector.fits_rules
    return Census(
        engines,
        tuple(jobs),
        interval,
        rules=fits and there.serve(engines),
        simulated=simulated,
        note=answer.note,
        rules_note=there.note if fits else None,
    )


def interval_of(series: Iterable[Series]) -> float | None:
    """The usual time between two samples, seconds; None where no series has two."""
    gaps = sorted(
        later[0] - earlier[0]
        for each in series
        for earlier, later in zip(each.samples, each.samples[1:], strict=False)
    )
    return max(0.1, round(gaps[len(gaps) // 2], 1)) if gaps else None
