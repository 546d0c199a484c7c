"""MXFP4 experts at the small batches of a verify step, through the kernels vLLM has for Hopper.

A weight is two 4-bit numbers a byte and a power of two for every 32 of a row; the activation is the
120B's: gate and up interleaved, clamped, up one higher.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from kernels_check.checks.moe import WORST, engine_config
from kernels_check.model import Context, Passed, Wrong, missing

EXPERTS, CHOSEN = 16, 4
TOKENS = (1, 4, 8, 32, 64)
GROUP = 32
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Of the low three bits of a number; the fourth is its sign."""
SLOPE, LIMIT = 1.702, 7.0

Layer = Callable[[Any, Any], Any]
"""Rows and their router logits in, what the layer makes of them out."""


@dataclass
class Weights:
    """As a checkpoint stores them."""

    up: Any
    """[experts, 2 inner, hidden / 2] bytes; gate and up rows take turns."""
    up_scale: Any
    """[experts, 2 inner, hidden / 32] exponents, 127 being one."""
    up_bias: Any
    down: Any
    """[experts, hidden, inner / 2] bytes."""
    down_scale: Any
    down_bias: Any


def marlin(context: Context) -> Passed:
    """Marlin; the sizes as vLLM pads a 120B's."""
    try:
        from vllm.model_executor.layers.fused_moe import fused_topk
        from vllm.model_executor.layers.fused_moe.activation import MoEActivation
        from vllm.model_executor.layers.fused_moe.experts.marlin_moe import fused_marlin_moe
        from vllm.model_executor.layers.quantization.utils import marlin_utils_fp4 as prepare
        from vllm.scalar_type import scalar_types
    except ImportError as error:
        raise missing("vLLM's Marlin experts", error) from error

    def build(w: Weights) -> Layer:
        import torch

        up, down, up_scale, down_scale, up_bias, down_bias = (
            prepare.prepare_moe_mxfp4_layer_for_marlin(
                SimpleNamespace(params_dtype=torch.bfloat16),
                w.up, w.down, w.up_scale, w.down_scale, w.up_bias, w.down_bias,
            )
        )  # fmt: skip

        def layer(x: Any, router: Any) -> Any:
            weights, ids, _ = fused_topk(x, router, CHOSEN, True)
            return fused_marlin_moe(
                x, up, down, up_bias, down_bias, up_scale, down_scale, weights, ids,
                quant_type_id=scalar_types.float4_e2m1f.id, activation=MoEActivation.SWIGLUOAI,
            )  # fmt: skip

        return layer

    return _grid(build, context, hidden=3072, inner=2944)


def triton(context: Context) -> Passed:
    """The Triton kernels that vLLM carries, its first choice for such a model on Hopper."""
    try:
        from vllm.model_executor.layers.fused_moe.config import mxfp4_w4a16_moe_quant_config
        from vllm.model_executor.layers.fused_moe.experts import gpt_oss_triton_kernels_moe as moe
        from vllm.model_executor.layers.quantization.utils.mxfp4_utils import _swizzle_mxfp4
        from vllm.utils.import_utils import has_triton_kernels
    except ImportError as error:
        raise missing("vLLM's Triton experts", error) from error
    if not has_triton_kernels():
        raise missing("triton_kernels", ModuleNotFoundError("", name="triton_kernels"))
    from triton_kernels.matmul_ogs import FlexCtx, PrecisionConfig

    def build(w: Weights) -> Layer:
        up, up_flex, up_scale = _swizzle_mxfp4(w.up, w.up_scale)
        down, down_flex, down_scale = _swizzle_mxfp4(w.down, w.down_scale)
        config = mxfp4_w4a16_moe_quant_config(
            w1_scale=PrecisionConfig(weight_scale=up_scale, flex_ctx=FlexCtx(rhs_data=up_flex)),
            w2_scale=PrecisionConfig(weight_scale=down_scale, flex_ctx=FlexCtx(rhs_data=down_flex)),
            w1_bias=w.up_bias.float(), w2_bias=w.down_bias.float(),
        )  # fmt: skip

        def layer(x: Any, router: Any) -> Any:
            return moe.triton_kernel_moe_forward(
                x, up, down, router, CHOSEN, True, quant_config=config, global_num_experts=EXPERTS
            )

        return layer

    return _grid(build, context, hidden=2880, inner=2880)


def _grid(
    build: Callable[[Weights], Layer], context: Context, *, hidden: int, inner: int
) -> Passed:
    import torch

    generator = torch.Generator(device="cuda").manual_seed(context.seed)
    held = _random(generator, hidden, inner)
    shift = int(context.options.get("wrong_scale", 0))
    given = Weights(
        held.up, torch.roll(held.up_scale, shift, -1) if shift else held.up_scale, held.up_bias,
        held.down, held.down_scale, held.down_bias,
    )  # fmt: skip
    worst, tokens = 0.0, 0
    with engine_config():
        layer = build(given)
        for rows in TOKENS:
            x = torch.randn((rows, hidden), generator=generator, device="cuda").bfloat16()
            router = torch.randn((rows, EXPERTS), generator=generator, device="cuda").bfloat16()
            got = layer(x, router).double()
            wanted = expected(held, x, router)
            off = (got - wanted).norm(dim=-1) / wanted.norm(dim=-1)
            worst = max(worst, float(off.nan_to_num(nan=math.inf).max()))
            if worst > WORST:
                raise Wrong(
                    f"{rows} rows: row {int(off.argmax())} is off by {worst:.2e}"
                    f" (bound {WORST:.0e})"
                )
            tokens += rows
    return Passed(
        f"{tokens} tokens; worst row off by {worst:.1e} (bound {WORST:.0e})",
        {"tokens": tokens, "worst_relative_error": worst},
    )


def _random(generator: Any, hidden: int, inner: int) -> Weights:
    import torch

    def draw(low: int, high: int, *size: int) -> Any:
        return torch.randint(low, high, size, generator=generator, device="cuda", dtype=torch.uint8)

    def bias(*size: int) -> Any:
        return torch.randn(size, generator=generator, device="cuda").bfloat16()

    return Weights(
        draw(0, 256, EXPERTS, 2 * inner, hidden // 2),
        draw(118, 123, EXPERTS, 2 * inner, hidden // GROUP),
        bias(EXPERTS, 2 * inner),
        draw(0, 256, EXPERTS, hidden, inner // 2),
        draw(118, 123, EXPERTS, hidden, inner // GROUP),
        bias(EXPERTS, hidden),
    )


def unpacked(packed: Any, scale: Any) -> Any:
    """The weight in float64: the low half of a byte comes first, then the scale of its 32."""
    import torch

    values = torch.tensor((*VALUES, *(-v for v in VALUES)), dtype=torch.float64)
    table = values.to(packed.device)
    both = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)
    factor = torch.exp2(scale.double() - 127)
    return table[both.long()] * factor.repeat_interleave(GROUP, -1)


def expected(w: Weights, x: Any, router: Any) -> Any:
    """Float64, expert by expert."""
    import torch

    chances, ids = torch.topk(router.double(), CHOSEN, -1)
    chances = torch.softmax(chances, -1)
    out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for expert in ids.unique().tolist():
        token, slot = torch.nonzero(ids == expert, as_tuple=True)
        both = x[token].double() @ unpacked(w.up[expert], w.up_scale[expert]).T
        both += w.up_bias[expert].double()
        gate = both[:, 0::2].clamp(max=LIMIT)
        lifted = both[:, 1::2].clamp(-LIMIT, LIMIT) + 1
        act = gate * torch.sigmoid(SLOPE * gate) * lifted
        made = act @ unpacked(w.down[expert], w.down_scale[expert]).T + w.down_bias[expert].double()
        out.index_add_(0, token, made * chances[token, slot][:, None])
    return out
