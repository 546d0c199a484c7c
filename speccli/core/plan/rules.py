"""What is wrong with a recipe as a whole: what the pair's own rules do not see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from speccli.core.engines import vllm_flags
from speccli.core.engines.vllm_graphs import RUNNER_ENV
from speccli.core.engines.vllm_speculative import dotted
from speccli.core.plan.build import Plan
from speccli.core.plan.graph_rules import graphs, schedule, verdict
from speccli.core.preflight.base import Verdict
from speccli.core.sizing.gpus import GIB

if TYPE_CHECKING:
    from speccli.core.plan.measured import Measured

_HOPPER_NOTE = {
    "awq": "INT4 weights go through Marlin: arithmetic in BF16",
    "gptq": "INT4 weights go through Marlin: arithmetic in BF16",
    "mxfp4": "no FP4 arithmetic before Blackwell: MXFP4 goes through Marlin or Triton, in BF16",
}


def judge(plan: Plan) -> Iterator[Verdict]:
    """Every verdict on the recipe."""
    for rule in (_engine, _runner, _flags, _hardware, _memory, _weights):
        yield from rule(plan)
    for rule in (graphs, schedule, _worth, _use):
        yield from rule(plan)


def _engine(plan: Plan) -> Iterator[Verdict]:
    engine, version = plan.facts.recipe.engine, plan.facts.version
    if engine.kind != "vllm":
        yield verdict(
            "R-ENGINE",
            "critical",
            f"engine.kind {engine.kind}",
            "lines are written for vLLM only",
            "engine.kind vllm",
        )
    elif version is None:
        yield verdict(
            "R-VERSION",
            "critical",
            f"engine.version {engine.version!r} is no version",
            "flags differ by version",
            'write it as "0.32.0"',
        )
    elif version > vllm_flags.NEWEST:
        yield verdict(
            "R-VERSION",
            "warning",
            f"vLLM {dotted(version)} is newer than {dotted(vllm_flags.NEWEST)}",
            "its sources were not read: flags may have changed",
            f"engine.version {dotted(vllm_flags.NEWEST)}, or try the line on one GPU",
        )


def _runner(plan: Plan) -> Iterator[Verdict]:
    rules, version = plan.facts.graph_rules, plan.facts.version
    if rules is not None and version is not None and rules.forced_in_vain:
        recipe = plan.facts.recipe
        what = f"{recipe.draft.method}{' with K by batch size' if recipe.draft.schedule else ''}"
        yield verdict(
            "R-ENGINE",
            "critical",
            f"{RUNNER_ENV}=1 with {what}",
            f"the V2 runner of vLLM {dotted(version)} does not serve it, and vLLM does not start",
            f"remove {RUNNER_ENV} from engine.env: vLLM chooses the V1 runner then",
        )


def _flags(plan: Plan) -> Iterator[Verdict]:
    for refusal in plan.line.refusals:
        yield verdict(
            "R-FLAG",
            "warning" if refusal.ignored else "critical",
            refusal.evidence,
            refusal.cause,
            refusal.action,
            refusal.thread,
        )


def _hardware(plan: Plan) -> Iterator[Verdict]:
    recipe = plan.facts.recipe
    serving, count = recipe.serving, recipe.hardware.count
    used = serving.tensor_parallel * serving.data_parallel
    if used != count:
        yield verdict(
            "R-GPUS",
            "critical" if used > count else "warning",
            f"tensor_parallel {serving.tensor_parallel} x data_parallel {serving.data_parallel}, "
            f"hardware.count {count}",
            "the engine uses other GPUs than it is given",
            f"hardware.count {used}",
        )
    if recipe.scaling.min > recipe.scaling.max:
        yield verdict(
            "R-SCALING",
            "critical",
            f"scaling.min {recipe.scaling.min}, max {recipe.scaling.max}",
            "there is no such number of servers",
            "scaling.max at least scaling.min",
        )


def _memory(plan: Plan) -> Iterator[Verdict]:
    serving, memory = plan.facts.recipe.serving, plan.memory
    if memory is None:
        yield verdict(
            "R-SHAPE",
            "unknown",
            f"no config.json known of {plan.facts.recipe.target.model}",
            "it is no folder here and not in the catalog",
            "target.config FOLDER, with config.json",
        )
        return
    left = memory.kv_cache / GIB
    if memory.kv_cache <= 0:
        yield verdict(
            "R-MEMORY",
            "critical",
            f"{left:.1f} GiB left for the KV cache of {memory.budget / GIB:.1f} GiB",
            "it does not fit",
            "more GPUs (tensor_parallel), a smaller quantization, or another GPU",
            "vllm#23278",
        )
    elif memory.kv_tokens < serving.max_model_len:
        yield verdict(
            "R-MEMORY",
            "critical",
            f"room for {memory.kv_tokens} tokens, max_model_len {serving.max_model_len}",
            "vLLM refuses to start when one request does not fit",
            f"max_model_len at most {memory.kv_tokens}, or more GPUs",
        )
    else:
        yield from _concurrency(plan)


def _concurrency(plan: Plan) -> Iterator[Verdict]:
    recipe, memory = plan.facts.recipe, plan.memory
    assert memory is not None
    tokens = recipe.workload.prompt_tokens + recipe.workload.output_tokens
    each = tokens * memory.kv_per_token + memory.kv_per_request
    fits, wanted = memory.kv_cache // each, recipe.serving.max_num_seqs
    if fits < wanted:
        yield verdict(
            "R-KV",
            "warning",
            f"cache for {fits} requests of {tokens} tokens, max_num_seqs {wanted}",
            "requests will be preempted, or wait",
            f"max_num_seqs {max(1, fits)}, or more GPUs",
        )


def _weights(plan: Plan) -> Iterator[Verdict]:
    shape, gpu = plan.facts.target_shape, plan.facts.gpu
    if shape is None:
        return
    if shape.quantization == "fp8" and not gpu.fp8_native:
        yield verdict(
            "R-KERNEL",
            "info",
            f"FP8 weights on {gpu.title}",
            "no FP8 arithmetic there: they go through Marlin, in BF16",
            "nothing: memory is saved, arithmetic is not",
        )
    note = _HOPPER_NOTE.get(shape.quantization)
    if note and not (shape.quantization == "mxfp4" and gpu.fp4_native):
        yield verdict(
            "R-KERNEL",
            "info",
            f"{shape.quantization} weights on {gpu.title}",
            note,
            "expect speculation to pay at smaller batches only: verification is arithmetic",
        )


def _worth(plan: Plan) -> Iterator[Verdict]:
    estimate, recipe = plan.estimate, plan.facts.recipe
    if plan.measured is not None:
        yield from _worth_measured(plan.measured, recipe.serving.max_num_seqs)
        if plan.measured.unlike is None:
            return
    if estimate is None or not recipe.draft.k:
        return
    k, even = recipe.draft.k, estimate.break_even
    sure = plan.facts.target_shape is not None and not plan.facts.target_shape.moe
    if even and even[0] > k + 1:
        yield verdict(
            "R-WORTH",
            "warning" if sure else "info",
            f"even at batch 1 it would need {even[0]:.1f} tokens a step, "
            f"K = {k} gives {k + 1} at most",
            "the draft costs more than it can save (estimate)",
            "a smaller draft, a head, or none",
        )
    elif estimate.crossover is not None:
        yield verdict(
            "R-WORTH",
            "info",
            f"faster than none up to about {estimate.crossover - 1} requests, "
            f"max_num_seqs {recipe.serving.max_num_seqs} (estimate)",
            "beyond it verification is arithmetic that the GPU has no room for",
            "more servers before larger batches, or a smaller K; specctl bench decides",
            "vllm#17984",
        )


def _worth_measured(found: Measured, most: int) -> Iterator[Verdict]:
    """By what was measured of this recipe, which leaves nothing to the estimate."""
    if found.unlike is not None:
        yield verdict(
            "R-MEASURED",
            "warning",
            f"the bench is of {found.unlike}",
            "what it says is not of this recipe: its worth below is the estimate's",
            "a bench of this model on this GPU; engine.served_model_name, where it has another "
            "name there",
        )
        return
    passed = [row.batch for row in found.rows if row.verdict == "PASS" and row.batch <= most]
    failed = [row.batch for row in found.rows if row.verdict == "FAIL" and row.batch <= most]
    if failed:
        yield verdict(
            "R-WORTH",
            "info" if passed else "warning",
            f"{found.arm} misses 1.1 times {found.baseline} at batch "
            f"{', '.join(map(str, failed))} ({found.how})",
            "verification is arithmetic that the GPU has no room for there"
            if passed
            else "the draft costs more than it saves",
            "more servers before larger batches, or a smaller K" if passed else "no draft",
        )
    elif passed:
        yield verdict(
            "R-WORTH",
            "info",
            f"{found.arm} is over 1.1 times {found.baseline} at batch "
            f"{', '.join(map(str, passed))} ({found.how})",
            "the draft earns more than it costs",
            "nothing to do",
        )


def _use(plan: Plan) -> Iterator[Verdict]:
    recipe = plan.facts.recipe
    if not recipe.speculates:
        return
    if recipe.serving.structured_output:
        parallel = recipe.draft.method == "p-eagle"
        yield verdict(
            "R-STRUCTURED",
            "warning",
            f"structured_output with {recipe.draft.method}",
            "with a grammar P-EAGLE's later positions collapse"
            if parallel
            else "drafts that break the grammar are cut, and engines have died of them",
            "a pool of its own without a draft, or with n-gram",
            "vllm#42004, #27969, #47025",
        )
    warm = recipe.workload.temperature > 0 and recipe.draft.method != "ngram"
    if warm and recipe.draft.sampling != "probabilistic":
        yield verdict(
            "R-TEMPERATURE",
            "info",
            f"workload.temperature {recipe.workload.temperature:g}",
            "drafts are drawn greedily: acceptance is lower than at temperature 0",
            "draft.sampling probabilistic (vLLM 0.22), for more memory",
        )
