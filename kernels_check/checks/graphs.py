"""CUDA graphs at the sizes a speculating engine captures, and the same result again and again."""

from __future__ import annotations

from typing import Any

from kernels_check.checks import attention, rejection
from kernels_check.cuda import timing
from kernels_check.model import Context, Passed, Wrong, missing


def sampler(context: Context) -> Passed:
    """Captured at batch x (K + 1) logits, replayed on new ones.

    The same tokens as without a graph.
    """
    import torch

    engine: Any = rejection.engine_of(context.options["engine"])
    steps = 0
    for k in (1, 3, 7):
        for batch in (1, 8, 32):
            options = {"mode": "random"}
            first = rejection.make(engine, options, k, batch, 32000, context.seed + k, "cuda")
            other = rejection.make(engine, options, k, batch, 32000, context.seed + k, "cuda")
            other.logits = torch.randn_like(first.logits) * 3
            held = first.logits
            step = _prepared(engine, first, context.seed + k)
            graph = timing.captured([step])
            held.copy_(other.logits)
            graph.replay()
            torch.cuda.synchronize()
            got = step.out.tolist()
            wanted = _prepared(engine, other, context.seed + k)
            wanted()
            torch.cuda.synchronize()
            if got != wanted.out.tolist():
                raise Wrong(f"K {k}, batch {batch}: a replayed graph and a direct call differ")
            steps += 1
    return Passed(f"{steps} sizes captured, replayed on new data, equal")


class _Prepared:
    """A call without host work that keeps its last output; the shape of what an engine captures."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.out: Any = None

    def __call__(self) -> None:
        self.out = self._call()


def _prepared(engine: Any, case: Any, seed: int) -> _Prepared:
    import torch

    inputs: list[tuple[Any, ...]] = []
    module = engine.module
    real = module.rejection_sample

    class Recorder:
        def rejection_sample(self, *arguments: Any, **options: Any) -> Any:
            inputs.append((arguments, options))
            return real(*arguments, **options)

    engine.module = Recorder()
    try:
        engine.run(case, seed)
    finally:
        engine.module = module
    arguments, options = inputs[0]

    def call() -> Any:
        sampled, count = real(*arguments, **options)
        there = torch.arange(case.k + 1, device="cuda")[None, :] < count[:, None]
        return torch.where(there, sampled, torch.full_like(sampled, -1))

    return _Prepared(call)


def verify_attention(context: Context) -> Passed:
    """FlashAttention 3 captured at 1 + K rows, replayed on new queries: equal to a direct call."""
    import torch

    try:
        from vllm.vllm_flash_attn import flash_attn_varlen_func
    except ImportError as error:
        raise missing("vLLM's FlashAttention", error) from error
    steps = 0
    for rows in (2, 4, 8):
        for requests in (1, 8, 32):
            before = [(i * 97) % 1500 + 1 for i in range(requests)]
            batch = attention.make(attention.SHAPES[1], 16, rows, before, context.seed + rows)
            out = torch.zeros_like(batch.q)
            starts, used = batch.starts, batch.used

            def call(
                batch: Any = batch, out: Any = out, starts: Any = starts, used: Any = used
            ) -> Any:
                return flash_attn_varlen_func(
                    q=batch.q, k=batch.k, v=batch.v, out=out, cu_seqlens_q=starts,
                    max_seqlen_q=batch.rows, seqused_k=used, max_seqlen_k=max(batch.lengths),
                    softmax_scale=batch.shape.size**-0.5, causal=True,
                    block_table=batch.table, fa_version=3,
                )  # fmt: skip

            graph = timing.captured([call])
            batch.q.copy_(torch.randn_like(batch.q))
            graph.replay()
            torch.cuda.synchronize()
            got = out.clone()
            call()
            torch.cuda.synchronize()
            if not torch.equal(got, out):
                raise Wrong(f"{rows} rows, {requests} requests: a replayed graph and a call differ")
            steps += 1
    return Passed(f"{steps} sizes captured, replayed on new queries, equal bit by bit")


def same_again(context: Context) -> Passed:
    """The same step a hundred times, other blocks running beside it: always the same tokens."""
    import torch

    engine = rejection.engine_of(context.options["engine"], context.options.get("mutant", 0))
    case = rejection.make(engine, {"mode": "random"}, 7, 32, 151936, context.seed, "cuda")
    first = engine.run(case, context.seed).clone()
    noise = torch.randn((4096, 4096), device="cuda")
    side = torch.cuda.Stream()
    for turn in range(100):
        with torch.cuda.stream(side):
            noise = noise * 1.0001
        again = engine.run(case, context.seed)
        if not torch.equal(first, again):
            bad = int((first != again).any(-1).sum())
            raise Wrong(f"run {turn + 2} of the same step differs in {bad} of 32 requests")
    return Passed("100 runs of one step, all equal")
