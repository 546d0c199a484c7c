"""Attention of a verify step, quantized products and expert layers, in float64."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kernels_check.reference.sampling import Floats, softmax


def attention(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    window: int | None = None,
) -> Floats:
    """One request: the last `len(q)` positions look at everything up to themselves.

    q: [rows, heads, d]; k, v: [positions, kv_heads, d]. Query head h reads key head h * kv / heads.
    `window`: a position sees itself and that many before it.
    """
    queries, keys = np.asarray(q, np.float64), np.asarray(k, np.float64)
    values = np.asarray(v, np.float64)
    rows, heads, d = queries.shape
    positions, kv_heads, _ = keys.shape
    group = heads // kv_heads
    out = np.empty_like(queries)
    mine = np.arange(positions - rows, positions)[:, None]
    theirs = np.arange(positions)[None, :]
    seen = theirs <= mine
    if window is not None:
        seen &= theirs >= mine - window
    for h in range(heads):
        scores = queries[:, h] @ keys[:, h // group].T / math.sqrt(d)
        out[:, h] = softmax(np.where(seen, scores, -np.inf)) @ values[:, h // group]
    return out


def experts(
    x: npt.ArrayLike,
    up: npt.ArrayLike,
    down: npt.ArrayLike,
    weights: npt.ArrayLike,
    chosen: npt.NDArray[np.int64],
) -> Floats:
    """A mixture's output: silu(gate) * up of each chosen expert, weighed.

    x: [tokens, hidden]; up: [experts, 2 * inner, hidden], the gate first;
    down: [experts, hidden, inner].
    """
    inputs, w1 = np.asarray(x, np.float64), np.asarray(up, np.float64)
    w2, share = np.asarray(down, np.float64), np.asarray(weights, np.float64)
    out = np.zeros_like(inputs)
    inner = w1.shape[1] // 2
    for token, picks in enumerate(chosen):
        for slot, expert in enumerate(picks):
            both = w1[expert] @ inputs[token]
            gate, rest = both[:inner], both[inner:]
            out[token] += share[token, slot] * (w2[expert] @ (gate / (1 + np.exp(-gate)) * rest))
    return out


def route(logits: npt.ArrayLike, k: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The k most likely experts of each token, their softmax weights made to sum to one."""
    probabilities = softmax(logits)
    chosen = np.argsort(-probabilities, axis=-1, kind="stable")[:, :k]
    weights = np.take_along_axis(probabilities, chosen, axis=-1)
    return weights / weights.sum(axis=-1, keepdims=True), chosen
