"""The GPUs that recipes name: memory as CUDA counts it, bandwidth, arithmetic, what is native."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU model."""

    name: str
    title: str
    memory_bytes: int
    """What CUDA reports as total; `gpu_memory_utilization` is a share of this."""
    bandwidth: float
    """Bytes per second, the data sheet's."""
    flops: Mapping[str, float]
    """Dense operations per second by the arithmetic's type, the data sheet's."""
    capability: tuple[int, int]
    source: str

    @property
    def fp8_native(self) -> bool:
        """Whether it multiplies FP8 (capability 8.9 and newer); else weights go through Marlin."""
        return self.capability >= (8, 9)

    @property
    def fp4_native(self) -> bool:
        """Whether it multiplies FP4 (Blackwell)."""
        return self.capability >= (10, 0)


GPUS: Mapping[str, Gpu] = {
    "h100": Gpu(
        "h100",
        "H100 80GB (SXM)",
        int(79.11 * GIB),
        3.35e12,
        {"bf16": 989e12, "fp8": 1979e12},
        (9, 0),
        "79.11 GiB: vllm#27508; rates: NVIDIA's data sheet, dense",
    ),
    "h100-nvl": Gpu(
        "h100-nvl",
        "H100 NVL",
        int(93.1 * GIB),
        3.9e12,
        {"bf16": 835e12, "fp8": 1671e12},
        (9, 0),
        "NVIDIA's data sheet, dense; the memory CUDA reports is not measured here",
    ),
    "h200": Gpu(
        "h200",
        "H200",
        int(139.8 * GIB),
        4.8e12,
        {"bf16": 989e12, "fp8": 1979e12},
        (9, 0),
        "NVIDIA's data sheet, dense; 4.3 TB/s of copies measured of 4.8",
    ),
    "a100": Gpu(
        "a100",
        "A100 80GB (SXM)",
        int(79.2 * GIB),
        2.04e12,
        {"bf16": 312e12},
        (8, 0),
        "NVIDIA's data sheet; no FP8",
    ),
}
