"""Findings: what a snapshot says of a fleet, worst first, each fact once.

One rule a file; `RULES` below is the register. A rule that breaks is a bug, so it raises.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from speccli.core.findings import (
    acceptance_drift,
    acceptance_slope,
    baseline_key_mismatch,
    batch_collapse,
    cost_over,
    draft_behind_target,
    engine_down,
    low_acceptance,
    metrics_inconsistent,
    metrics_missing,
    no_traffic,
    p99_regression,
    parallel_draft_cliff,
    partial_data,
    queue_wait,
    spec_not_active,
    stalled,
    version_skew,
    zero_acceptance,
)
from speccli.core.findings._case import Case
from speccli.core.findings.base import (
    CODES,
    FLEET,
    WORST_FIRST,
    Finding,
    Hit,
    Rule,
    Severity,
    Thresholds,
)
from speccli.core.stats.snapshot import Snapshot

if TYPE_CHECKING:
    from speccli.core.alert.judgement import Judgement

__all__ = ["CODES", "RULES", "Finding", "Severity", "Thresholds", "evaluate", "so_far", "waiting"]

RULES: tuple[Rule, ...] = (
    engine_down.RULE,
    stalled.RULE,
    spec_not_active.RULE,
    zero_acceptance.RULE,
    parallel_draft_cliff.RULE,
    draft_behind_target.RULE,
    acceptance_drift.RULE,
    acceptance_slope.RULE,
    low_acceptance.RULE,
    metrics_missing.RULE,
    metrics_inconsistent.RULE,
    queue_wait.RULE,
    p99_regression.RULE,
    batch_collapse.RULE,
    cost_over.RULE,
    version_skew.RULE,
    baseline_key_mismatch.RULE,
    partial_data.RULE,
    no_traffic.RULE,
)
"""Every rule; among findings of one severity, those of an earlier rule come first."""

_FEW = 3
"""Up to so many engines, each is named."""


def evaluate(
    snapshot: Snapshot, thresholds: Thresholds, judgement: Judgement | None = None
) -> tuple[Finding, ...]:
    """Everything there is to say of the fleet: worst first, and what most engines share, once.

    `judgement`: what a judge knows beside the snapshot (`speccli.core.alert`); without it the
    rules that need a baseline or a memory say nothing.
    """
    case = Case(snapshot, judgement)
    found = (hit for rule in RULES for hit in _once(rule.check(case, thresholds), case.total))
    ordered = sorted(found, key=lambda hit: WORST_FIRST.index(hit.finding.severity))
    return tuple(hit.finding for hit in ordered)


def waiting(
    snapshot: Snapshot, thresholds: Thresholds, judgement: Judgement | None = None
) -> tuple[Finding, ...]:
    """What is wrong and no finding yet, because it has not lasted for the hold time."""
    case = Case(snapshot, judgement)
    return tuple(hit.finding for hit in _once(low_acceptance.waiting(case, thresholds), case.total))


def so_far(snapshot: Snapshot, thresholds: Thresholds) -> tuple[Finding, ...]:
    """What is found, then what waits to be, as notes: for a screen that warns of both."""
    notes = (
        replace(each, severity="info", evidence=f"pending: {each.evidence}")
        for each in waiting(snapshot, thresholds)
    )
    return (*evaluate(snapshot, thresholds), *notes)


def _once(hits: Iterable[Hit], total: int) -> list[Hit]:
    """One rule's findings, the worst first; one for the fleet where most of it has the same."""
    groups: dict[Severity, list[Hit]] = {}
    for hit in sorted(hits, key=lambda hit: (-hit.badness, hit.finding.subject)):
        groups.setdefault(hit.finding.severity, []).append(hit)
    return [hit for group in groups.values() for hit in _merged(group, total)]


def _merged(group: list[Hit], total: int) -> list[Hit]:
    engines = [hit for hit in group if hit.finding.subject != FLEET]
    count = sum({hit.finding.subject: hit.engines for hit in engines}.values())
    if total <= _FEW or 2 * count <= total or len(engines) < 2:
        return group
    worst, rest = engines[0], [hit for hit in group if hit.finding.subject == FLEET]
    since = [hit.finding.since for hit in engines if hit.finding.since is not None]
    finding = replace(
        worst.finding,
        subject=FLEET,
        evidence=f"{count} of {total} engines, worst {worst.finding.subject}: "
        f"{worst.finding.evidence}",
        since=min(since, default=None),
    )
    return [Hit(finding, worst.badness, count), *rest]
