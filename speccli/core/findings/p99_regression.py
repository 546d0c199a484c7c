"""The 99th percentile is over its target: all of its bucket is, or nothing is said."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case, Scope
from speccli.core.findings._text import over
from speccli.core.findings.base import Finding, Hit, Rule, Thresholds
from speccli.core.stats.histogram import quantile
from speccli.core.values import Quantile

CODE = "P99_REGRESSION"


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """For each target: the fleet where it is over as a whole, else the engines that are."""
    for field, name, target in (
        ("ttft", "time to first token", thresholds.ttft_p99_ms),
        ("tpot", "time per output token", thresholds.tpot_p99_ms),
    ):
        if target is not None:
            whole = list(_over([case.fleet], field, name, target))
            yield from whole or _over(case.engines, field, name, target)


def _over(
    scopes: list[Scope] | tuple[Scope, ...], field: str, name: str, target: float
) -> Iterator[Hit]:
    for scope in scopes:
        buckets = scope.pool.histogram(field)
        if buckets is None:
            continue
        p99 = quantile(buckets, 0.99)
        if p99.state != "unknown" and p99.low > 0 and 1000 * p99.low >= target:
            yield Hit(_finding(scope, name, target, p99), badness=1000 * p99.low / max(target, 1.0))


def _finding(scope: Scope, name: str, target: float, p99: Quantile) -> Finding:
    low = 1000 * p99.low
    where = f"over {low:,.0f} ms" if p99.high is None else f"{low:,.0f}–{1000 * p99.high:,.0f} ms"
    return Finding(
        CODE,
        "warning",
        scope.name,
        f"{name} p99 {where} (target {target:,.0f} ms), {over(scope.pool)}, n={p99.n}",
        "a full batch, long prefills beside decodes, or speculation that costs more than it earns "
        "at this batch size (vllm#39790)",
        "look at p99 by batch size (specctl top): high only at large batches, cap them "
        "(--max-num-seqs) or lower K there; high at all sizes, compare with speculation off",
    )


RULE = Rule(CODE, check)
