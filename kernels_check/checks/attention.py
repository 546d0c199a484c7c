"""Attention of a verify step.

K + 1 query rows a request over a paged cache, row by row and head by head.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_check.model import Context, NotHere, Passed, Wrong, missing
from kernels_check.reference import layers

WORST = 2e-2
"""Largest relative error of one (row, head): bf16 results of float32 sums land near 3e-3."""
WORST_FP8 = 8e-2
"""The same where the weights are rounded to FP8 too (3 bits: 2 to 4 per cent)."""
LENGTHS = (1, 15, 16, 17, 127, 128, 129, 300, 1024, 2049)
"""Tokens in the cache before the step: around every block size, and around the window."""


@dataclass(frozen=True)
class Shape:
    """Heads of one target."""

    name: str
    heads: int
    kv_heads: int
    size: int
    window: int | None = None
    sinks: bool = False


SHAPES = (
    Shape("70B, a quarter of 8 KV heads", 16, 2, 128),
    Shape("30B-A3B", 32, 4, 128),
    Shape("120B, full", 64, 8, 64, None, True),
    Shape("120B, window 128", 64, 8, 64, 128, True),
)

WINDOWED = Shape("30B-A3B, window 128", 32, 4, 128, 128)
FP8_SHAPES = (*SHAPES[:2], WINDOWED, SHAPES[3])
SCALES = (0.013, 0.02, 0.009)
"""Of FP8 queries, keys and values: apart, so that none can stand for another."""

BLOCKS = (16, 32, 128)
ROWS = (1, 2, 4, 6, 8, 16)

Run = Callable[["Batch"], Any]


@dataclass
class Batch:
    """A paged batch on the GPU."""

    shape: Shape
    block: int
    rows: int
    """Query rows a request: K + 1."""
    lengths: list[int]
    """Positions of each request, its new rows included."""
    q: Any
    k: Any
    """[blocks, block, kv_heads, size]"""
    v: Any
    table: Any
    sinks: Any
    scales: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """What a stored query, key and value is to be multiplied by."""

    def descales(self) -> list[Any]:
        """The scales as vLLM hands them over: one number, seen as [requests, kv_heads]."""
        import torch

        size = (len(self.lengths), self.shape.kv_heads)
        return [torch.tensor([s], device="cuda").expand(size) for s in self.scales]

    @property
    def starts(self) -> Any:
        """[requests + 1] where each request's rows begin."""
        import torch

        return torch.arange(len(self.lengths) + 1, device="cuda", dtype=torch.int32) * self.rows

    @property
    def used(self) -> Any:
        """[requests] positions."""
        import torch

        return torch.tensor(self.lengths, device="cuda", dtype=torch.int32)


def flash3(context: Context) -> Passed:
    """FlashAttention 3, as vLLM carries it."""
    try:
        from vllm.vllm_flash_attn import flash_attn_varlen_func
    except ImportError as error:
        raise missing("vLLM's FlashAttention", error) from error
    fp8 = bool(context.options.get("fp8", False))

    def run(batch: Batch) -> Any:
        import torch

        out = torch.full_like(batch.q, math.nan, dtype=torch.bfloat16)
        window = [-1, -1] if batch.shape.window is None else [batch.shape.window - 1, 0]
        q_descale, k_descale, v_descale = batch.descales() if fp8 else (None, None, None)
        if context.options.get("swapped"):
            k_descale, v_descale = v_descale, k_descale
        flash_attn_varlen_func(
            q=batch.q, k=batch.k, v=batch.v, out=out, cu_seqlens_q=batch.starts,
            max_seqlen_q=batch.rows, seqused_k=batch.used, max_seqlen_k=max(batch.lengths),
            softmax_scale=batch.shape.size**-0.5, window_size=window,
            causal=bool(context.options.get("causal", True)),
            block_table=batch.table, fa_version=3, s_aux=batch.sinks,
            q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
        )  # fmt: skip
        return out

    return _grid(run, context, worst=WORST_FP8 if fp8 else WORST, shapes=_shapes(context))


def triton(context: Context) -> Passed:
    """VLLM's own Triton attention."""
    try:
        from vllm.v1.attention.ops.triton_unified_attention import unified_attention
        from vllm.v1.kv_cache_interface import KVQuantMode
    except ImportError as error:
        raise missing("vLLM's Triton attention", error) from error

    mode = KVQuantMode.FP8_PER_TENSOR if context.options.get("fp8") else KVQuantMode.NONE

    def run(batch: Batch) -> Any:
        import torch

        out = torch.full_like(batch.q, math.nan)
        _, k_descale, v_descale = batch.descales()
        window = (-1, -1) if batch.shape.window is None else (batch.shape.window - 1, 0)
        unified_attention(
            q=batch.q, k=batch.k, v=batch.v, out=out, cu_seqlens_q=batch.starts,
            max_seqlen_q=batch.rows, seqused_k=batch.used, max_seqlen_k=max(batch.lengths),
            softmax_scale=batch.shape.size**-0.5, causal=True, window_size=window,
            block_table=batch.table, softcap=0.0, q_descale=None,
            k_descale=k_descale, v_descale=v_descale, sinks=batch.sinks, kv_quant_mode=mode,
        )  # fmt: skip
        return out

    return _grid(run, context, fp8_queries=False, shapes=_shapes(context))


def flashinfer(context: Context) -> Passed:
    """FlashInfer's paged prefill, which vLLM verifies with where it is the backend."""
    import torch

    try:
        import flashinfer as library
    except ImportError as error:
        raise missing("FlashInfer", error) from error
    scratch = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    fp8 = bool(context.options.get("fp8", False))
    # Each kind of kernel is compiled for half a minute; a window covers what is within it too.
    shapes = (WINDOWED,) if fp8 else SHAPES[:2]

    def run(batch: Batch) -> Any:
        wrapper = library.BatchPrefillWithPagedKVCacheWrapper(scratch, "NHD", backend="fa2")
        blocks = [-(-n // batch.block) for n in batch.lengths]
        indices = torch.cat([batch.table[r, :n] for r, n in enumerate(blocks)])
        last = [(n - 1) % batch.block + 1 for n in batch.lengths]
        indptr = torch.tensor([0, *np.cumsum(blocks)], dtype=torch.int32, device="cuda")
        shape = batch.shape
        wrapper.plan(
            batch.starts, indptr, indices, torch.tensor(last, dtype=torch.int32, device="cuda"),
            shape.heads, shape.kv_heads, shape.size, batch.block, causal=True,
            window_left=-1 if shape.window is None else shape.window - 1,
            q_data_type=torch.bfloat16, kv_data_type=batch.k.dtype,
        )  # fmt: skip
        _, k_scale, v_scale = batch.scales
        return wrapper.run(batch.q, (batch.k, batch.v), k_scale=k_scale, v_scale=v_scale)

    try:
        first = make(shapes[0], 16, 2, [17], 0)
        run(quantized(first, queries=False) if fp8 else first)
    except Exception as error:
        raise NotHere(
            f"FlashInfer does not load here: {str(error).splitlines()[0][:160]}"
        ) from error
    return _grid(run, context, fp8_queries=False, shapes=shapes)


def make(shape: Shape, block: int, rows: int, before: list[int], seed: int) -> Batch:
    """Random queries, keys and values; blocks in random order; everything not used is NaN."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(seed)
    lengths = [n + rows for n in before]
    each = [-(-n // block) for n in lengths]
    total = sum(each) + 3
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))[: sum(each)]
    table = torch.zeros((len(before), max(each)), dtype=torch.int32)
    at = 0
    for request, n in enumerate(each):
        table[request, :n] = order[at : at + n]
        at += n

    def normal(*size: int) -> Any:
        return torch.randn(size, generator=generator, device="cuda").bfloat16()

    cache = []
    for _ in range(2):
        pages = torch.full(
            (total, block, shape.kv_heads, shape.size),
            math.nan,
            dtype=torch.bfloat16,
            device="cuda",
        )
        at = 0
        for n, blocks in zip(lengths, each, strict=True):
            flat = torch.zeros(
                (blocks * block, shape.kv_heads, shape.size), dtype=torch.bfloat16, device="cuda"
            )
            flat[:n] = normal(n, shape.kv_heads, shape.size)
            where = order[at : at + blocks].cuda()
            pages[where] = flat.view(-1, block, shape.kv_heads, shape.size)
            at += blocks
        cache.append(pages)
    sinks = normal(shape.heads) if shape.sinks else None
    q = normal(len(before) * rows, shape.heads, shape.size)
    return Batch(shape, block, rows, lengths, q, cache[0], cache[1], table.cuda(), sinks)


def quantized(batch: Batch, *, queries: bool) -> Batch:
    """The same batch with an FP8 cache (and FP8 queries), NaN where nothing may be read."""
    import torch

    scales = (SCALES[0] if queries else 1.0, *SCALES[1:])

    def stored(x: Any, scale: float) -> Any:
        return (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)

    q = stored(batch.q, scales[0]) if queries else batch.q
    k, v = stored(batch.k, scales[1]), stored(batch.v, scales[2])
    return dataclasses.replace(batch, q=q, k=k, v=v, scales=scales)


def expected(batch: Batch, request: int) -> Any:
    """One request in float64, on the GPU; the same sums as `reference.layers.attention`."""
    import torch

    n, rows, shape = batch.lengths[request], batch.rows, batch.shape
    pages = batch.table[request, : -(-n // batch.block)].long()
    k = _gathered(batch.k, pages)[:n] * batch.scales[1]
    v = _gathered(batch.v, pages)[:n] * batch.scales[2]
    group = shape.heads // shape.kv_heads
    q = batch.q[request * rows : (request + 1) * rows].double() * batch.scales[0]
    scores = torch.einsum("rhd,nhd->hrn", q, k.repeat_interleave(group, 1)) / math.sqrt(shape.size)
    mine = torch.arange(n - rows, n, device="cuda")[:, None]
    theirs = torch.arange(n, device="cuda")[None, :]
    seen = theirs <= mine
    if shape.window is not None:
        seen &= theirs > mine - shape.window
    scores = scores.masked_fill(~seen, -torch.inf)
    if batch.sinks is not None:
        sink = batch.sinks.double()[:, None, None].expand(-1, rows, 1)
        weights = torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]
    else:
        weights = torch.softmax(scores, -1)
    return torch.einsum("hrn,nhd->rhd", weights, v.repeat_interleave(group, 1))


def _gathered(cache: Any, pages: Any) -> Any:
    """The positions of some pages, in float64: [positions, kv_heads, size]."""
    import torch

    if cache.dtype == torch.float8_e4m3fn:  # torch cannot index these
        return cache.view(torch.uint8)[pages].view(cache.dtype).double().flatten(0, 1)
    return cache[pages].double().flatten(0, 1)


def _shapes(context: Context) -> tuple[Shape, ...]:
    return FP8_SHAPES if context.options.get("fp8") else SHAPES


def _grid(
    run: Run,
    context: Context,
    *,
    shapes: tuple[Shape, ...],
    fp8_queries: bool = True,
    worst: float = WORST,
) -> Passed:
    _reference_agrees(context.seed)
    fp8 = bool(context.options.get("fp8", False))
    found, steps, seed = 0.0, 0, context.seed
    blocks, depths = context.options.get("blocks", BLOCKS), context.options.get("rows", ROWS)
    for shape, block, rows in itertools.product(shapes, blocks, depths):
        seed += 1
        batch = make(shape, block, rows, list(LENGTHS), seed)
        if fp8:
            batch = quantized(batch, queries=fp8_queries)
        found = max(found, _compare(batch, run(batch), worst))
        steps += 1
    return Passed(
        f"{steps} batches; worst row and head off by {found:.1e} (bound {worst:.0e})",
        {"batches": steps, "worst_relative_error": found},
    )


def _compare(batch: Batch, out: Any, bound: float) -> float:
    """The largest relative error over requests, rows and heads."""
    import torch

    rows, errors = batch.rows, []
    for request in range(len(batch.lengths)):
        wanted = expected(batch, request)
        got = out[request * rows : (request + 1) * rows].double()
        errors.append((got - wanted).norm(dim=-1) / wanted.norm(dim=-1))
    off = torch.stack(errors).nan_to_num(nan=math.inf)
    worst = float(off.max())
    if worst > bound:
        request, place = divmod(int(off.argmax()), rows * batch.shape.heads)
        row, head = divmod(place, batch.shape.heads)
        raise Wrong(
            f"{batch.shape.name}, block {batch.block}, {rows} rows, "
            f"{batch.lengths[request]} positions: "
            f"row {row}, head {head} is off by {worst:.2e} (bound {bound:.0e})"
        )
    return worst


def _reference_agrees(seed: int) -> None:
    """The float64 sums used here against those that CI tests."""
    batch = make(Shape("small", 4, 2, 32, 7), 16, 3, [20], seed)
    pages = batch.table[0].long()
    k = batch.k[pages].reshape(-1, 2, 32)[:23].double().cpu().numpy()
    v = batch.v[pages].reshape(-1, 2, 32)[:23].double().cpu().numpy()
    wanted = layers.attention(batch.q.double().cpu().numpy(), k, v, window=6)
    if not np.allclose(expected(batch, 0).cpu().numpy(), wanted, atol=1e-12):
        raise Wrong("the two float64 references disagree")
