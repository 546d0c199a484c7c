"""Quantized matrix products at verify shapes, every element against float64."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels_check.model import Context, Passed, Wrong, missing

ROWS = (1, 2, 4, 6, 8, 16, 33, 64, 128, 256, 1024)
"""batch x (K + 1)."""
SHAPES = ((8192, 2560), (2048, 8192), (8192, 14336), (7168, 8192), (2048, 1536))
"""(inputs, outputs): a quarter of a 70B's layer, and a 30B-A3B's."""
GROUP = 128
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The order in which AWQ packs eight 4-bit columns into a word."""

Product = Callable[[Any], Any]


def bound(a: Any, b: Any, wanted: Any) -> Any:
    """What rounding may do to an element: a share of it, and of its terms' root sum square.

    A bf16 result alone rounds by 2^-9; the FP8 tensor cores of Hopper keep about 14 bits while they
    add up, which over thousands of terms comes to one or two per cent.
    """
    terms = (a.square() @ b.square()).sqrt()
    return wanted.abs() * 2**-6 + terms * 4e-2 + 1e-6


def compare(name: str, got: Any, a: Any, b: Any) -> float:
    """The largest error as a share of what rounding may do; `Wrong` above one."""
    wanted = a @ b
    share = ((got.double() - wanted).abs() / bound(a, b, wanted)).nan_to_num(nan=float("inf"))
    worst = float(share.max())
    if worst > 1:
        row, column = divmod(int(share.argmax()), wanted.shape[1])
        raise Wrong(
            f"{name}: element ({row}, {column}) is {float(got[row, column]):.5g}, must be "
            f"{float(wanted[row, column]):.5g}: {worst:.1f} times what rounding may do"
        )
    return worst


def fp8(context: Context) -> Passed:
    """FP8 by FP8, a scale a row and a scale a column, as dynamic FP8 runs on Hopper."""
    ops = custom_ops()

    def make(seed: int, inputs: int, outputs: int) -> tuple[Product, Any]:
        import torch

        generator = torch.Generator(device="cuda").manual_seed(seed)
        b, scale_b, wide = fp8_weight(inputs, outputs, generator)
        shift = int(context.options.get("wrong_scale", 0))
        used = torch.roll(scale_b, shift, -1) if shift else scale_b

        def product(x: Any) -> Any:
            a, scale_a = ops.scaled_fp8_quant(x, use_per_token_if_dynamic=True)
            got = ops.cutlass_scaled_mm(a, b, scale_a, used, torch.bfloat16)
            return got, a.double() * scale_a.double()

        return product, wide

    return _grid("fp8", make, context)


def fp8_weight(inputs: int, outputs: int, generator: Any) -> tuple[Any, Any, Any]:
    """An FP8 weight (column-major.

    As the kernel wants it), its scales, and its value in float64.
    """
    import torch

    w = torch.randn((outputs, inputs), generator=generator, device="cuda")
    w *= torch.exp(torch.randn((outputs, 1), generator=generator, device="cuda"))
    scale = w.abs().amax(1, keepdim=True) / 448
    b = (w / scale).to(torch.float8_e4m3fn).t()
    scale_b = scale.t().contiguous()
    return b, scale_b, b.double() * scale_b.double()


def fp8_marlin(context: Context) -> Passed:
    """FP8 weights, bf16 inputs: Marlin."""
    try:
        from vllm.model_executor.layers.quantization.utils import marlin_utils_fp8 as marlin
    except ImportError as error:
        raise missing("Marlin", error) from error

    def make(seed: int, inputs: int, outputs: int) -> tuple[Product, Any]:
        import torch

        generator = torch.Generator(device="cuda").manual_seed(seed)
        b, scale_b, _ = fp8_weight(inputs, outputs, generator)
        scale = scale_b.bfloat16()
        layer = torch.nn.Module()
        layer.output_size_per_partition, layer.input_size_per_partition = outputs, inputs
        layer.orig_dtype = torch.bfloat16
        layer.weight = torch.nn.Parameter(b.contiguous(), requires_grad=False)
        layer.weight_scale = torch.nn.Parameter(scale, requires_grad=False)
        marlin.prepare_fp8_layer_for_marlin(layer, size_k_first=True)

        def product(x: Any) -> Any:
            got = marlin.apply_fp8_marlin_linear(
                x, layer.weight, layer.weight_scale, layer.workspace, outputs, inputs, None
            )
            return got, x.double()

        return product, b.double() * scale.double()

    return _grid("fp8 marlin", make, context)


def awq_marlin(context: Context) -> Passed:
    """4-bit weights with zero points, groups of 128: an AWQ checkpoint through Marlin."""
    ops = custom_ops()
    from vllm.model_executor.layers.quantization.utils import marlin_utils as marlin
    from vllm.scalar_type import scalar_types

    def make(seed: int, inputs: int, outputs: int) -> tuple[Product, Any]:
        import torch

        generator = torch.Generator(device="cuda").manual_seed(seed)
        awq = awq_weight(inputs, outputs, generator)
        weight = ops.awq_marlin_repack(awq.packed, inputs, outputs, 4)
        scales = marlin.marlin_permute_scales(awq.scales, inputs, outputs, GROUP)
        zeros = marlin.awq_to_marlin_zero_points(awq.zeros, inputs // GROUP, outputs, 4)
        space = marlin.marlin_make_workspace_new(torch.device("cuda", 0))
        none = marlin.marlin_make_empty_g_idx(torch.device("cuda", 0))

        def product(x: Any) -> Any:
            got = ops.marlin_gemm(
                x, None, weight, None, scales, None, None, zeros, none, none, space,
                scalar_types.uint4, x.shape[0], outputs, inputs, use_fp32_reduce=True,
            )  # fmt: skip
            return got, x.double()

        return product, awq.wide

    return _grid("awq marlin", make, context)


def awq_weight(inputs: int, outputs: int, generator: Any) -> SimpleNamespace:
    """A weight as an AWQ checkpoint stores it, and its value in float64."""
    import torch

    def draw(rows: int) -> Any:
        return torch.randint(0, 16, (rows, outputs), generator=generator, device="cuda")

    q, z = draw(inputs), draw(inputs // GROUP)
    scales = (
        torch.rand((inputs // GROUP, outputs), generator=generator, device="cuda") * 0.02 + 0.005
    )
    scales = scales.bfloat16()

    def pack(values: Any) -> Any:
        eights = values.view(values.shape[0], -1, 8)[:, :, list(ORDER)]
        word = torch.zeros(eights.shape[:2], dtype=torch.int64, device="cuda")
        for i in range(8):
            word |= eights[:, :, i] << (4 * i)
        return torch.where(word >= 2**31, word - 2**32, word).int().contiguous()

    spread = scales.double().repeat_interleave(GROUP, 0)
    wide = (q - z.repeat_interleave(GROUP, 0)).double() * spread
    return SimpleNamespace(packed=pack(q), zeros=pack(z), scales=scales, wide=wide)


def custom_ops() -> Any:
    """VLLM's compiled operators."""
    try:
        from vllm import _custom_ops
    except ImportError as error:
        raise missing("vLLM's compiled operators", error) from error
    return _custom_ops


def _grid(
    name: str, make: Callable[[int, int, int], tuple[Product, Any]], context: Context
) -> Passed:
    import torch

    worst, products = 0.0, 0
    rng = np.random.default_rng(context.seed)
    for inputs, outputs in SHAPES:
        product, wide = make(int(rng.integers(1 << 30)), inputs, outputs)
        for rows in ROWS:
            generator = torch.Generator(device="cuda").manual_seed(context.seed + rows)
            x = torch.randn((rows, inputs), generator=generator, device="cuda").bfloat16()
            got, exact = product(x)
            title = f"{name}, {rows} x {inputs} x {outputs}"
            worst = max(worst, compare(title, got, exact, wide))
            products += 1
    return Passed(
        f"{products} products; worst element at {worst:.2f} of what rounding may do",
        {"products": products, "worst_share_of_bound": worst},
    )
