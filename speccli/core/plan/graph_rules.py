"""What CUDA graphs and K by batch size make of a recipe: versions differ, and some do not start."""

from __future__ import annotations

import re
from collections.abc import Iterator

from speccli.core.engines.vllm_graphs import (
    CAPTURE_ENDS,
    CAPTURE_STARTED_SEQS,
    CAPTURE_STARTS_WITH,
    FAILS_HOW,
    STARTS_WITH,
    capture_may_end,
    schedule_fails,
)
from speccli.core.engines.vllm_speculative import SCHEDULE_SINCE, dotted, schedule_problems
from speccli.core.findings.base import Severity
from speccli.core.plan.build import Plan
from speccli.core.preflight.base import Verdict
from speccli.core.sizing import cudagraphs

_NO_FULL = re.compile(r"(?<!FULL_AND_)PIECEWISE|cudagraph_mode\W+NONE")


def verdict(
    rule: str, severity: Severity, evidence: str, cause: str, action: str, thread: str = ""
) -> Verdict:
    """A verdict on the recipe as a whole."""
    return Verdict(rule, severity, evidence, cause, action, thread, subject="recipe")


def graphs(plan: Plan) -> Iterator[Verdict]:
    """What is wrong with the CUDA graphs, or not known of them."""
    made, recipe = plan.graphs, plan.facts.recipe
    if recipe.serving.enforce_eager:
        yield verdict(
            "R-GRAPHS",
            "warning",
            "enforce_eager true",
            "no CUDA graphs: not estimated; an 8B with EAGLE-3 was 0.57 to 0.78 times as fast as "
            "without a draft in graphs (stand-in on an H200, 3 to 100 requests)",
            "remove it",
            "vllm#54933",
        )
        return
    if made is None:
        if plan.facts.version is not None and recipe.engine.kind == "vllm":
            yield verdict(
                "R-GRAPHS",
                "unknown",
                f"vLLM {dotted(plan.facts.version)}",
                "its rules for CUDA graphs were not read",
                "use 0.16 or newer",
            )
        return
    most, schedule, k = recipe.serving.max_num_seqs, recipe.draft.schedule, recipe.draft.k
    eager, piecewise = cudagraphs.uncovered(made.used, most, schedule, k)
    if eager:
        yield verdict(
            "R-GRAPHS",
            "warning",
            f"batches {_span(eager)} run eager: up to {made.needed} tokens are needed",
            "no graph of that size is captured",
            f"max_num_batched_tokens at least {made.needed}, and "
            "serving.cudagraph_capture_sizes up to it",
            "vllm PR#50488, #54933",
        )
    if piecewise:
        yield verdict(
            "R-GRAPHS",
            "warning",
            f"batches {_span(piecewise)} run piecewise",
            "attention runs outside the graph",
            "capture sizes that are multiples of K + 1, or a fixed K where the V1 runner serves",
            "vllm PR#53407",
        )
    yield from _captured(plan)
    before, _ = cudagraphs.uncovered(made.default, most, schedule, k)
    if made.flag and before and recipe.serving.cudagraph_capture_sizes is None:
        yield verdict(
            "R-CAPTURE",
            "info",
            f"by default batches {_span(before)} would run eager",
            f"vLLM captures {max(made.default.sizes, default=0)} tokens at most, "
            f"{made.needed} are needed",
            "nothing: the line has --cudagraph-capture-sizes",
            "vllm PR#50488",
        )


def _span(batches: list[int]) -> str:
    if len(batches) == 1:
        return str(batches[0])
    whole = batches[-1] - batches[0] + 1 == len(batches)
    return f"{batches[0]}–{batches[-1]}" if whole else f"{batches[0]} … {batches[-1]}"


def _second_in_full(plan: Plan) -> bool:
    """Whether the V2 runner serves this, with full graphs."""
    recipe, rules = plan.facts.recipe, plan.facts.graph_rules
    second = rules is not None and rules.runner == "V2" and not rules.forced_in_vain
    full = not _NO_FULL.search(" ".join(recipe.engine.extra_args))
    return second and full and not recipe.serving.enforce_eager


def _captured(plan: Plan) -> Iterator[Verdict]:
    recipe, version = plan.facts.recipe, plan.facts.version
    most = recipe.serving.max_num_seqs
    if version is None or not _second_in_full(plan):
        return
    if capture_may_end(version, recipe.draft.method):
        yield verdict(
            "R-DRAFT-GRAPHS",
            "warning" if most < CAPTURE_STARTED_SEQS else "info",
            f"vLLM {dotted(version)}, V2 runner, max_num_seqs {most}",
            f"{CAPTURE_ENDS}: a 32B in FP8 did at 8 on two H200s and started at 128, a 70B at 64",
            CAPTURE_STARTS_WITH,
            "vllm#47561, PR #48261",
        )


def schedule(plan: Plan) -> Iterator[Verdict]:
    """What is wrong with K by batch size, where the recipe has it."""
    recipe, version = plan.facts.recipe, plan.facts.version
    rows = recipe.draft.schedule
    if rows is None or version is None:
        return
    for wrong in schedule_problems(rows):
        yield verdict(
            "R-SCHEDULE",
            "critical",
            wrong,
            "vLLM refuses this schedule",
            "write [[first, last, K], …] from 1 on, in order, without overlap",
        )
    if version < SCHEDULE_SINCE:
        yield verdict(
            "R-SCHEDULE",
            "critical",
            f"K by batch size needs vLLM {dotted(SCHEDULE_SINCE)}, this is {dotted(version)}",
            "older ones have no such key",
            "a fixed K",
        )
    if recipe.serving.data_parallel > 1:
        yield verdict(
            "R-SCHEDULE",
            "critical",
            f"data_parallel {recipe.serving.data_parallel} with K by batch size",
            "vLLM ignores the schedule there, with a warning",
            "one deployment per replica instead of data_parallel, or a fixed K",
        )
    most, method = recipe.serving.max_num_seqs, recipe.draft.method
    if _second_in_full(plan) and schedule_fails(version, method, rows, recipe.draft.k, most):
        yield verdict(
            "R-SCHEDULE",
            "critical",
            f"K by batch size on the V2 runner of vLLM {dotted(version)}",
            FAILS_HOW,
            f"{STARTS_WITH}; engine.env takes the variable",
            "vllm#48494",
        )
    yield verdict(
        "R-SCHEDULE",
        "warning",
        f"{len(rows)} ranges",
        "changing K collapsed under concurrency in one report (232 to 24–157 tok/s)",
        "bench across each threshold: one request fewer, the same, one more",
        "vllm#49548",
    )
    if plan.graphs and plan.facts.graph_rules and plan.facts.graph_rules.piecewise_only:
        yield verdict(
            "R-SCHEDULE",
            "warning",
            "the V1 runner serves this",
            "it takes piecewise graphs only where K changes",
            "a fixed K",
            "vllm#49548",
        )
