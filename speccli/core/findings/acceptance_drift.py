"""Acceptance has fallen against the baseline: proven, dated, and put down to draft or traffic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from speccli.core.findings._case import Case
from speccli.core.findings._text import duration
from speccli.core.findings.base import FLEET, Finding, Hit, Rule, Severity, Thresholds
from speccli.core.findings.parallel_draft_cliff import cliff
from speccli.core.findings.zero_acceptance import nothing_accepted

if TYPE_CHECKING:
    from speccli.core.alert.judgement import Drift, Judgement

CODE = "ACCEPTANCE_DRIFT"
_HALF = 0.5
"""Share of the baseline's rate under which a fall is critical."""


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """Says what the judge has proven, where no other rule has a better name of the fault."""
    judgement = case.judgement
    if judgement is None or judgement.baseline is None:
        return
    for drift in judgement.drifts:
        if not _better_named(case, drift.subject, thresholds):
            yield Hit(_finding(drift, judgement), badness=drift.was - drift.now)


def _better_named(case: Case, subject: str, thresholds: Thresholds) -> bool:
    """Whether the fall is a cliff or a draft of garbage."""
    scopes = case.engines if subject == FLEET and case.engines else (case.fleet, *case.engines)
    named = [s for s in scopes if subject in {s.name, FLEET}]
    broken = sum(
        cliff(scope, thresholds) is not None or nothing_accepted(scope, thresholds) is not None
        for scope in named
    )
    return bool(named) and 2 * broken >= len(named)


def _finding(drift: Drift, judgement: Judgement) -> Finding:
    base = judgement.baseline
    assert base is not None
    length = f", length {drift.length:.2f} against {base.length:.2f}" if drift.length else ""
    over = f" over {duration(drift.seconds)}" if drift.seconds else ""
    promise = ""
    if drift.looks_between is not None:
        promise = f"; at most 1 false alarm in {drift.looks_between:,.0f} checks"
    evidence = (
        f"acceptance {drift.now:.3f} against {drift.was:.3f} of baseline {base.name}"
        f"{length}{over}, n={drift.drafts:,.0f} drafts{promise}"
    )
    cause, action = _advice(drift, judgement)
    severity = _severity(drift)
    return Finding(CODE, severity, drift.subject, evidence, cause, action, drift.since)


def _severity(drift: Drift) -> Severity:
    if drift.verdict.kind == "traffic":
        return "info"
    return "critical" if drift.now <= _HALF * drift.was else "warning"


def _advice(drift: Drift, judgement: Judgement) -> tuple[str, str]:
    words = drift.verdict.words
    if drift.verdict.kind == "traffic":
        return (
            f"traffic, not the draft: {words}",
            "nothing is broken; if this mix stays, record a baseline of it, or train the draft "
            "on it",
        )
    changed = "; ".join(str(unlike.difference) for unlike in judgement.unlike)
    known = f"; changed since the baseline: {changed}" if changed else ""
    if drift.verdict.kind == "unclear":
        return (
            f"draft or traffic, which cannot be told: {words}{known}",
            "send the same prompts to a freshly started engine, and to this one at temperature 0: "
            "as before on both, it is the traffic",
        )
    return (
        f"the draft, as far as counters tell: {words}{known}",
        "send the same prompts to a freshly started engine: better there, restart this one "
        "(vllm#41838); the same there, compare revisions of draft and target with the baseline's "
        "(another topic or language at the same lengths looks like this too)",
    )


RULE = Rule(CODE, check)
