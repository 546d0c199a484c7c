"""What a simulated engine is: model, method, acceptance, cost of a step, traffic.

The figures are illustrative: they have the shape of a 70B model on four GPUs, not a measurement.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from speccli.core.sim.families import known_version
from speccli.core.sim.ledger import BLOCK

Method = Literal["eagle3", "p-eagle", "ngram", "draft_model", "mtp", "none"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)
PREFIX: Final = "SIMULATED/"

_DEFAULT_ACCEPTANCE: Final[dict[Method, float]] = {
    "eagle3": 0.74,
    "p-eagle": 0.74,
    "ngram": 0.90,
    "draft_model": 0.80,
    "mtp": 0.80,
    "none": 0.0,
}
_P_EAGLE_LATER: Final = 0.86
"""Parallel drafting guesses later positions without the earlier ones, so they are weaker."""
_NGRAM_MATCH: Final = 0.25
"""Share of steps in which the prompt or the text so far holds a match to draft from."""


def nearest(word: str, among: Sequence[str]) -> str:
    """Return the sentence part that names what was probably meant, or the choices."""
    close = difflib.get_close_matches(word, among, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"one of: {', '.join(among)}"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How often the target agrees with the draft."""

    conditional: tuple[float, ...]
    """Chance that position i is accepted, given that all before it were."""
    match: float = 1.0
    """Share of steps that have a draft at all; below 1 for n-gram only."""

    def __post_init__(self) -> None:
        if not all(0.0 <= chance <= 1.0 for chance in (*self.conditional, self.match)):
            raise ValueError(f"acceptance must lie in 0..1, got {self}")

    @property
    def unconditional(self) -> tuple[float, ...]:
        """Chance that a draft is accepted up to and including position i."""
        chances: list[float] = []
        running = 1.0
        for chance in self.conditional:
            running *= chance
            chances.append(running)
        return tuple(chances)

    @property
    def mean_accepted(self) -> float:
        """Accepted tokens per step with a draft, in the long run."""
        return sum(self.unconditional)

    @property
    def tokens_per_step(self) -> float:
        """Tokens a request gets per step, steps without a draft included."""
        return 1.0 + self.match * self.mean_accepted

    def scaled(self, every: float = 1.0, later: float = 1.0) -> Acceptance:
        """Return it with each chance multiplied, and those after position 0 once more."""
        return Acceptance(
            tuple(
                min(1.0, chance * every * (later if position else 1.0))
                for position, chance in enumerate(self.conditional)
            ),
            self.match,
        )


@dataclass(frozen=True, slots=True)
class StepCost:
    """How long an engine step takes: a fixed part, and a part for each token in it."""

    base_s: float = 0.022
    """Reading the weights once."""
    token_s: float = 0.0002
    """Each token verified or decoded."""
    prefill_token_s: float = 0.00005
    """Each prompt token computed."""
    context_token_s: float = 24e-9
    """Each token of context attended to."""
    draft_s: float = 0.0011
    """One pass of the draft."""
    jitter: float = 0.04
    """Relative spread of a step's duration (log-normal)."""

    def seconds(self, *, decode: float, prefill: float, context: float, passes: float) -> float:
        """Return the duration of a step before jitter."""
        return (
            self.base_s
            + self.token_s * decode
            + self.prefill_token_s * prefill
            + self.context_token_s * context
            + self.draft_s * passes
        )

    def scaled(self, factor: float) -> StepCost:
        """Return the same engine on a slower (factor > 1) or faster GPU."""
        return replace(
            self,
            base_s=self.base_s * factor,
            token_s=self.token_s * factor,
            prefill_token_s=self.prefill_token_s * factor,
            context_token_s=self.context_token_s * factor,
            draft_s=self.draft_s * factor,
        )


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests that come of themselves: open loop by rate, or closed loop with clients."""

    rate_per_s: float = 4.0
    """Poisson arrivals a second; unused when there are clients."""
    clients: int = 0
    """Clients that each keep one request in flight."""
    think_s: float = 0.0
    """Pause of a client between two requests."""
    prompt_mean: float = 512.0
    prompt_sigma: float = 0.6
    """Spread of prompt lengths (log-normal)."""
    output_mean: float = 256.0
    output_sigma: float = 0.5
    stop_share: float = 0.9
    """Requests that end by themselves rather than at max_tokens."""
    cached_share: float = 0.25
    """Share of a prompt found in the prefix cache."""


@dataclass(frozen=True, slots=True)
class SimConfig:
    """One simulated engine."""

    method: Method = "eagle3"
    k: int = 3
    acceptance: Acceptance = field(default_factory=lambda: default_acceptance("eagle3", 3))
    version: str = "0.32.0"
    model: str = f"{PREFIX}llama-3.3-70b"
    draft: str | None = f"{PREFIX}llama-3.3-70b-eagle3"
    engine: str = "0"
    """The label `engine`."""
    gpu: str = "H100"
    gpus: int = 4
    cost: StepCost = StepCost()
    traffic: Traffic = Traffic()
    max_num_seqs: int = 128
    max_num_batched_tokens: int = 8192
    max_model_len: int = 8192
    kv_tokens: int = 400_000
    """Room in the KV cache, in tokens."""
    max_queued_requests: int | None = None
    """Requests waiting beyond which a new one is turned away; None for no limit."""
    per_request_metrics: Literal["summary", "detailed"] | None = None
    """Whether answers carry `metrics.speculative_decoding`."""

    def __post_init__(self) -> None:
        known_version(self.version)
        if self.method not in METHODS:
            raise ValueError(f"unknown method {self.method!r}: {nearest(self.method, METHODS)}")
        if (self.method == "none") != (self.k == 0):
            raise ValueError(f"method {self.method} cannot draft {self.k} tokens")
        if len(self.acceptance.conditional) != self.k:
            raise ValueError(f"{len(self.acceptance.conditional)} acceptances for K={self.k}")
        if not self.model.startswith(PREFIX):
            raise ValueError(f"a simulated model's name begins with {PREFIX}, got {self.model!r}")
        if self.kv_tokens < self.max_model_len + 2 * (self.k + 1):
            raise ValueError("kv_tokens must hold at least one request of max_model_len")

    @property
    def draft_passes(self) -> float:
        """Passes of the draft a step costs, in units of one small head's pass."""
        return {
            "eagle3": float(self.k),
            "p-eagle": 1.0,
            "mtp": float(self.k),
            "draft_model": 2.5 * self.k,
            "ngram": 0.1,
            "none": 0.0,
        }[self.method]

    def cache_info(self, version: str) -> dict[str, str]:
        """Return the labels of cache_config_info as this version writes them."""
        blocks = self.kv_tokens // BLOCK
        labels = {
            "block_size": str(BLOCK),
            "enable_prefix_caching": "True",
            "num_gpu_blocks": str(blocks),
        }
        at = known_version(version)
        if at >= (0, 10, 2):
            labels |= {
                "engine": self.engine,
                "cache_dtype": "auto",
                "gpu_memory_utilization": "0.9",
                "sliding_window": "None",
            }
        if at >= (0, 32, 0):
            labels |= {
                "gpu_memory_utilization": "0.92",
                "effective_attention_block_size": str(BLOCK),
                "kv_cache_max_concurrency": str(self.kv_tokens / self.max_model_len),
                "kv_cache_size_tokens": str(blocks * BLOCK),
                "prefix_caching_hash_algo": "sha256",
                "user_specified_block_size": "False",
            }
        return labels


def default_acceptance(
    method: Method, k: int, chance: float | Sequence[float] | None = None
) -> Acceptance:
    """Return an acceptance for a method.

    Args:
        method: How drafts are made.
        k: Draft tokens a step.
        chance: The conditional acceptance of every position (for p-eagle of position 0, later
            ones being weaker), or one for each; None for a usual figure of the method.

    Returns:
        The acceptance, for n-gram with the usual share of steps that have a draft.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: {nearest(method, METHODS)}")
    match = _NGRAM_MATCH if method == "ngram" else 1.0
    if chance is None:
        chance = _DEFAULT_ACCEPTANCE[method]
    if isinstance(chance, (int, float)):
        weaker = _P_EAGLE_LATER if method == "p-eagle" else 1.0
        chances = tuple(float(chance) * (weaker if position else 1.0) for position in range(k))
        return Acceptance(chances, match)
    if len(chance) != k:
        raise ValueError(f"{len(chance)} acceptances for K={k}")
    return Acceptance(tuple(map(float, chance)), match)
