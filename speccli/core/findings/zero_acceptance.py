"""Much is drafted, and nothing is accepted: critical at once, a broken draft does not heal."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case, Scope, flat_since
from speccli.core.findings._text import accepted_of
from speccli.core.findings.base import Finding, Hit, Rule, Thresholds
from speccli.core.stats.increase import Pool

CODE = "ZERO_ACCEPTANCE"


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """Judges every engine with enough drafts."""
    for scope in case.scopes:
        pool = nothing_accepted(scope, thresholds)
        if pool is not None:
            yield Hit(_finding(scope, pool), badness=(pool.sums("draft_tokens") or (0.0,))[0])


def nothing_accepted(scope: Scope, thresholds: Thresholds) -> Pool | None:
    """The growth in which nothing was accepted; None where something was, or little drafted."""
    for pool in scope.pools:
        sums = pool.sums("accepted_tokens", "draft_tokens")
        if sums is not None and sums[1] >= max(1.0, thresholds.min_draft_tokens):
            return pool if sums[0] <= thresholds.zero_rate * sums[1] else None
    return None


def _finding(scope: Scope, pool: Pool) -> Finding:
    if scope.method in {"ngram", "ngram_gpu", "suffix"}:
        cause = "what follows a repeated phrase is never what followed it before in this traffic"
        action = "compare tokens/s with speculation off, or serve a trained draft"
    else:
        cause = (
            "the draft proposes garbage: trained for another target or revision, or its KV-cache "
            "type differs from the target's (FP8 target: vllm#9534, PR #24505)"
        )
        action = (
            "send one prompt and read the answer: repeated '!' means the target is broken too; "
            "compare the draft's config.json with the target (hidden_size, vocab_size, verifier); "
            "restart without --speculative-config until they fit"
        )
    since = flat_since(scope.engine, "accepted_tokens")
    return Finding(CODE, "critical", scope.name, accepted_of(pool), cause, action, since)


RULE = Rule(CODE, check)
