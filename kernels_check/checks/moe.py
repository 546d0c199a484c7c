"""Expert layers at the small batches of a verify step: who is chosen, and what comes out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels_check.model import Context, NotHere, Passed, Wrong, missing
from kernels_check.reference import layers

TOKENS = (1, 2, 4, 8, 31, 32, 64, 256)
SHAPES = ((128, 8, 2048, 768), (32, 4, 2880, 2880))
"""(experts, chosen, hidden, inner): a 30B-A3B's, and a fourth of the experts of a 120B's."""
WORST = 2e-2


@contextlib.contextmanager
def engine_config() -> Iterator[None]:
    """VLLM's layers ask for a configuration; any will do."""
    from vllm.config import VllmConfig, set_current_vllm_config

    with set_current_vllm_config(VllmConfig()):
        yield


def _layers() -> Any:
    try:
        from vllm.model_executor.layers import fused_moe
    except ImportError as error:
        raise missing("vLLM's expert layers", error) from error
    if not hasattr(fused_moe, "fused_topk"):
        raise NotHere("vLLM's expert layers need Triton, which it did not find")
    return fused_moe


def routing(context: Context) -> Passed:
    """The chosen experts and their weights; ties of float32 may fall either way."""
    import torch

    fused = _layers()
    tokens = 0
    for experts, k, hidden, _ in SHAPES:
        for rows in TOKENS:
            generator = torch.Generator(device="cuda").manual_seed(context.seed + rows)
            gate = torch.randn((rows, experts), generator=generator, device="cuda").bfloat16()
            x = torch.zeros((rows, hidden), dtype=torch.bfloat16, device="cuda")
            weights, ids, _ = fused.fused_topk(x, gate, k, True)
            wanted, _ = layers.route(gate.double().cpu().numpy(), k)
            logits, chosen = gate.double().cpu().numpy(), ids.cpu().numpy()
            got = np.take_along_axis(logits, chosen.astype(np.int64), -1)
            if not np.array_equal(-np.sort(-got), -np.sort(-logits)[:, :k]):
                raise Wrong(f"{experts} experts, {rows} rows: not the {k} largest were chosen")
            if any(len(set(row)) != k for row in chosen.tolist()):
                raise Wrong(f"{experts} experts, {rows} rows: an expert was chosen twice")
            if not np.allclose(-np.sort(-weights.double().cpu().numpy()), wanted, atol=2e-6):
                raise Wrong(f"{experts} experts, {rows} rows: weights differ from softmax's")
            tokens += rows
    return Passed(f"{tokens} tokens routed exactly")


def experts(context: Context) -> Passed:
    """What the fused layer makes of each token, against its experts one by one in float64."""
    import torch

    fused = _layers()
    worst, tokens = 0.0, 0
    with engine_config():
        for number, k, hidden, inner in SHAPES:
            generator = torch.Generator(device="cuda").manual_seed(context.seed)
            shape_up, shape_down = (number, 2 * inner, hidden), (number, hidden, inner)
            up = torch.randn(shape_up, generator=generator, device="cuda").bfloat16() * hidden**-0.5
            down = (
                torch.randn(shape_down, generator=generator, device="cuda").bfloat16() * inner**-0.5
            )
            for rows in TOKENS:
                x = torch.randn((rows, hidden), generator=generator, device="cuda").bfloat16()
                gate = torch.randn((rows, number), generator=generator, device="cuda")
                weights, ids, _ = fused.fused_topk(x, gate, k, True)
                got = fused.fused_experts(x.clone(), up, down, weights, ids).double()
                wanted = _expected(x, up, down, weights, ids)
                off = (got - wanted).norm(dim=-1) / wanted.norm(dim=-1)
                worst = max(worst, float(off.nan_to_num(nan=float("inf")).max()))
                if worst > WORST:
                    raise Wrong(
                        f"{number} experts, {rows} rows: row {int(off.argmax())} is off by"
                        f" {worst:.2e}"
                        f" (bound {WORST:.0e})"
                    )
                tokens += rows
    return Passed(
        f"{tokens} tokens; worst row off by {worst:.1e} (bound {WORST:.0e})",
        {"tokens": tokens, "worst_relative_error": worst},
    )


def _expected(x: Any, up: Any, down: Any, weights: Any, ids: Any) -> Any:
    """Float64, expert by expert, on the GPU; the same sums as `reference.layers.experts`."""
    import torch

    out = torch.zeros(x.shape, dtype=torch.float64, device="cuda")
    inner = up.shape[1] // 2
    for expert in ids.unique().tolist():
        token, slot = torch.nonzero(ids == expert, as_tuple=True)
        both = x[token].double() @ up[expert].double().T
        act = torch.nn.functional.silu(both[:, :inner]) * both[:, inner:]
        out.index_add_(
            0, token, (act @ down[expert].double().T) * weights[token, slot].double()[:, None]
        )
    return out
