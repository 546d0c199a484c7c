"""Memory of one GPU, item by item with the formula, and what is left for the KV cache.

Weights and KV follow from shapes. Activations, CUDA graphs and what CUDA itself takes are
estimates; vLLM measures them at start and prints "Available KV cache memory".
"""

from __future__ import annotations

from dataclasses import dataclass

from speccli.core.sizing.gpus import GIB, Gpu
from speccli.core.sizing.shape import Shape

CUDA_BYTES = int(0.6 * GIB)
"""CUDA context and cuBLAS work space, one GPU."""
NCCL_BYTES = int(0.9 * GIB)
"""Buffers of collective communication, where tensor parallel is more than 1."""
GRAPH_BYTES_PER_LAYER = int(0.12 * (1 << 20))
"""One layer of one captured graph, in pieces or whole: fitted to what seven servers (8B BF16, 32B
FP8, five methods, vLLM 0.25.1) each held of one H200 besides weights and cache."""
SPLITS = 32
"""Parts that FlashAttention 3 may split a row's cache into inside a whole graph (vLLM's default):
their results, float32, are allocated at capture for the largest graph, once in the graphs' pool
and once outside it, by the run that warms up."""
FLASH_ATTENTION_3 = (9, 0)
"""The capability it is taken on; other GPUs' attention allocates nothing of the kind."""
MXFP4_BYTES = 5 * GIB
"""Working space of the MXFP4 kernels, over tensor parallel: vllm#23278 had 7.3 GiB besides weights
and KV cache at default settings, of which 2.2 are other items here; graphs did not count then."""
BLOCK = 16
"""Tokens in a block of the KV cache."""
PROMISED = (2048, 8192, 32768)
"""Lengths of a request for which the number that fits is told, beside max_model_len."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What is to be served how."""

    target: Shape
    draft: Shape | None
    draft_params: float | None
    """Parameters a published draft is said to have, where its shape is not all known."""
    k: int
    tensor_parallel: int
    draft_tensor_parallel: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_dtype: str
    utilization: float
    graphs: int
    """CUDA graphs captured of the target."""
    shares_embedding: bool = False
    """An EAGLE head uses the target's embedding."""
    keeps_draft_logits: bool = False
    """draft_sample_method probabilistic."""
    draft_graphs: int = 0
    """Captured of the draft."""
    full_tokens: int = 0
    """Of the largest graph that holds a whole step; 0: there is none."""


@dataclass(frozen=True, slots=True)
class Item:
    """One part, in bytes on one GPU."""

    name: str
    bytes: int
    formula: str
    estimate: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """All parts, and what remains."""

    total: int
    budget: int
    items: tuple[Item, ...]
    kv_cache: int
    """What remains for the KV cache; negative: it does not fit."""
    kv_per_token: int
    kv_per_request: int
    """Layers with a sliding window: a request's share, whatever its length."""
    kv_tokens: int
    concurrent_requests: int
    """Requests of max_model_len tokens at once."""
    concurrent_at: tuple[tuple[int, int], ...]
    """(tokens of a request, requests at once)."""


def memory(gpu: Gpu, demand: Demand) -> Memory:
    """What one GPU holds."""
    budget = int(gpu.memory_bytes * demand.utilization)
    items = [item for item in (*_weights(demand), *_working(gpu, demand)) if item.bytes]
    left = budget - sum(item.bytes for item in items)
    each = _kv_per_token(demand)
    window = demand.target.kv_window_bytes(demand.tensor_parallel, demand.kv_dtype)
    room = max(0, left - window * demand.max_num_seqs)
    tokens = room // each // BLOCK * BLOCK if each else 0
    lengths = sorted({n for n in PROMISED if n < demand.max_model_len} | {demand.max_model_len})
    fits = tuple((n, max(0, left) // (n * each + window)) for n in lengths)
    return Memory(
        total=gpu.memory_bytes,
        budget=budget,
        items=tuple(items),
        kv_cache=left,
        kv_per_token=each,
        kv_per_request=window,
        kv_tokens=tokens,
        concurrent_requests=fits[-1][1],
        concurrent_at=fits,
    )


def _kv_per_token(demand: Demand) -> int:
    target = demand.target.kv_bytes_per_token(demand.tensor_parallel, demand.kv_dtype)
    if demand.draft is None:
        return target
    return target + demand.draft.kv_bytes_per_token(demand.draft_tensor_parallel, demand.kv_dtype)


def _weights(demand: Demand) -> list[Item]:
    target, over = demand.target, demand.tensor_parallel
    what = f"{target.params / 1e9:.1f}B parameters, {target.quantization}, over {over} GPU"
    items = [Item("target weights", int(target.weight_bytes(over)), what)]
    draft = demand.draft
    if draft is None:
        return items
    params = demand.draft_params or float(draft.params)
    size = params * 2 if demand.draft_params else draft.weight_bytes(1)
    if demand.shares_embedding:
        params -= draft.embedding_params
        size -= draft.embedding_params * 2
    shared = " and the target's embedding" if demand.shares_embedding else ""
    formula = f"{params / 1e9:.2f}B parameters{shared}, over {demand.draft_tensor_parallel} GPU"
    items.append(Item("draft weights", int(size / demand.draft_tensor_parallel), formula))
    return items


def _working(gpu: Gpu, demand: Demand) -> list[Item]:
    target, over, tokens = demand.target, demand.tensor_parallel, demand.max_num_batched_tokens
    wide = 3 * target.intermediate / over
    if target.moe:
        wide = target.active_experts * (wide + target.hidden)
    activation = int(tokens * (4 * target.hidden + wide) * 2)
    rows = demand.max_num_seqs * (demand.k + 1)
    kept = demand.max_num_seqs * demand.k * target.vocab * 4 if demand.keeps_draft_logits else 0
    experts = f"{target.active_experts} x (3 x {target.intermediate}/{over} + {target.hidden})"
    inner = experts if target.moe else f"3 x {target.intermediate}/{over}"
    return [
        Item(
            "activations",
            activation,
            f"{tokens} batched tokens x (4 x {target.hidden} + {inner}) x 2 B",
            estimate=True,
        ),
        Item(
            "logits",
            rows * target.vocab * 4 + kept,
            f"{demand.max_num_seqs} requests x {demand.k + 1} rows x {target.vocab} x 4 B"
            + (" + draft logits" if kept else ""),
            estimate=True,
        ),
        _graphs(gpu, demand),
        Item(
            "CUDA, NCCL",
            CUDA_BYTES + (NCCL_BYTES if over > 1 else 0),
            "0.6 GiB" + (" + 0.9 GiB, tensor parallel" if over > 1 else ""),
            estimate=True,
        ),
        Item(
            "MXFP4 kernels",
            MXFP4_BYTES // over if target.quantization == "mxfp4" else 0,
            f"5 GiB / {over} (vllm#23278)",
            estimate=True,
        ),
    ]


def _graphs(gpu: Gpu, demand: Demand) -> Item:
    target, draft, over = demand.target, demand.draft, demand.tensor_parallel
    layers = demand.graphs * target.layers
    formula = f"{demand.graphs} graphs x {target.layers} layers"
    if draft is not None and demand.draft_graphs:
        layers += demand.draft_graphs * draft.layers
        formula = f"({formula} + {demand.draft_graphs} x {draft.layers} of the draft)"
    size = layers * GRAPH_BYTES_PER_LAYER
    formula += " x 0.12 MiB"
    if demand.full_tokens and gpu.capability == FLASH_ATTENTION_3:
        heads = max(1, target.heads // over)
        size += 2 * SPLITS * heads * demand.full_tokens * (target.head_dim + 1) * 4
        formula += (
            f" + 2 x {SPLITS} splits x {heads} heads x {demand.full_tokens} tokens"
            f" x ({target.head_dim} + 1) x 4 B"
        )
    return Item("CUDA graphs", size, formula, estimate=True)
