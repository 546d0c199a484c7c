"""What the chip says of itself, and what its memory and tensor cores do."""

from __future__ import annotations

import ctypes
import statistics
from typing import Any

from kernels_check.cuda import nvml, timing
from kernels_check.model import Context, NotHere, Passed, Wrong

PEAKS: dict[str, dict[str, float]] = {
    "NVIDIA H200": {"memory": 4.8e12, "bf16": 989e12, "fp8": 1979e12, "copy": 4.3e12},
    "NVIDIA H100 80GB HBM3": {"memory": 3.35e12, "bf16": 989e12, "fp8": 1979e12, "copy": 2.95e12},
}
"""By name: the data sheet's dense rates (bytes/s, FLOP/s), and the copy rate measured on others."""
LEAST_OF_COPY = 0.9


def chip(context: Context) -> Passed:
    """No uncorrected ECC error, no harmful throttling, no Xid while the tensor cores work."""
    del context
    import torch

    try:
        reader = nvml.Nvml()
    except OSError as error:
        raise NotHere(f"NVML: {error}") from error
    idle = reader.read()
    a = torch.randn((8192, 8192), device="cuda").bfloat16()
    torch.cuda.synchronize()
    for _ in range(12):
        for _ in range(80):
            a @ a
        busy = reader.read()
        torch.cuda.synchronize()
    xids = reader.xids(0.2)
    data = {"facts": reader.facts(), "idle": idle.as_json(), "busy": busy.as_json(), "xids": xids}
    if busy.ecc_uncorrected:
        raise Wrong(
            f"{busy.ecc_uncorrected} uncorrected ECC errors since the driver was loaded", data
        )
    if (busy.throttle or 0) & nvml.HARMFUL:
        raise Wrong(f"throttled: {', '.join(nvml.reasons(busy.throttle or 0))}", data)
    if xids:
        raise Wrong(f"Xid {xids[0]} while multiplying", data)
    return Passed(
        f"SM {busy.sm_mhz} MHz, {busy.power_w} W, {busy.temperature_c} C under load; ECC "
        f"{busy.ecc_uncorrected}; throttle {nvml.reasons(busy.throttle or 0) or 'none'}",
        data,
    )


def memory(context: Context) -> Passed:
    """A copy moves at least 90 % of what other chips of this kind do."""
    del context
    import torch

    name = torch.cuda.get_device_name()
    rates = bandwidths()
    data: dict[str, Any] = {key: round(value / 1e12, 3) for key, value in rates.items()}
    data["unit"] = "TB/s, bytes read plus bytes written"
    peak = PEAKS.get(name)
    best = max(rates["own_copy"], rates["torch_copy"])
    if peak is None:
        return Passed(f"copy {best / 1e12:.2f} TB/s; no rate is known for a {name}", data)
    data["share_of_data_sheet"] = round(best / peak["memory"], 3)
    data["share_of_others"] = round(best / peak["copy"], 3)
    text = f"copy {best / 1e12:.2f} TB/s, read {rates['own_read'] / 1e12:.2f} TB/s"
    text += f": {best / peak['memory']:.0%} of the data sheet"
    if best < LEAST_OF_COPY * peak["copy"]:
        raise Wrong(f"{text}; others of this kind copy {peak['copy'] / 1e12:.1f}", data)
    return Passed(text, data)


def bandwidths(size: int = 4 << 30) -> dict[str, float]:
    """Bytes a second of a large copy (ours and torch's) and of a large read."""
    import torch

    from kernels_check.cuda.driver import Module, pointer

    module = Module("probe.cu")
    source = torch.randint(-(2**31), 2**31 - 1, (size // 4,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    sink = torch.zeros(1, dtype=torch.int32, device="cuda")
    vectors = ctypes.c_longlong(size // 16)
    blocks = size // 16 // 2048

    def own_copy() -> None:
        arguments = [pointer(target), pointer(source), vectors]
        module.launch(module.function("copy_vectors"), (blocks,), 512, arguments)

    def own_read() -> None:
        arguments = [pointer(sink), pointer(source), vectors]
        module.launch(module.function("read_vectors"), (blocks,), 512, arguments)

    work = {"own_copy": (own_copy, 2), "torch_copy": (lambda: target.copy_(source), 2),
            "own_read": (own_read, 1)}  # fmt: skip
    rates = {}
    for name, (call, passes) in work.items():
        # Not from a graph: there a copy of torch's goes to another engine of the chip.
        rates[name] = passes * size / timing.direct_seconds(call)
    if not bool((target[:: 1 << 20] == source[:: 1 << 20]).all()):
        raise Wrong("the copy did not copy")
    return rates


def tensor_cores(context: Context) -> Passed:
    """Matrix rates on random data.

    Our own loop of the warp instruction, bf16 and FP8 by the library.
    """
    import torch

    from kernels_check.cuda.driver import Module, pointer

    module = Module("probe.cu")
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    sink = torch.zeros(1, device="cuda")
    rounds, blocks = 4096, processors * 4

    def loop() -> None:
        arguments = [pointer(sink), ctypes.c_int(rounds), ctypes.c_uint(context.seed)]
        module.launch(module.function("mma_rounds"), (blocks,), 256, arguments)

    rates = {
        "own_mma_bf16": blocks * 8 * rounds * 8 * 2 * 16 * 8 * 16 / timing.seconds([loop], 0.2)
    }
    n = 8192
    a, b = (torch.randn((n, n), device="cuda").bfloat16() for _ in range(2))
    rates["matmul_bf16"] = 2 * n**3 / timing.seconds([lambda: a @ b], 0.2)
    a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
    one = torch.ones(1, device="cuda")

    def scaled() -> None:
        torch._scaled_mm(a8, b8, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

    rates["matmul_fp8"] = 2 * n**3 / timing.seconds([scaled], 0.2)
    peak = PEAKS.get(torch.cuda.get_device_name(), {})
    data: dict[str, Any] = {key: round(value / 1e12, 1) for key, value in rates.items()}
    data["unit"] = "TFLOP/s"
    shares = {}
    for name, rate in rates.items():
        top = peak.get("fp8" if name.endswith("fp8") else "bf16")
        if top:
            shares[name] = round(rate / top, 3)
    data["share_of_data_sheet"] = shares
    text = ", ".join(
        f"{name} {rate / 1e12:.0f}" + (f" ({shares[name]:.0%})" if name in shares else "")
        for name, rate in rates.items()
    )
    return Passed(f"TFLOP/s (share of the data sheet): {text}", data)


def median_ms(times: list[float]) -> float:
    """The median, in milliseconds."""
    return statistics.median(times) * 1000
