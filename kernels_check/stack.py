"""The decoder stacks whose verify steps are timed.

The engine's kernels, a model's shapes, random weights.

A step is, in each layer, both norms, the projections, attention over the cache and the MLP or
experts; then the head and the rejection sampler. Left out, and the same with and without drafts:
rotary embedding, writing the cache, and the exchange between GPUs of a tensor-parallel slice.
Weights and caches of a few layers are gone round: together they are many times the L2 cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CONTEXT = 2048
BLOCK = 16


@dataclass(frozen=True)
class Model:
    """A target's shapes on one GPU."""

    name: str
    title: str
    hidden: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    layers: int
    vocab_slice: int
    """Rows of the head on this GPU."""
    vocab: int
    """What the sampler sees."""
    kind: str
    """bf16 or fp8 (dense), moe or mxfp4."""
    experts: int = 0
    chosen: int = 0
    window: int | None = None
    """Of every other layer."""
    distinct: int = 8
    draft_inner: int = 0
    context: int = CONTEXT
    """Tokens in each request's cache."""


SHORT = 256
"""A chat's: prompt and half an answer of the lab's benches (benchmarks/lab)."""
MODELS = {
    "70b-fp8-tp4": Model(
        "70b-fp8-tp4", "70B, FP8, one of four tensor-parallel slices",
        8192, 16, 2, 128, 7168, 80, 32064, 128256, "fp8", draft_inner=7168,
    ),
    "30b-a3b-bf16": Model(
        "30b-a3b-bf16", "30B-A3B mixture, bf16",
        2048, 32, 4, 128, 768, 48, 151936, 151936, "moe", 128, 8, distinct=6, draft_inner=6144,
    ),
    "120b-mxfp4": Model(
        "120b-mxfp4", "120B mixture, MXFP4 experts (Marlin), hidden and inner padded to 3072",
        3072, 64, 8, 64, 3072, 36, 201088, 201088, "mxfp4", 128, 4, 128, 4, draft_inner=6144,
    ),
    "8b-bf16": Model(
        "8b-bf16", "8B, bf16, 256 tokens cached",
        4096, 32, 8, 128, 14336, 32, 128256, 128256, "bf16", distinct=4, draft_inner=14336,
        context=SHORT,
    ),
    "32b-fp8": Model(
        "32b-fp8", "32B, FP8, 256 tokens cached",
        5120, 64, 8, 128, 25600, 64, 151936, 151936, "fp8", distinct=4, draft_inner=25600,
        context=SHORT,
    ),
    "70b-fp8": Model(
        "70b-fp8", "70B, FP8, 256 tokens cached",
        8192, 64, 8, 128, 28672, 80, 128256, 128256, "fp8", distinct=4, draft_inner=28672,
        context=SHORT,
    ),
}  # fmt: skip


class Stack:
    """One model's weights and caches on the GPU."""

    def __init__(self, model: Model, most_requests: int) -> None:
        """Random weights; a cache of the model's context for each of `most_requests`."""
        import torch
        from vllm import _custom_ops
        from vllm.vllm_flash_attn import flash_attn_varlen_func

        self.model, self.torch, self.ops = model, torch, _custom_ops
        self.attend = flash_attn_varlen_func
        self.norm = torch.ones(model.hidden, dtype=torch.bfloat16, device="cuda")
        qkv = (model.heads + 2 * model.kv_heads) * model.head
        quantized = model.kind == "fp8"
        self.qkv = [self._linear(model.hidden, qkv, quantized) for _ in range(model.distinct)]
        self.o = [
            self._linear(model.heads * model.head, model.hidden, quantized)
            for _ in range(model.distinct)
        ]
        self.mlp = [self._mlp() for _ in range(model.distinct)]
        self.head = self._linear(model.hidden, model.vocab_slice, False)
        blocks = (model.context + 16 + BLOCK - 1) // BLOCK
        size = (most_requests * blocks, BLOCK, model.kv_heads, model.head)
        self.cache = [(self._noise(*size), self._noise(*size)) for _ in range(model.distinct)]
        table = torch.randperm(most_requests * blocks, device="cuda").int()
        self.table = table.view(most_requests, blocks)
        self.sinks = self._noise(model.heads) if model.window is not None else None

    def _noise(self, *size: int) -> Any:
        return self.torch.randn(size, dtype=self.torch.bfloat16, device="cuda")

    def _linear(self, inputs: int, outputs: int, quantized: bool) -> Callable[[Any], Any]:
        torch = self.torch
        if not quantized:
            weight = self._noise(outputs, inputs) * inputs**-0.5
            return lambda x: torch.nn.functional.linear(x, weight)
        small = (self._noise(outputs, inputs)).to(torch.float8_e4m3fn).t()
        scale = torch.full((1, outputs), inputs**-0.5, device="cuda")

        def product(x: Any) -> Any:
            a, scale_a = self.ops.scaled_fp8_quant(x, use_per_token_if_dynamic=True)
            return self.ops.cutlass_scaled_mm(a, small, scale_a, scale, torch.bfloat16)

        return product

    def _mlp(self) -> Callable[[Any], Any]:
        model, torch = self.model, self.torch
        if model.kind in ("bf16", "fp8"):
            quantized = model.kind == "fp8"
            up = self._linear(model.hidden, 2 * model.inner, quantized)
            down = self._linear(model.inner, model.hidden, quantized)

            def dense(x: Any) -> Any:
                both = up(x)
                act = torch.empty((x.shape[0], model.inner), dtype=x.dtype, device="cuda")
                torch.ops._C.silu_and_mul(act, both)
                return down(act)

            return dense
        gate = self._linear(model.hidden, model.experts, False)
        run = self._experts_bf16() if model.kind == "moe" else self._experts_mxfp4()
        from vllm.model_executor.layers.fused_moe import fused_topk

        def mixture(x: Any) -> Any:
            weights, ids, _ = fused_topk(x, gate(x), model.chosen, True)
            return run(x, weights, ids)

        return mixture

    def _experts_bf16(self) -> Callable[[Any, Any, Any], Any]:
        from vllm.model_executor.layers.fused_moe import fused_experts

        model = self.model
        up = self._noise(model.experts, 2 * model.inner, model.hidden) * model.hidden**-0.5
        down = self._noise(model.experts, model.hidden, model.inner) * model.inner**-0.5
        return lambda x, weights, ids: fused_experts(x, up, down, weights, ids)

    def _experts_mxfp4(self) -> Callable[[Any, Any, Any], Any]:
        """Random words in Marlin's layout: the time does not depend on what they say."""
        from vllm.model_executor.layers.fused_moe.experts.marlin_moe import fused_marlin_moe
        from vllm.scalar_type import scalar_types

        model, torch = self.model, self.torch

        def words(*size: int) -> Any:
            return torch.randint(-(2**31), 2**31 - 1, size, dtype=torch.int32, device="cuda")

        def scales(*size: int) -> Any:
            made = torch.randint(110, 116, size, dtype=torch.uint8, device="cuda")
            return made.view(torch.float8_e8m0fnu)

        e, h, n = model.experts, model.hidden, model.inner
        up, down = words(e, h // 16, 2 * n * 2), words(e, n // 16, h * 2)
        scale_up, scale_down = scales(e, h // 32, 2 * n), scales(e, n // 32, h)
        return lambda x, weights, ids: fused_marlin_moe(
            x, up, down, None, None, scale_up, scale_down, weights, ids,
            quant_type_id=scalar_types.float4_e2m1f.id,
        )  # fmt: skip

    def layer(self, i: int, x: Any, residual: Any, rows: int, starts: Any, used: Any) -> Any:
        """One decoder layer in place: x becomes the layer's output, residual the running sum."""
        model, torch = self.model, self.torch
        which = i % model.distinct
        self.ops.fused_add_rms_norm(x, residual, self.norm, 1e-6)
        qkv = self.qkv[which](x)
        q = qkv[:, : model.heads * model.head].view(-1, model.heads, model.head)
        k, v = self.cache[which]
        windowed = model.window is not None and i % 2 == 0
        out = torch.empty((q.shape[0], model.heads, model.head), dtype=q.dtype, device="cuda")
        self.attend(
            q=q, k=k, v=v, out=out, cu_seqlens_q=starts, max_seqlen_q=rows, seqused_k=used,
            max_seqlen_k=model.context + rows, softmax_scale=model.head**-0.5, causal=True,
            window_size=[model.window - 1, 0] if windowed and model.window else [-1, -1],
            block_table=self.table[: starts.shape[0] - 1], fa_version=3, s_aux=self.sinks,
        )  # fmt: skip
        y = self.o[which](out.view(q.shape[0], -1))
        self.ops.fused_add_rms_norm(y, residual, self.norm, 1e-6)
        return self.mlp[which](y)

    def step(self, requests: int, k: int, sampler: Callable[[], Any]) -> Callable[[], Any]:
        """A verify step of `requests` with K drafted tokens each, as one call without host work."""
        torch = self.torch
        rows = k + 1
        x0 = self._noise(requests * rows, self.model.hidden)
        starts = torch.arange(requests + 1, dtype=torch.int32, device="cuda") * rows
        used = torch.full((requests,), self.model.context + rows, dtype=torch.int32, device="cuda")

        def call() -> Any:
            x, residual = x0.clone(), torch.zeros_like(x0)
            for i in range(self.model.layers):
                x = self.layer(i, x, residual, rows, starts, used)
            self.head(x)
            return sampler()

        return call


class Draft:
    """An EAGLE-3 head's shapes.

    One layer over twice the hidden size, and a head of 32,000 tokens.
    """

    def __init__(self, stack: Stack) -> None:
        """bf16 weights; the cache of the stack's first layer."""
        model = stack.model
        self.stack = stack
        qkv = (model.heads + 2 * model.kv_heads) * model.head
        self.qkv = stack._linear(2 * model.hidden, qkv, False)
        self.o = stack._linear(model.heads * model.head, model.hidden, False)
        self.up = stack._linear(model.hidden, 2 * model.draft_inner, False)
        self.down = stack._linear(model.draft_inner, model.hidden, False)
        self.head = stack._linear(model.hidden, 32000, False)

    def step(self, requests: int) -> Callable[[], Any]:
        """One drafted token for each request."""
        stack, torch = self.stack, self.stack.torch
        model = stack.model
        x0 = stack._noise(requests, 2 * model.hidden)
        residual = torch.zeros((requests, model.hidden), dtype=torch.bfloat16, device="cuda")
        starts = torch.arange(requests + 1, dtype=torch.int32, device="cuda")
        used = torch.full((requests,), model.context, dtype=torch.int32, device="cuda")
        k, v = stack.cache[0]

        def call() -> Any:
            qkv = self.qkv(x0)
            q = qkv[:, : model.heads * model.head].view(-1, model.heads, model.head)
            out = torch.empty((requests, model.heads, model.head), dtype=q.dtype, device="cuda")
            stack.attend(
                q=q, k=k, v=v, out=out, cu_seqlens_q=starts, max_seqlen_q=1, seqused_k=used,
                max_seqlen_k=model.context, softmax_scale=model.head**-0.5, causal=True,
                block_table=stack.table[:requests], fa_version=3,
            )  # fmt: skip
            y = self.o(out.view(requests, -1))
            stack.ops.fused_add_rms_norm(y, residual, stack.norm, 1e-6)
            both = self.up(y)
            act = torch.empty((requests, model.draft_inner), dtype=y.dtype, device="cuda")
            torch.ops._C.silu_and_mul(act, both)
            return self.head(self.down(act)).argmax(-1)

        return call
