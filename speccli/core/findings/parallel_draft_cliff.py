"""The first drafted token is good and the ones drafted beside it are not (vllm#42004)."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case, Scope
from speccli.core.findings._text import over
from speccli.core.findings.base import Finding, Hit, Rule, Thresholds
from speccli.core.stats.measures import acceptance_by_position

CODE = "PARALLEL_DRAFT_CLIFF"
_ONE_BY_ONE = frozenset(
    {"none", "ngram", "ngram_gpu", "suffix", "draft_model", "medusa", "mlp_speculator", "mtp"}
)
"""Methods that a parallel-drafting mask has no part in."""


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """Judges every engine whose acceptance by position is known."""
    for scope in case.scopes:
        ratio = cliff(scope, thresholds)
        if ratio is not None:
            yield Hit(_finding(scope, ratio, thresholds), badness=-ratio)


def cliff(scope: Scope, thresholds: Thresholds) -> float | None:
    """p1 / p0 where it is a cliff, else None; drafts of varying length have no p1 to judge."""
    drafted = scope.pool.sums("draft_tokens")
    if scope.method in _ONE_BY_ONE or drafted is None:
        return None
    if drafted[0] < max(1.0, thresholds.min_draft_tokens):
        return None
    rates = [number.value for number in acceptance_by_position(scope.subject)[:2]]
    if len(rates) < 2 or rates[0] is None or rates[1] is None:
        return None
    if rates[0] <= 0 or rates[0] < thresholds.cliff_first:
        return None
    ratio = rates[1] / rates[0]
    return ratio if ratio < thresholds.cliff_ratio else None


def _finding(scope: Scope, ratio: float, thresholds: Thresholds) -> Finding:
    rates = [number.value or 0.0 for number in acceptance_by_position(scope.subject)]
    drafts = (scope.pool.sums("drafts") or (0.0,))[0]
    evidence = (
        f"by position {', '.join(f'{rate:.3f}' for rate in rates[:5])}: p1/p0 {ratio:.3f} "
        f"(limit {thresholds.cliff_ratio:g}), {over(scope.pool)}, n={drafts:.0f} drafts"
    )
    if scope.method in {"eagle", "eagle3"}:
        cause = (
            "a P-EAGLE checkpoint (it carries mask_hidden) served without parallel_drafting, or "
            "parallel drafting with structured output (vllm#42004)"
        )
    else:
        cause = (
            "parallel drafting: structured output (JSON schema, xgrammar: vllm#42004), or "
            "mask_hidden and the mask token are not the checkpoint's own"
        )
    action = (
        "take response_format out of one request and compare; make parallel_drafting agree with "
        "the checkpoint (mask_hidden in its weights: true, else false); until then K = 1"
    )
    return Finding(CODE, "warning", scope.name, evidence, cause, action)


RULE = Rule(CODE, check)
