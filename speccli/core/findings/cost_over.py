"""A million output tokens cost more than the target allows."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case
from speccli.core.findings._text import over, plural
from speccli.core.findings.base import Finding, Hit, Rule, Thresholds

CODE = "COST_OVER"


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """The fleet as a whole: idle engines are paid for too."""
    target = thresholds.cost_per_1m_usd
    if target is None:
        return
    cost = case.snapshot.fleet.cost_per_1m_output_usd.value
    if cost is None or cost <= target:
        return
    rate = case.snapshot.fleet.output_tokens_per_s.value or 0.0
    finding = Finding(
        CODE,
        "warning",
        case.fleet.name,
        f"${cost:,.2f} per 1M output tokens (target ${target:,.2f}) at {rate:,.0f} tokens/s on "
        f"{plural(case.total, 'engine')}, {over(case.fleet.pool)}",
        "too few tokens for the GPUs that are paid: little traffic, or speculation that costs more "
        "than it earns at this batch size",
        "scale in where batch size is small; compare tokens/s with speculation off",
    )
    yield Hit(finding, badness=cost / max(target, 1e-9))


RULE = Rule(CODE, check)
