"""Verification of drafted tokens (Leviathan et al. 2023, Chen et al. 2023), in float64.

For a token d drafted with probability q(d) where the target has p(d): accept with probability
min(1, p(d) / q(d)). The first rejected position emits a token of the residual max(p - q, 0), made
to sum to one; if nothing was rejected, a bonus token of the target's next distribution follows.
What is emitted then has the target's distribution exactly, which `emitted` computes and the tests
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

PADDING = -1
"""A drafted id that stands for no token (a padded slot): never accepted."""


def softmax(logits: npt.ArrayLike) -> Floats:
    """Over the last axis.

    Minus infinity is probability zero, and so is a row that has nothing else.
    """
    x = np.asarray(logits, dtype=np.float64)
    top = np.max(x, axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(x - top)
    total = np.sum(weights, axis=-1, keepdims=True)
    return np.asarray(np.divide(weights, total, out=np.zeros_like(weights), where=total > 0))


def one_hot(token: int, vocab: int) -> Floats:
    """The distribution of a draft that was taken greedily (or of a padded slot: nothing)."""
    q = np.zeros(vocab)
    if token >= 0:
        q[token] = 1.0
    return q


def acceptance(p: Floats, q: Floats, token: int) -> float:
    """The probability that `token`, drafted, is accepted. A token that cannot be drafted is not."""
    if token == PADDING or q[token] <= 0:
        return 0.0
    return float(min(1.0, p[token] / q[token]))


def residual(p: Floats, q: Floats) -> Floats:
    """What a rejected position is drawn from; p itself where nothing is left of it (p = q)."""
    left = np.maximum(p - q, 0.0)
    total = left.sum()
    return left / total if total > 0 else p


def emitted(p: Floats, q: Floats) -> Floats:
    """The distribution of the token emitted at one position: by the theorem, p."""
    overlap = np.minimum(p, q)
    return np.asarray(overlap + (1.0 - overlap.sum()) * residual(p, q))


@dataclass(frozen=True)
class Step:
    """One request's verification: everything random is given."""

    target: Floats
    """[K + 1, vocab]: the target's distribution at each drafted position and at the bonus one."""
    draft: Floats | None
    """[K, vocab], or None where each draft is certain of its token (greedy, n-gram)."""
    tokens: Sequence[int]
    """The K drafted tokens."""
    uniforms: Sequence[float]
    """One a drafted position."""


def verify(step: Step, pick: Callable[[int, Floats], int]) -> list[int]:
    """The tokens emitted; `pick(position, distribution)` draws the recovered or bonus token."""
    vocab = step.target.shape[-1]
    out: list[int] = []
    for i, token in enumerate(step.tokens):
        q = one_hot(token, vocab) if step.draft is None else step.draft[i]
        chance = acceptance(step.target[i], q, token)
        if chance > 0 and step.uniforms[i] <= chance:
            out.append(token)
            continue
        return [*out, pick(i, residual(step.target[i], q))]
    return [*out, pick(len(step.tokens), step.target[len(step.tokens)])]


def block_thresholds(step: Step) -> list[float]:
    """What each position's uniform must not exceed under block verification (Sun et al. 2024)."""
    vocab, k, made, r = step.target.shape[-1], len(step.tokens), [], 1.0
    q = [
        one_hot(token, vocab) if step.draft is None else step.draft[i]
        for i, token in enumerate(step.tokens)
    ]
    for i, token in enumerate(step.tokens):
        r = min(r * float(step.target[i][token] / q[i][token]), 1.0) if q[i][token] else 1.0
        if i == k - 1:
            made.append(r)
            continue
        left = float(np.maximum(r * step.target[i + 1] - q[i + 1], 0).sum())
        made.append(left / (left + 1 - r) if left + 1 - r > 0 else 1.0)
    return made


def verify_block(step: Step, pick: Callable[[int, Floats], int]) -> list[int]:
    """Block verification: everything up to the last position that is accepted stands."""
    vocab, k = step.target.shape[-1], len(step.tokens)
    accepted = 0
    for i, threshold in enumerate(block_thresholds(step)):
        if step.uniforms[i] <= threshold:
            accepted = i + 1
    out = list(step.tokens[:accepted])
    if accepted == k:
        return [*out, pick(k, step.target[k])]
    r = 1.0
    for i, token in enumerate(out):
        q = 1.0 if step.draft is None else float(step.draft[i][token])
        r = min(r * float(step.target[i][token]) / q, 1.0)
    q_next = one_hot(step.tokens[accepted], vocab) if step.draft is None else step.draft[accepted]
    left = np.maximum(r * step.target[accepted] - q_next, 0)
    return [*out, pick(accepted, left / left.sum())]


def verify_greedy(logits: npt.ArrayLike, tokens: Sequence[int]) -> list[int]:
    """Temperature 0: a token stands while it is the row's (first) largest logit."""
    best = np.argmax(np.asarray(logits), axis=-1)
    out: list[int] = []
    for i, token in enumerate(tokens):
        out.append(int(best[i]))
        if token != best[i]:
            return out
    return [*out, int(best[len(tokens)])]


def by_inversion(distribution: Floats, u: float) -> int:
    """The token whose interval of the cumulative distribution holds `u`."""
    upto = np.cumsum(distribution)
    return int(
        min(np.searchsorted(upto, u * upto[-1], side="right"), np.flatnonzero(distribution)[-1])
    )


def by_race(distribution: Floats, noise: Floats) -> int:
    """The token that wins an exponential race: largest p / noise."""
    return int(np.argmax(distribution / noise))


def keep_top_k(logits: npt.ArrayLike, k: int) -> npt.NDArray[np.bool_]:
    """What top-k keeps; everything equal to the k-th largest stays."""
    x = np.asarray(logits, dtype=np.float64)
    if k <= 0 or k >= x.size:
        return np.ones(x.shape, dtype=bool)
    return np.asarray(x >= np.sort(x)[-k])


def keep_top_p(logits: npt.ArrayLike, p: float) -> npt.NDArray[np.bool_]:
    """What nucleus sampling keeps.

    The fewest most likely tokens whose mass reaches p, never none.
    """
    probabilities = softmax(logits)
    order = np.argsort(-probabilities, kind="stable")
    before = np.cumsum(probabilities[order]) - probabilities[order]
    kept = np.zeros(probabilities.shape, dtype=bool)
    kept[order] = before < p
    kept[order[0]] = True
    return kept


def unpack_mask(words: npt.NDArray[np.int32], vocab: int) -> npt.NDArray[np.bool_]:
    """A grammar's bitmask as booleans: bit t % 32 of word t / 32 allows token t."""
    bits = np.unpackbits(words.astype("<i4").view(np.uint8), axis=-1, bitorder="little")
    return bits[..., :vocab].astype(bool)
