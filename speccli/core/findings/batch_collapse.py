"""At large batches speculation makes the engine slower than it would be without."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from speccli.core.baseline.model import BatchSpeed
from speccli.core.findings._case import Case, Scope
from speccli.core.findings._text import over
from speccli.core.findings.base import Finding, Hit, Rule, Thresholds
from speccli.core.stats.measures import batch_size

CODE = "BATCH_COLLAPSE"
SLOWER = 0.95
"""Share of the plain arm's speed that is still called even: both are measured with noise."""
_LEAST_S = 5.0


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """Judges each engine whose batch size is known, where the baseline has the plain arm."""
    judgement = case.judgement
    if judgement is None or judgement.baseline is None:
        return
    plain = judgement.baseline.plain
    alike = judgement.forced or not judgement.unlike
    apart = {name for unlike in judgement.unlike for name in unlike.engines}
    for scope in case.engines:
        if plain and (alike or scope.name not in apart):
            yield from _judged(scope, plain, judgement.baseline.name, thresholds)


def _judged(
    scope: Scope, plain: Sequence[BatchSpeed], name: str, thresholds: Thresholds
) -> Iterator[Hit]:
    pool = scope.pool
    size, speed = batch_size(scope.subject).value, pool.rate("generation_tokens")
    if size is None or speed is None or size < thresholds.collapse_batch:
        return
    if pool.since_start or (pool.seconds or 0.0) < _LEAST_S:
        return
    wanted = speed_at(plain, size)
    if wanted is None or speed >= SLOWER * wanted:
        return
    drafts = (pool.sums("drafts") or (0.0,))[0]
    evidence = (
        f"{speed:,.0f} output tokens/s at batch {size:.0f} against {wanted:,.0f} without "
        f"speculation (baseline {name}), {over(pool)}, n={drafts:.0f} drafts"
    )
    finding = Finding(
        CODE,
        "warning",
        scope.name,
        evidence,
        "verifying K + 1 tokens a request costs more than it wins at this batch: no CUDA graph for "
        "batch × (1 + K) (vLLM PR #50488, vllm#54933), or the GPU has no time to spare",
        "batch × (1 + K) must be among the captured sizes (cudagraph_capture_sizes); else lower K, "
        "cap --max-num-seqs and add replicas, or switch speculation off at this load",
    )
    yield Hit(finding, badness=1 - speed / wanted)


def speed_at(rows: Sequence[BatchSpeed], batch: float) -> float | None:
    """Speed at a batch size between two that were measured; None outside of them."""
    known = sorted(rows, key=lambda row: row.batch)
    for a, b in zip(known, known[1:], strict=False):
        if a.batch <= batch <= b.batch and b.batch > a.batch:
            share = math.log(batch / a.batch) / math.log(b.batch / a.batch)
            return a.output_tokens_per_s + share * (b.output_tokens_per_s - a.output_tokens_per_s)
    near = [row for row in known if 0.8 <= batch / row.batch <= 1.25]
    return near[0].output_tokens_per_s if len(near) == 1 else None


RULE = Rule(CODE, check)
