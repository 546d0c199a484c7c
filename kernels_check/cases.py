"""Verify steps to be judged: built so that it is known beforehand what each position must do.

The uniforms come first (an engine draws them as it will); then each drafted token's probability is
put on the wanted side of its uniform. So every engine gets every pattern of acceptance, edges
included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PADDING = -1
GREEDY, RANDOM = 0, 1


@dataclass
class Case:
    """One batch of requests. Tensors live where the engine wants them."""

    name: str
    vocab: int
    lengths: list[int]
    """Drafted tokens of each request; rows of `logits` are one more a request."""
    tokens: list[list[int]]
    modes: list[int]
    """GREEDY or RANDOM, a request."""
    accept_u: list[list[float]]
    logits: Any
    """[rows, vocab] float32."""
    draft_logits: Any
    """[drafted tokens, vocab] float32, or None where drafts are certain of their token."""
    k: int

    def first_row(self, request: int) -> int:
        """Where its rows begin."""
        return sum(self.lengths[:request]) + request

    def first_token(self, request: int) -> int:
        """Where its drafted tokens begin."""
        return sum(self.lengths[:request])

    @property
    def flat_tokens(self) -> list[int]:
        """Every drafted token, request after request."""
        return [token for row in self.tokens for token in row]


def ragged(k: int, batch: int, rng: np.random.Generator) -> list[int]:
    """Lengths: the first request is full, then none, one, K - 1 and whatever comes."""
    cycle = [k, 0, 1, max(k - 1, 0), k]
    return [cycle[i] if i < len(cycle) else int(rng.integers(0, k + 1)) for i in range(batch)]


def accepted_counts(lengths: Sequence[int], start: int) -> list[int]:
    """How many each request shall accept: 0, 1, all but one, all, in turn."""
    made = []
    for i, n in enumerate(lengths):
        made.append(min(n, (0, 1, max(n - 1, 0), n)[(i + start) % 4]))
    return made


def draft_tokens(
    lengths: Sequence[int],
    accepted: Sequence[int],
    vocab: int,
    rng: np.random.Generator,
    *,
    padded: bool = True,
) -> list[list[int]]:
    """Random ids with the edges among them.

    0, vocab - 1, and (`padded`) padding where a rejection is wanted.
    """
    made = []
    for request, (n, good) in enumerate(zip(lengths, accepted, strict=True)):
        row = [int(token) for token in rng.integers(0, vocab, n)]
        if n and request % 3 == 0:
            row[-1] = vocab - 1
        if n and request % 3 == 1:
            row[0] = 0
        if padded and good < n and request % 2 == 1:
            row[good] = PADDING
        made.append(row)
    return made


def build(
    *,
    k: int,
    vocab: int,
    lengths: list[int],
    accepted: list[int],
    tokens: list[list[int]],
    modes: list[int],
    accept_u: list[list[float]],
    with_draft: bool,
    seed: int,
    device: str,
) -> Case:
    """Logits under which each request accepts what is wanted."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    rows = sum(lengths) + len(lengths)

    def normal(n: int) -> Any:
        return torch.randn((n, vocab), generator=generator, device=device) * 2.5

    logits = normal(rows)
    draft = normal(max(sum(lengths), 1)) if with_draft else None
    case = Case("", vocab, lengths, tokens, modes, accept_u, logits, draft, k)
    row_of, column, ratio, wants_top = _wishes(case, accepted)
    if row_of:
        _steer(case, row_of, column, ratio, wants_top)
    return case


def _wishes(
    case: Case, accepted: Sequence[int]
) -> tuple[list[int], list[int], list[float], list[int]]:
    """For each drafted token that is one.

    Its row, its id, the ratio p / q wanted, or a top logit.
    """
    rows, columns, ratios, tops = [], [], [], []
    for request, n in enumerate(case.lengths):
        for i in range(n):
            token = case.tokens[request][i]
            if token == PADDING:
                continue
            good = i < accepted[request]
            u = case.accept_u[request][i]
            rows.append(case.first_row(request) + i)
            columns.append(token)
            ratios.append(u + 0.5 * (1 - u) if good else 0.5 * u)
            tops.append((1 if good else -1) if case.modes[request] == GREEDY else 0)
    return rows, columns, ratios, tops


def _steer(
    case: Case, rows: list[int], columns: list[int], ratios: list[float], tops: list[int]
) -> None:
    import torch

    device = case.logits.device
    row = torch.tensor(rows, device=device)
    column = torch.tensor(columns, device=device)
    wanted = torch.tensor(ratios, dtype=torch.float64, device=device)
    if case.draft_logits is not None:
        # A row of the target is as many further down as there are bonus rows above it.
        bonus_above = torch.tensor(_bonus_above(case, rows), device=device)
        q = torch.log_softmax(case.draft_logits.double(), -1)[row - bonus_above, column].exp()
        wanted = wanted * q
    wanted = wanted.clamp(1e-30, 1 - 1e-9)
    others = case.logits[row].double()
    others[torch.arange(len(rows), device=device), column] = -torch.inf
    rest = torch.logsumexp(others, -1)
    value = torch.log(wanted) - torch.log1p(-wanted) + rest
    top = others.amax(-1)
    sign = torch.tensor(tops, device=device)
    value = torch.where(sign > 0, top + 1, torch.where(sign < 0, top - 1, value))
    case.logits[row, column] = value.float()


def _bonus_above(case: Case, rows: Sequence[int]) -> list[int]:
    starts = [case.first_row(request) for request in range(len(case.lengths))]
    return [int(np.searchsorted(starts, row, side="right")) - 1 for row in rows]
