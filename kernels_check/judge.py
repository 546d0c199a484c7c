"""Is what an engine emitted for a case right.

The chain in float64, and each drawn token by its rule.
"""

from __future__ import annotations

from typing import Any, Protocol

from kernels_check.cases import GREEDY, PADDING, Case
from kernels_check.model import Wrong

NEAR = 1e-5
"""How near a uniform may be to its threshold before float32 may decide either way."""
NEAR_BLOCK = 1e-4
"""The same where the threshold is a difference of sums over the vocabulary."""


class Engine(Protocol):
    """An implementation under test and the randomness it will use."""

    name: str
    block: bool
    """It accepts by block verification, which looks at a request's drafts together."""
    seeded: bool
    """False: draw without a seed a request.

    Which is faster, where only distributions are judged.
    """

    def uniforms(self, lengths: list[int], seed: int) -> list[list[float]]:
        """The uniform of each drafted position, before the case is built."""
        ...

    def run(self, case: Case, seed: int) -> Any:
        """[requests, K + 1] token ids, -1 where nothing was emitted."""
        ...

    def drawn(self, case: Case, seed: int, request: int, position: int, weights: Any) -> Any:
        """[vocab] booleans.

        The tokens that its rule may draw from `weights`, rounding allowed for.
        """
        ...


def judge(engine: Engine, case: Case, out: Any, seed: int) -> int:
    """Count the positions looked at; `Wrong` at the first that is not as it must be."""
    import torch

    rows = case.logits.double()
    chances, best = _chances(case, rows), rows.argmax(-1).tolist()
    ratios = chances
    if engine.block:
        chances = block_thresholds(case, rows, chances)
    emitted = out.tolist()
    looked_at = 0
    fine, what = [], []
    for request, n in enumerate(case.lengths):
        got, first = emitted[request], case.first_row(request)
        where = f"{engine.name}, {case.name}, request {request} of {len(case.lengths)}"
        if engine.block and case.modes[request] != GREEDY:
            accepted, either = _block_accepted(case, request, chances[request])
        else:
            accepted, either = _accepted(case, request, best, chances)
        counted = next((i for i, token in enumerate(got) if token == PADDING), len(got)) - 1
        if counted != accepted and counted not in either:
            raise Wrong(f"{where}: {counted} of {n} drafts accepted, must be {accepted}; {got}")
        if got[:counted] != case.tokens[request][:counted]:
            raise Wrong(f"{where}: emitted {got[:counted]}, drafted {case.tokens[request]}")
        if any(token != PADDING for token in got[counted + 1 :]):
            raise Wrong(f"{where}: something after the token that ends the step: {got}")
        token, row = got[counted], rows[first + counted]
        if not 0 <= token < case.vocab:
            raise Wrong(f"{where}: token {token} outside the vocabulary of {case.vocab}")
        if case.modes[request] == GREEDY:
            fine.append(row[token] == row.max())
        else:
            ratio = _prefix_ratio(ratios[request][:counted]) if engine.block else 1.0
            weights = _weights(case, request, counted, row, ratio)
            allowed = engine.drawn(case, seed, request, counted, weights)
            fine.append(allowed[token] & ((weights[token] > 0) | (weights.sum() == 0)))
        kind = "bonus" if counted == n else "recovered"
        what.append(f"{where}: {kind} token {token} at position {counted}")
        looked_at += counted + 1
    # Asked for at once: each answer waits for the GPU.
    for good, said in zip(torch.stack(fine).tolist(), what, strict=True):
        if not good:
            raise Wrong(f"{said} is not what its rule draws")
    return looked_at


def _chances(case: Case, rows: Any) -> list[list[float]]:
    """Each drafted token's p / q (0 for padding and for what cannot be drafted)."""
    import torch

    log_p = rows - torch.logsumexp(rows, -1, keepdim=True)
    log_q = None if case.draft_logits is None else torch.log_softmax(case.draft_logits.double(), -1)
    made: list[list[float]] = []
    for request, n in enumerate(case.lengths):
        first, token0 = case.first_row(request), case.first_token(request)
        ids = torch.tensor(case.tokens[request], device=rows.device, dtype=torch.long)
        safe = ids.clamp(min=0)
        index = torch.arange(n, device=rows.device)
        value = log_p[first + index, safe]
        if log_q is not None:
            value = value - log_q[token0 + index, safe]
        made.append(torch.where(ids < 0, torch.zeros_like(value), value.exp()).tolist())
    return made


def _accepted(
    case: Case, request: int, best: list[int], chances: list[list[float]]
) -> tuple[int, set[int]]:
    """How many drafts must be accepted, and which other counts rounding would excuse."""
    n, first = case.lengths[request], case.first_row(request)
    excused: set[int] = set()
    for i in range(n):
        token = case.tokens[request][i]
        if case.modes[request] == GREEDY:
            if token == PADDING or best[first + i] != token:
                return i, excused
            continue
        chance, u = chances[request][i], case.accept_u[request][i]
        if token == PADDING or u > chance:
            return i, excused
        if chance - u < NEAR * max(u, 1e-3):
            excused.add(i)
    return n, excused


def block_thresholds(case: Case, rows: Any, chances: list[list[float]]) -> list[list[float]]:
    """What each position's uniform must not exceed under block verification (Sun et al. 2024).

    With r the running product of p / q, never above 1: r itself at the last position, and before
    it the share of mass that r times the next row's p has beyond its q.
    """
    log_q = None if case.draft_logits is None else case.draft_logits.double()
    made: list[list[float]] = []
    for request, n in enumerate(case.lengths):
        first, token0, r, row = case.first_row(request), case.first_token(request), 1.0, []
        for i in range(n):
            r = min(r * chances[request][i], 1.0)
            if i == n - 1:
                row.append(r)
                continue
            p = rows[first + i + 1].softmax(-1)
            if log_q is None:
                left = r * float(1 - p[case.tokens[request][i + 1]])
            else:
                q = log_q[token0 + i + 1].softmax(-1)
                left = float((r * p - q).clamp(min=0).sum())
            row.append(left / (left + 1 - r) if left + 1 - r > 0 else 1.0)
        made.append(row)
    return made


def _block_accepted(case: Case, request: int, thresholds: list[float]) -> tuple[int, set[int]]:
    """The last position whose uniform is within its threshold; others that rounding excuses."""
    accepted, excused, certain = 0, set(), False
    for i in range(case.lengths[request] - 1, -1, -1):
        u, threshold = case.accept_u[request][i], thresholds[i]
        near = abs(threshold - u) < NEAR_BLOCK * max(u, 1e-3)
        if u <= threshold and not accepted:
            accepted = i + 1
        if near and not certain:
            excused.add(i + 1)
        certain = certain or (u <= threshold and not near)
        if certain:
            excused.add(i + 1)
            break
    if not certain:
        excused.add(0)
    return accepted, excused


def _prefix_ratio(ratios: list[float]) -> float:
    """The running product of p / q over what was accepted, never above 1."""
    r = 1.0
    for chance in ratios:
        r = min(r * chance, 1.0)
    return r


def _weights(case: Case, request: int, position: int, row: Any, ratio: float = 1.0) -> Any:
    """What the token that ends the step is drawn from, not made to sum to one."""
    import torch

    p = torch.softmax(row, -1)
    if position == case.lengths[request]:
        return p
    token = case.tokens[request][position]
    if case.draft_logits is None:
        if token != PADDING:
            p[token] = 0
        return p
    q = torch.softmax(case.draft_logits[case.first_token(request) + position].double(), -1)
    return (ratio * p - q).clamp(min=0)
