"""Minutes of verify steps.

Long contexts with shared blocks, many requests; jitter, memory and clocks.
"""

from __future__ import annotations

import time
from typing import Any

from kernels_check.checks import attention, graphs, rejection
from kernels_check.cuda import nvml
from kernels_check.model import Context, Passed, Wrong, missing

JITTER = 3.0
"""p99 over the median of a step that always does the same."""
GROWTH = 64 << 20


def soak(context: Context) -> Passed:
    """A step is eight layers of attention over 12-21 thousand shared tokens, and the sampler."""
    import torch

    try:
        from vllm.vllm_flash_attn import flash_attn_varlen_func
    except ImportError as error:
        raise missing("vLLM's FlashAttention", error) from error
    rows = 6
    before = [12000 + (i * 1499) % 9000 for i in range(6)]
    batch = attention.make(attention.SHAPES[1], 16, rows, before, context.seed)
    shared = min(batch.table.shape[1], 600)
    batch.table[:, :shared] = batch.table[0, :shared]
    engine: Any = rejection.engine_of("vllm-v2")
    case = rejection.make(engine, {"mode": "random"}, 5, 6, 151936, context.seed, "cuda")
    sampler = graphs._prepared(engine, case, context.seed)
    out, starts, used = torch.zeros_like(batch.q), batch.starts, batch.used

    def step() -> None:
        for _ in range(8):
            flash_attn_varlen_func(
                q=batch.q, k=batch.k, v=batch.v, out=out, cu_seqlens_q=starts,
                max_seqlen_q=rows, seqused_k=used, max_seqlen_k=max(batch.lengths),
                softmax_scale=batch.shape.size**-0.5, causal=True,
                block_table=batch.table, fa_version=3,
            )  # fmt: skip
        sampler()

    return _watch(step, sampler, float(context.options.get("minutes", 1.0)), out)


def _watch(step: Any, sampler: Any, minutes: float, out: Any) -> Passed:
    import torch

    reader = nvml.Nvml()
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    first, wanted = sampler.out.clone(), out.clone()
    start_used = torch.cuda.memory_allocated()
    times: list[float] = []
    readings = [reader.read()]
    until = time.monotonic() + minutes * 60
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    while time.monotonic() < until:
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(float(begin.elapsed_time(end)))
        if len(times) % 500 == 0:
            readings.append(reader.read())
            if not (torch.equal(first, sampler.out) and torch.equal(wanted, out)):
                raise Wrong(f"step {len(times)} differs from the first one")
    readings.append(reader.read())
    return _conclude(times, readings, torch.cuda.memory_allocated() - start_used, reader.xids(0.1))


def _conclude(
    times: list[float], readings: list[Any], grown: int, xids: list[int] | None
) -> Passed:
    ordered = sorted(times)
    at = {
        name: ordered[int(len(ordered) * q)]
        for name, q in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
    }
    throttle = 0
    for reading in readings:
        throttle |= reading.throttle or 0
    # What does not come from torch's allocator (a kernel's own workspace) only the chip tells of.
    used = [r.memory_used for r in (readings[0], readings[-1]) if r.memory_used is not None]
    grown = max(grown, used[-1] - used[0]) if len(used) == 2 else grown
    data = {
        "steps": len(times),
        "ms": {**{name: round(t, 4) for name, t in at.items()}, "max": round(ordered[-1], 4)},
        "memory_grown": grown,
        "throttle": nvml.reasons(throttle),
        "sm_mhz": [min(r.sm_mhz or 0 for r in readings), max(r.sm_mhz or 0 for r in readings)],
        "xids": xids,
    }
    text = (
        f"{len(times)} steps, p50 {at['p50']:.3f} ms, p99 {at['p99']:.3f}, worst {ordered[-1]:.3f};"
        f" memory grown by {grown} bytes; throttle {nvml.reasons(throttle) or 'none'}; Xid {xids}"
    )
    if throttle & nvml.HARMFUL:
        raise Wrong(f"throttled; {text}", data)
    if xids:
        raise Wrong(f"Xid {xids[0]}; {text}", data)
    if grown > GROWTH:
        raise Wrong(f"memory grows; {text}", data)
    if at["p99"] > JITTER * at["p50"]:
        raise Wrong(f"p99 is more than {JITTER:.0f} times the median; {text}", data)
    return Passed(text, data)
