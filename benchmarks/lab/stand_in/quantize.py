"""Linear weights in FP8 and INT4 as compressed-tensors holds them: rounded to nearest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

KINDS = ("bf16", "fp8", "int4")
GROUP = 128
_FP8_MOST = 448.0
_INT4_MOST = 7.0

QUIET = {"bf16": 40, "fp8": 14, "int4": 40}
"""An FP8 row has one scale: at 2^-40 of its largest weight the rest would be zeros."""


def quantized(kind: str, name: str, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """What a checkpoint of this kind holds in the weight's place; layers' matrices alone change."""
    if kind == "bf16" or not name.endswith("_proj.weight"):
        yield name, weight
    elif kind == "fp8":
        yield from _fp8(name, weight)
    else:
        yield from _int4(name.removesuffix("weight"), weight)


def _fp8(name: str, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    most = weight.abs().amax(1, keepdim=True).float()
    scale = (most / _FP8_MOST).clamp(min=torch.finfo(torch.float32).tiny)
    yield name, (weight / scale).clamp(-_FP8_MOST, _FP8_MOST).to(torch.float8_e4m3fn)
    yield f"{name}_scale", scale


def _int4(start: str, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Symmetric, groups along the input; eight numbers an int32, the first in the lowest bits."""
    rows, columns = weight.shape
    groups = weight.reshape(rows, columns // GROUP, GROUP)
    scale = (groups.abs().amax(-1, keepdim=True) / _INT4_MOST).clamp(min=2.0**-100)
    numbers = (groups / scale).round().clamp(-8, 7).to(torch.int32).reshape(rows, -1, 8) + 8
    shifts = torch.arange(0, 32, 4, device=weight.device, dtype=torch.int32)
    packed = (numbers << shifts).sum(-1, dtype=torch.int64).to(torch.int32)
    yield f"{start}weight_packed", packed
    yield f"{start}weight_scale", scale.squeeze(-1)
    yield f"{start}weight_shape", torch.tensor([rows, columns], dtype=torch.int64)


def config(kind: str) -> dict[str, Any] | None:
    """`quantization_config` of config.json; None: not quantized."""
    if kind == "bf16":
        return None
    weights: dict[str, Any] = {"symmetric": True, "dynamic": False}
    group: dict[str, Any] = {"targets": ["Linear"], "weights": weights}
    if kind == "fp8":
        weights |= {"num_bits": 8, "type": "float", "strategy": "channel"}
        group["input_activations"] = {
            "num_bits": 8,
            "type": "float",
            "symmetric": True,
            "strategy": "token",
            "dynamic": True,
        }
    else:
        weights |= {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized" if kind == "fp8" else "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }
