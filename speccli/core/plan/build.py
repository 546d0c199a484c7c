"""From a recipe to a plan: does it fit, what is captured, what does the draft earn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from speccli.core.engines import vllm_flags, vllm_graphs
from speccli.core.engines.vllm_speculative import Version
from speccli.core.plan import models
from speccli.core.preflight import Model, Pair, Verdict, check_pair, in_order
from speccli.core.recipes.model import Recipe
from speccli.core.sizing import cudagraphs, roofline
from speccli.core.sizing.gpus import GPUS, Gpu
from speccli.core.sizing.memory import Demand, Memory, memory
from speccli.core.sizing.shape import Shape

if TYPE_CHECKING:
    from speccli.core.bench.results import Result
    from speccli.core.plan.measured import Estimated, Measured

HEADS = frozenset({"eagle", "eagle3", "p-eagle", "dflash", "dspark"})


@dataclass(frozen=True, slots=True)
class Facts:
    """A recipe with all that is known of its parts."""

    recipe: Recipe
    gpu: Gpu
    version: Version | None
    target: Model | None
    draft: Model | None
    target_shape: Shape | None
    draft_shape: Shape | None
    draft_params: float | None
    graph_rules: vllm_graphs.Rules | None

    @property
    def draft_tensor_parallel(self) -> int:
        """GPUs the draft is split over."""
        return self.recipe.draft.tensor_parallel or self.recipe.serving.tensor_parallel


@dataclass(frozen=True, slots=True)
class Graphs:
    """The CUDA graphs of a plan."""

    rows: tuple[cudagraphs.Row, ...]
    default: cudagraphs.Captured
    used: cudagraphs.Captured
    flag: tuple[int, ...] | None
    """Sizes to write, where the default leaves a batch without a full graph."""
    needed: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """The roofline's answer."""

    levels: tuple[roofline.Level, ...]
    break_even: tuple[float, ...]
    """Acceptance length at which a level's speed-up is 1."""
    length: float | None
    """Acceptance length that is expected at K; None: nobody has measured one."""
    crossover: int | None
    schedule: tuple[tuple[int, int, int], ...] | None


@dataclass(frozen=True, slots=True)
class Plan:
    """All of it."""

    facts: Facts
    line: vllm_flags.Line
    memory: Memory | None
    without: Memory | None
    """The same without the draft."""
    graphs: Graphs | None
    estimate: Estimate | None
    verdicts: tuple[Verdict, ...]
    measured: Measured | None = None
    """What a bench of it says; it beats the estimate."""

    @property
    def draft_costs_tokens(self) -> int | None:
        """Tokens of KV cache that the draft takes away."""
        if self.memory is None or self.without is None:
            return None
        return self.without.kv_tokens - self.memory.kv_tokens


def plan(recipe: Recipe, bench: Result | None = None) -> Plan:
    """The plan of a recipe. No network, no GPU.

    Args:
        recipe: What is to run.
        bench: What was measured of it.

    Raises:
        UsageError: a model's folder that cannot be read, or a bench of something else.
    """
    from speccli.core.plan.rules import judge

    facts = gather(recipe)
    graphs = _graphs(facts)
    line = vllm_flags.line(
        recipe, graphs.flag if graphs else recipe.serving.cudagraph_capture_sizes
    )
    sized = _memory(facts, graphs)
    estimate = _estimate(facts)
    made = Plan(
        facts,
        line,
        sized,
        _memory(_undrafted(facts), _graphs(_undrafted(facts))) if recipe.speculates else None,
        graphs,
        estimate,
        (),
        _measured(facts, estimate, bench) if bench is not None else None,
    )
    verdicts = [*judge(made), *(check_pair(pair_of(facts)) if facts.target else ())]
    return replace(made, verdicts=tuple(in_order(verdicts)))


def gather(recipe: Recipe) -> Facts:
    """What is known of a recipe's parts."""
    target = models.find(recipe.target.model, recipe.target.config)
    draft = models.find(recipe.draft.model, recipe.draft.config) if recipe.speculates else None
    shape = models.shape(target, recipe.target.quantization)
    small = models.shape(draft)
    head = recipe.draft.method in HEADS
    params = models.head_params(draft, small, shape) if head and draft and small and shape else None
    version = vllm_flags.engine_version(recipe)
    rules = None
    if version is not None and recipe.engine.kind == "vllm":
        rules = vllm_graphs.rules(
            version,
            method="eagle3" if recipe.draft.method == "p-eagle" else recipe.draft.method,
            parallel=recipe.draft.method == "p-eagle",
            architecture=target.architectures[0] if target and target.architectures else "",
            moe=bool(shape and shape.moe),
            quantized=bool(shape and shape.quantization not in {"bf16", "fp16"}),
            scheduled=recipe.draft.schedule is not None,
            forced=recipe.engine.env.get(vllm_graphs.RUNNER_ENV),
        )
    return Facts(
        recipe, GPUS[recipe.hardware.gpu], version, target, draft, shape, small, params, rules
    )


def _undrafted(facts: Facts) -> Facts:
    from speccli.core.recipes.model import Draft

    return gather(replace(facts.recipe, draft=Draft()))


def pair_of(facts: Facts) -> Pair:
    """What the pre-flight judges."""
    recipe = facts.recipe
    assert facts.target is not None
    return Pair(
        target=facts.target,
        draft=facts.draft,
        method=recipe.draft.method,
        version=facts.version or vllm_flags.NEWEST,
        k=recipe.draft.k,
        max_model_len=recipe.serving.max_model_len,
        kv_cache_dtype=recipe.serving.kv_cache_dtype,
        gpu=facts.gpu,
        tensor_parallel=recipe.serving.tensor_parallel,
        draft_tensor_parallel=recipe.draft.tensor_parallel,
        lora=recipe.serving.lora,
        max_num_seqs=recipe.serving.max_num_seqs,
        max_num_batched_tokens=recipe.serving.max_num_batched_tokens,
        quantization=recipe.target.quantization,
        extra=recipe.draft.extra,
    )


def _graphs(facts: Facts) -> Graphs | None:
    recipe, rules = facts.recipe, facts.graph_rules
    if rules is None:
        return None
    serving, k = recipe.serving, recipe.draft.k

    def capture(explicit: Sequence[int] | None) -> cudagraphs.Captured:
        return cudagraphs.captured(
            rules,
            k=k,
            max_num_seqs=serving.max_num_seqs,
            max_num_batched_tokens=serving.max_num_batched_tokens,
            explicit=explicit,
            schedule=recipe.draft.schedule,
            eager=serving.enforce_eager,
        )

    default = capture(None)
    flag = serving.cudagraph_capture_sizes
    if flag is None and not serving.enforce_eager and not rules.piecewise_only:
        eager, piecewise = cudagraphs.uncovered(
            default, serving.max_num_seqs, recipe.draft.schedule, k
        )
        if eager or piecewise:
            sizes = cudagraphs.covering(k, serving.max_num_seqs, recipe.draft.schedule)
            flag = tuple(size for size in sizes if size <= serving.max_num_batched_tokens)
    used = capture(flag) if flag else default
    rows = cudagraphs.table(used, serving.max_num_seqs, recipe.draft.schedule, k)
    needed = serving.max_num_seqs * (k + 1)
    return Graphs(tuple(rows), default, used, flag, needed)


def _memory(facts: Facts, graphs: Graphs | None) -> Memory | None:
    if facts.target_shape is None:
        return None
    recipe, serving = facts.recipe, facts.recipe.serving
    count = len(graphs.used.sizes) + len(graphs.used.full) if graphs else 100
    return memory(
        facts.gpu,
        Demand(
            target=facts.target_shape,
            draft=facts.draft_shape,
            draft_params=facts.draft_params,
            k=recipe.draft.k,
            tensor_parallel=serving.tensor_parallel,
            draft_tensor_parallel=facts.draft_tensor_parallel,
            max_model_len=serving.max_model_len,
            max_num_seqs=serving.max_num_seqs,
            max_num_batched_tokens=serving.max_num_batched_tokens,
            kv_dtype=serving.kv_cache_dtype,
            utilization=serving.gpu_memory_utilization,
            graphs=count,
            draft_graphs=len(graphs.used.sizes) if graphs and facts.draft_shape else 0,
            full_tokens=max(graphs.used.full, default=0) if graphs else 0,
            shares_embedding=recipe.draft.method in HEADS,
            keeps_draft_logits=recipe.draft.sampling == "probabilistic",
        ),
    )


def _estimate(facts: Facts) -> Estimate | None:
    recipe, draft = facts.recipe, facts.recipe.draft
    unknown_draft = draft.method in HEADS | {"draft_model"} and facts.draft_shape is None
    # Eager, a step costs its launches, which are not estimated (R-GRAPHS says what they came to).
    if facts.target_shape is None or unknown_draft or recipe.serving.enforce_eager:
        return None
    setting = _setting(facts, facts.target_shape)
    k, most = draft.k, recipe.serving.max_num_seqs
    length = None
    if k and draft.acceptance_length:
        chance = roofline.acceptance_of(draft.acceptance_length, draft.acceptance_k or k)
        length = roofline.length_at(chance, k)
    batches = [n for n in (1, 8, 32, 64, 128, 256) if n < most] + [most]
    # A mixture of experts was not fitted: no advice is drawn from it.
    told = not facts.target_shape.moe
    levels = tuple(roofline.level(setting, n, k, length or 1.0) for n in batches)
    even = tuple(roofline.break_even(setting, n, k) for n in batches) if k else ()
    return Estimate(
        levels=levels,
        break_even=even,
        length=length,
        crossover=roofline.crossover(setting, k, length, most) if told and length else None,
        schedule=tuple(roofline.schedule(setting, k, length, most)) if told and length else None,
    )


def _setting(facts: Facts, target: Shape) -> roofline.Setting:
    """What is estimated."""
    recipe, draft, rules = facts.recipe, facts.recipe.draft, facts.graph_rules
    return roofline.Setting(
        gpu=facts.gpu,
        tensor_parallel=recipe.serving.tensor_parallel,
        target=target,
        kv_dtype=recipe.serving.kv_cache_dtype,
        draft=facts.draft_shape,
        draft_params=facts.draft_params,
        draft_tensor_parallel=facts.draft_tensor_parallel,
        method=draft.method,
        prompt_tokens=recipe.workload.prompt_tokens,
        output_tokens=recipe.workload.output_tokens,
        draft_in_pieces=draft.method == "draft_model"
        and rules is not None
        and rules.runner == "V1",
    )


def _measured(facts: Facts, estimate: Estimate | None, bench: Result) -> Measured:
    from speccli.core.plan.measured import measured

    return measured(facts.recipe, bench, _at(facts, estimate))


def _at(facts: Facts, estimate: Estimate | None) -> Callable[[int], Estimated]:
    """What the estimate says of any batch."""
    from speccli.core.plan.measured import Estimated

    target, k = facts.target_shape, facts.recipe.draft.k
    if estimate is None or target is None:
        return lambda batch: Estimated()
    setting, length = _setting(facts, target), estimate.length

    def at(batch: int) -> Estimated:
        level = roofline.level(setting, batch, k, length or 1.0)
        if length is None:
            return Estimated(level.tokens_per_s_without)
        return Estimated(level.tokens_per_s_without, level.tokens_per_s, level.speedup)

    return at
