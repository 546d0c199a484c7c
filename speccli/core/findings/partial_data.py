"""Something is there and something lacks: what is shown stands for less than it seems to."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case
from speccli.core.findings.base import FLEET, Finding, Hit, Rule, Severity, Thresholds
from speccli.core.findings.metrics_inconsistent import several_processes
from speccli.core.stats.snapshot import EngineSnapshot

CODE = "PARTIAL_DATA"
_HARMLESS = ("NAN:", "TOO_LARGE: a page")
"""Little lacks, and what lacks is shown as unknown."""


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """What the source lacks, then each engine that is partly read, or not lately."""
    if case.snapshot.note:
        yield Hit(_noted(case.snapshot.note))
    for engine in case.snapshot.engines:
        if engine.state == "partial" and not several_processes(engine):
            yield Hit(_partial(engine))
        elif engine.state == "stale":
            yield Hit(_stale(engine, "info" if case.engines else "unknown"))


def _noted(note: str) -> Finding:
    return Finding(
        CODE,
        "info",
        FLEET,
        note,
        "the source gave less than all",
        "read the numbers as those of what was there",
    )


def _partial(engine: EngineSnapshot) -> Finding:
    reason = engine.reason or "incomplete"
    if engine.processes == "unsure":
        return Finding(
            CODE,
            "info",
            engine.name,
            reason,
            "its process is not the one that answered before",
            "none if it passes; if it comes back, point --endpoint at each engine's own address",
        )
    harmless = reason.startswith(_HARMLESS)
    return Finding(
        CODE,
        "info" if harmless else "warning",
        engine.name,
        reason,
        "part of its page could not be used; what it would have told is shown as unknown",
        "curl its /metrics and look at the line named; a proxy's limit may cut the page",
    )


def _stale(engine: EngineSnapshot, severity: Severity) -> Finding:
    return Finding(
        CODE,
        severity,
        engine.name,
        engine.reason or "stale",
        "its last numbers are old, and are left out of the fleet's",
        "none if it passes; else raise --interval, or look at what slows its /metrics",
        engine.at,
    )


RULE = Rule(CODE, check)
