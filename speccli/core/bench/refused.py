"""Arms of whose drafts next to nothing is accepted: no head that fits its target is so bad.

Speed and cost of such an arm say nothing of the draft, so a bench says what it saw.
"""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.bench.results import Arm, Result

_NEXT_TO_NOTHING = 0.05
"""Accepted / drafted tokens; a draft of short training that fits has several times as much."""
_LEAST_DRAFTED = 300
"""Tokens: with fewer, chance may do it."""
_LOOKUPS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""They have no weights that could belong to another target."""


def refused(result: Result) -> Iterator[str]:
    """A line for each such arm."""
    for arm in result.arms:
        told = [row.acceptance for row in result.rows_of(arm.name)]
        drafted = sum(each.draft_tokens or 0 for each in told)
        accepted = sum(each.accepted_tokens or 0 for each in told)
        if drafted < _LEAST_DRAFTED or accepted >= _NEXT_TO_NOTHING * drafted:
            continue
        share = f"{arm.name}: {100 * accepted / drafted:.1f} % of {drafted:,} draft tokens accepted"
        yield f"{share}, next to none{_why(arm, result.provenance.temperature)}"


def _why(arm: Arm, temperature: float | None) -> str:
    if not temperature:
        if arm.method in _LOOKUPS:
            return ": it drafts what was written before, which seldom came again in these answers"
        return ": the draft belongs to another target, or is not loaded as it was trained"
    return (
        f", at temperature {temperature:g}: measure it with --temperature 0 too; if much is "
        "accepted there, the server is at fault, not the draft, and what it samples is wrong too "
        "(vLLM 0.32 on a CPU is: docs/bench.md)"
    )
