"""Counters that contradict each other: the numbers made of them are not to be believed."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case, Scope
from speccli.core.findings._text import over, plural
from speccli.core.findings.base import Finding, Hit, Rule, Severity, Thresholds
from speccli.core.stats.increase import Pool
from speccli.core.stats.snapshot import EngineSnapshot

CODE = "METRICS_INCONSISTENT"
_MANY_DISCARDED = 3


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """One finding an engine, with everything that contradicts."""
    for engine in case.snapshot.engines:
        if several_processes(engine):
            yield Hit(_several(engine), badness=1e9)
    for scope in case.engines:
        if scope.engine is not None and not several_processes(scope.engine):
            finding = _judge(scope, scope.engine, thresholds)
            if finding is not None:
                yield Hit(finding, badness=scope.engine.discarded)


def several_processes(engine: EngineSnapshot) -> bool:
    """Whether its URL answers for more than one process."""
    return engine.state == "partial" and engine.processes == "several"


def _several(engine: EngineSnapshot) -> Finding:
    return Finding(
        CODE,
        "warning",
        engine.name,
        "its start time goes back and forth between scrapes",
        "one URL answers for several processes: a load balancer, or several API servers",
        "point --endpoint at each engine's own address; in Kubernetes at pods, not the service",
    )


def _judge(scope: Scope, engine: EngineSnapshot, thresholds: Thresholds) -> Finding | None:
    # What a scrape between two updates of one step may tear apart, at either end of the window.
    slack = 2.0 * max(1, scope.pool.positions) * max(1.0, engine.gauges.get("running", 1.0))
    said = [*_impossible(scope.pool, slack), *_lengths(scope.pool, slack, thresholds)]
    severity: Severity = "warning"
    if not said and engine.discarded:
        severity = "warning" if engine.discarded >= _MANY_DISCARDED else "info"
    if engine.discarded:
        said.append(f"{plural(engine.discarded, 'interval')} left out since watching began")
    if not said:
        return None
    return Finding(
        CODE,
        severity,
        engine.name,
        f"{'; '.join(said)}, {over(scope.pool)}",
        "speculation counters that are updated together disagree: an undetected restart, series of "
        "several processes under one label, or a page rewritten on its way",
        "compare two scrapes made by hand (specctl record FILE keeps them); scrape the engine "
        "itself, not a proxy or a federated Prometheus",
    )


def _impossible(pool: Pool, slack: float) -> Iterator[str]:
    """Parts that are larger than their whole."""
    accepted = pool.sums("accepted_tokens", "draft_tokens")
    if accepted is not None and accepted[0] > accepted[1]:
        yield f"accepted {accepted[0]:,.0f} of {accepted[1]:,.0f} draft tokens"
    drafted = pool.sums("draft_tokens", "drafts")
    k = pool.positions
    if drafted is not None and k and drafted[0] > k * drafted[1] + slack:
        yield f"{drafted[0]:,.0f} draft tokens in {drafted[1]:,.0f} drafts of {k}"
    before, what = pool.sums("drafts"), "drafts"
    for i in range(k):
        here = pool.sums(f"accepted_at:{i}")
        if here is not None and before is not None and here[0] > before[0] + slack:
            yield f"position {i} accepted {here[0]:,.0f} of {before[0]:,.0f} {what}"
            return
        before, what = here, f"accepted at position {i}"


def _lengths(pool: Pool, slack: float, thresholds: Thresholds) -> Iterator[str]:
    """Acceptance length against 1 + Σ positions, where all positions are exported."""
    at = pool.sums(*(f"accepted_at:{i}" for i in range(pool.positions)))
    sums = pool.sums("accepted_tokens", "drafts")
    if not at or sums is None or sums[1] <= 0:
        return
    apart = abs(sums[0] - sum(at))
    if apart > slack and apart > thresholds.length_tolerance * (sums[0] + sums[1]):
        length, summed = 1 + sums[0] / sums[1], 1 + sum(at) / sums[1]
        n = f"n={sums[1]:.0f} drafts"
        yield f"acceptance length {length:.2f} and 1 + Σ positions {summed:.2f}, {n}"


RULE = Rule(CODE, check)
