"""What is known to go wrong with a rung, whatever it would earn.

A retreat is not held against what is wrong with the target, which serves already: only what the
rung itself brings counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.plan import Plan

_HEADS = frozenset({"eagle", "eagle3", "p-eagle", "dflash", "dspark", "mtp", "medusa"})


def refusals(rung: Plan, here: Plan) -> Iterator[str]:
    """Why a rung is none, a reason each.

    Args:
        rung: Its plan.
        here: The plan of the recipe that it is a rung of.
    """
    told = {refusal.evidence for refusal in here.line.refusals}
    for refusal in rung.line.refusals:
        if refusal.evidence not in told:
            told.add(refusal.evidence)
            yield refusal.evidence
    before = {verdict.rule for verdict in here.verdicts if verdict.severity == "critical"}
    for verdict in rung.verdicts:
        new = verdict.severity == "critical" and verdict.rule not in before
        if new and verdict.evidence not in told:
            thread = f" ({verdict.thread})" if verdict.thread else ""
            yield f"{verdict.evidence}: {verdict.cause}{thread}"
    yield from _structured(rung)


def _structured(rung: Plan) -> Iterator[str]:
    """A grammar cuts drafts, and engines have died of it with heads."""
    recipe = rung.facts.recipe
    if recipe.serving.structured_output and recipe.draft.method in _HEADS:
        yield (
            f"serving.structured_output with {recipe.draft.method}: drafts that break the grammar "
            "are cut, and engines have died of them (vllm#27969, #42004)"
        )
