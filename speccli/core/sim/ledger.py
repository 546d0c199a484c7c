"""What one engine process has counted since it started: the numbers behind its /metrics."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

from speccli.core.sim import families

TOKEN_HISTOGRAMS: Final = (
    "request_prompt",
    "request_generation",
    "request_max_generation",
    "request_max_tokens",
    "request_computed",
)
FIXED_HISTOGRAMS: Final = {
    "iteration": families.ITERATION_LADDER,
    "request_n": families.SMALL_LADDER,
    "request_preemptions": families.PREEMPTION_LADDER,
    "ttft": families.TTFT_LADDER,
    "itl": families.ITL_LADDER,
    "tpot": families.ITL_LADDER,
    "e2e": families.REQUEST_LADDER,
    "queue": families.REQUEST_LADDER,
    "inference": families.REQUEST_LADDER,
    "prefill": families.REQUEST_LADDER,
    "decode": families.REQUEST_LADDER,
}
REASONS: Final = ("stop", "length", "abort", "error", "repetition")
BLOCK: Final = 16


class Histogram:
    """A Prometheus histogram that counts each observation once and accumulates when read."""

    __slots__ = ("counts", "edges", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count one value, several times over when several requests saw the same."""
        self.counts[bisect_left(self.edges, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self.counts)

    def samples(self) -> list[float]:
        """Return the page's numbers: cumulative buckets up to +Inf, then count, then sum."""
        cumulative: list[float] = list(accumulate(self.counts))
        cumulative.append(cumulative[-1])
        cumulative.append(self.total)
        return cumulative


class Ledger:
    """Counters, gauges and histograms of one engine process.

    Acceptance is kept as one number per possible outcome (how many steps accepted 0, 1, … K
    tokens), from which drafts, accepted tokens and the per-position counts all follow, so that
    they cannot disagree.
    """

    __slots__ = (
        "accepted_steps",
        "cached_tokens",
        "cut_tokens",
        "draft_tokens",
        "finished",
        "generation_tokens",
        "histograms",
        "kv_usage",
        "preemptions",
        "prefix_hits",
        "prefix_queries",
        "prompt_tokens",
        "rejections",
        "running",
        "waiting",
    )

    def __init__(self, k: int, max_model_len: int) -> None:
        self.accepted_steps = [0] * (k + 1)
        self.draft_tokens = 0
        self.cut_tokens = 0
        self.generation_tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self.rejections = 0
        self.finished = dict.fromkeys(REASONS, 0)
        self.running = 0
        self.waiting = 0
        self.kv_usage = 0.0
        tokens = families.token_ladder(max_model_len)
        self.histograms = {name: Histogram(tokens) for name in TOKEN_HISTOGRAMS}
        for name, edges in FIXED_HISTOGRAMS.items():
            self.histograms[name] = Histogram(edges)

    @property
    def drafts(self) -> int:
        """Verify steps of one request that had a draft."""
        return sum(self.accepted_steps)

    @property
    def accepted_tokens(self) -> int:
        """Draft tokens that the target agreed with; the bonus token is not among them."""
        return sum(length * steps for length, steps in enumerate(self.accepted_steps))

    @property
    def accepted_per_position(self) -> list[int]:
        """Steps that accepted the draft token at each position."""
        return list(accumulate(reversed(self.accepted_steps[1:])))[::-1]

    def values(self, family: families.Family) -> list[float]:
        """Return the numbers of one family in the order of its samples on the page."""
        if family.kind == "histogram":
            return self.histograms[family.source].samples()
        if family.source == "accepted_per_position":
            return [float(steps) for steps in self.accepted_per_position]
        if family.labels is not None:
            return self._vector(family.source, family.labels[1])
        return [self._scalar(family.source)]

    def _vector(self, source: str, labels: tuple[str, ...]) -> list[float]:
        if source == "finished":
            return [float(self.finished[reason]) for reason in labels]
        first = {
            "waiting_by_reason": float(self.waiting),
            "awake": 1.0,
            "cached_by_tier": float(self.cached_tokens),
            "rejections": float(self.rejections),
        }
        if source == "prompt_by_source":
            cached = float(self.cached_tokens)
            return [self.prompt_tokens - cached, cached, 0.0]
        return [first[source], *([0.0] * (len(labels) - 1))]

    def _scalar(self, source: str) -> float:
        if source == "zero":
            return 0.0
        if source == "prefix_query_blocks":
            return float(self.prefix_queries // BLOCK)
        if source == "prefix_hit_blocks":
            return float(self.prefix_hits // BLOCK)
        value = getattr(self, source)
        return float(value)
