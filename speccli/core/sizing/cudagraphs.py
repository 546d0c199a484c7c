"""Which decode batches run in a CUDA graph, and the flag that covers the ones that do not.

A decode step of b requests is b x (K + 1) tokens; a graph was captured for some numbers of tokens.
Past the largest the step runs eager, several times slower (vllm#54933: 25 against 133 tok/s).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from speccli.core.engines.vllm_graphs import CEILING, Rules

Mode = Literal["full", "padded", "piecewise", "eager"]
Schedule = Sequence[tuple[int, int, int]]

TYPICAL = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024)
"""Batches shown, as far as max_num_seqs goes; it is always the last one."""


@dataclass(frozen=True, slots=True)
class Row:
    """One batch size."""

    batch: int
    tokens: int
    captured: int | None
    """The graph's tokens; None: no graph."""
    mode: Mode
    """full: a graph of just this size. padded: of a larger one. piecewise: attention outside."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What an engine captures."""

    sizes: tuple[int, ...]
    """In tokens, ascending, after whatever the runner makes of them."""
    full: tuple[int, ...]
    """Sizes that serve a uniform decode step as one graph."""
    query: int
    dispatch: str
    full_at: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The same by K + 1, where K changes with the batch."""

    def _any_full(self) -> tuple[int, ...]:
        if len(self.full_at) < 2:
            return self.full
        return tuple(sorted({size for sizes in self.full_at.values() for size in sizes}))

    def row(self, batch: int, query: int | None = None) -> Row:
        """What a decode step of `batch` requests runs as."""
        width = query or self.query
        tokens = batch * width
        own = self.full_at.get(width, self.full)
        full = _next(self._any_full(), tokens)
        if full is not None and full not in own:
            full = None  # the next graph is another K's: vLLM does not look further
        any_ = _next(self.sizes, tokens)
        if self.dispatch == "nearest" and full is not None and any_ is not None and any_ < full:
            full = None
        if full is not None:
            return Row(batch, tokens, full, "full" if full == tokens else "padded")
        return Row(batch, tokens, any_, "eager" if any_ is None else "piecewise")


def captured(
    rules: Rules,
    *,
    k: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    explicit: Sequence[int] | None = None,
    schedule: Schedule | None = None,
    eager: bool = False,
) -> Captured:
    """What is captured, by default or of an explicit list of sizes."""
    query = k + 1
    if eager:
        return Captured((), (), query, rules.dispatch)
    if explicit:
        sizes = sorted({size for size in explicit if size <= max_num_batched_tokens})
    else:
        sizes = _default(rules, query, max_num_seqs, max_num_batched_tokens, schedule)
    ceiling = sizes[-1] if sizes else 0
    if rules.piecewise_only:
        return Captured(tuple(sizes), (), query, rules.dispatch)
    if rules.dispatch == "rounded" and query > 1:
        sizes = _rounded(sizes, query, ceiling)
        full = [size for size in sizes if query <= size <= max_num_seqs * query]
        return Captured(tuple(sizes), tuple(full), query, rules.dispatch)
    widths = _tiers(schedule, k, max_num_seqs) if schedule else {query: max_num_seqs}
    full_at = {
        width: tuple(_rounded(sizes, width, min(ceiling, max_num_seqs * width))) for width in widths
    }
    widest = full_at.get(query) or full_at[max(full_at)]
    return Captured(tuple(sizes), widest, query, rules.dispatch, full_at)


def _rounded(sizes: Sequence[int], query: int, ceiling: int) -> list[int]:
    up = {-(-size // query) * query for size in sizes}
    return sorted(size for size in up if size <= ceiling)


def _default(
    rules: Rules, query: int, max_seqs: int, max_tokens: int, schedule: Schedule | None
) -> list[int]:
    ceiling = min(max_seqs * query * 2, CEILING)
    decode: list[int] = []
    if query > 1 and rules.appends_decode_sizes:
        tiers = _tiers(schedule, query - 1, max_seqs) if schedule else {query: max_seqs}
        decode = [
            count * width
            for width, widest in tiers.items()
            for count in counts(min(widest, CEILING))
            if count * width <= ceiling
        ]
    elif query == 1 and rules.appends_max_seqs and max_seqs <= ceiling:
        decode = [max_seqs]
    ceiling = min(ceiling, max_tokens)
    ladder = [size for size in (1, 2, 4) if size <= ceiling]
    ladder += range(8, min(ceiling + 1, 256), 8)
    ladder += range(256, ceiling + 1, 16)
    if max_tokens <= ceiling:
        ladder.append(max_tokens)
    return sorted({*ladder, *(size for size in decode if size <= max_tokens)})


def _tiers(schedule: Schedule, k: int, max_seqs: int) -> dict[int, int]:
    """The widest batch at each K + 1 of a schedule; gaps and the tail carry the K before."""
    widest: dict[int, int] = {}
    for batch, each in enumerate(dense(schedule, k, max_seqs), start=1):
        widest[each + 1] = batch
    return widest


def dense(schedule: Schedule, k: int, max_seqs: int) -> list[int]:
    """K for each batch size from 1 to `max_seqs`."""
    rows = sorted(schedule)
    found, current, place = [], rows[0][2], 0
    for batch in range(1, max_seqs + 1):
        while place < len(rows) and rows[place][0] <= batch:
            current = rows[place][2]
            place += 1
        found.append(min(current, k))
    return found


def counts(most: int) -> list[int]:
    """Numbers of requests that vLLM would capture: 1, 2, 4, eights to 256, sixteens above."""
    found = [n for n in (1, 2, 4) if n <= most]
    found += range(8, min(most + 1, 256), 8)
    found += range(256, most + 1, 16)
    return sorted({*found, most})


def table(
    graphs: Captured, max_num_seqs: int, schedule: Schedule | None = None, k: int = 0
) -> list[Row]:
    """The rows worth showing, the largest batch last; a schedule's K is each batch's own."""
    batches = [*(batch for batch in TYPICAL if batch < max_num_seqs), max_num_seqs]
    if not schedule:
        return [graphs.row(batch) for batch in batches]
    by_batch = dense(schedule, k, max_num_seqs)
    return [graphs.row(batch, by_batch[batch - 1] + 1) for batch in batches]


def uncovered(
    graphs: Captured, max_num_seqs: int, schedule: Schedule | None = None, k: int = 0
) -> tuple[list[int], list[int]]:
    """Batches up to `max_num_seqs` that run eager, and that run piecewise."""
    eager, piecewise = [], []
    by_batch = dense(schedule, k, max_num_seqs) if schedule else None
    for batch in range(1, max_num_seqs + 1):
        mode = graphs.row(batch, by_batch[batch - 1] + 1 if by_batch else None).mode
        if mode == "eager":
            eager.append(batch)
        elif mode == "piecewise":
            piecewise.append(batch)
    return eager, piecewise


def covering(k: int, max_num_seqs: int, schedule: Schedule | None = None) -> list[int]:
    """Sizes that hold every batch up to `max_num_seqs` in a full graph."""
    tiers = _tiers(schedule, k, max_num_seqs) if schedule else {k + 1: max_num_seqs}
    return sorted({n * width for width, widest in tiers.items() for n in counts(widest)})


def _next(sizes: Sequence[int], tokens: int) -> int | None:
    place = bisect_left(sizes, tokens)
    return sizes[place] if place < len(sizes) else None
