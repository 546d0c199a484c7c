"""The result of a bench, `specctl.bench/v1`.

Field names are the JSON's. Seconds everywhere; ratios 0..1; a number that is not known says why.
docs/contracts.md has the form, docs/bench.md how each number is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from speccli.core.values import Number

SCHEMA = "specctl.bench/v1"

RowState = Literal["ok", "failed", "partial", "contaminated"]
Source = Literal["per-request", "counters", "none"]
Kind = Literal["closed", "open"]


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic of a sample, with the interval that another sample's would lie in."""

    value: float | None
    low: float | None
    """Lower end of the 95 % bootstrap interval; None where there are too few observations."""
    high: float | None
    n: int | None
    """Observations."""
    state: Literal["value", "unknown"] = "value"
    reason: str | None = None

    @classmethod
    def unknown(cls, reason: str, *, n: int | None = None) -> Statistic:
        """No value, and why."""
        return cls(None, None, None, n, "unknown", reason)


@dataclass(frozen=True, slots=True)
class Spread:
    """How a latency is spread over requests, seconds."""

    p50: Statistic
    p95: Statistic
    p99: Statistic
    mean: Statistic

    @classmethod
    def unknown(cls, reason: str) -> Spread:
        """Nothing is known of it, and why."""
        nothing = Statistic.unknown(reason)
        return cls(nothing, nothing, nothing, nothing)


@dataclass(frozen=True, slots=True)
class Counted:
    """What the server's own counters grew by over a row, warm-up and fillers included."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    generated_tokens: int | None = None
    finished: int | None = None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What the draft was worth in a row."""

    source: Source
    """Of each measured request, of the server's counters over the row, or not known."""
    rate: Number
    """Accepted / draft tokens."""
    length: Number
    """1 + accepted / drafts."""
    by_position: tuple[Number, ...]
    """Accepted at position i / drafts."""
    tokens_per_step: Number
    """Output tokens per request and decode step, from the counters: true for every method."""
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    counters: Counted | None = None
    """The server's counters, where they could be read, also beside per-request figures."""

    @classmethod
    def unknown(cls, reason: str) -> Acceptance:
        """Nothing is known of it, and why."""
        nothing = Number.unknown(reason)
        return cls("none", nothing, nothing, (), nothing)


@dataclass(frozen=True, slots=True)
class Samples:
    """The measured requests, one place each in every list."""

    prompt: tuple[str, ...] = ()
    """Ids: arms are paired by them."""
    start_s: tuple[float, ...] = ()
    """When it was due (open loop) or sent (closed loop), since the row's first measured one."""
    ttft_s: tuple[float, ...] = ()
    e2e_s: tuple[float, ...] = ()
    output_tokens: tuple[int, ...] = ()
    input_tokens: tuple[int, ...] = ()
    text_sha: tuple[str, ...] = ()
    """First 16 hex digits of the SHA-256 of the text, as the server wrote it."""
    accepted: tuple[int, ...] | None = None
    drafted: tuple[int, ...] | None = None
    steps: tuple[int, ...] | None = None
    """Verify steps that had a draft."""


@dataclass(frozen=True, slots=True)
class RowClient:
    """What the load generator itself cost while the row was measured."""

    cpu_s: float
    cpu_share: float
    """CPU time / wall time, of one core."""
    loop_lag_p99_s: float | None
    """How late its own timers fired: what may be added to any latency here."""
    saturated: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Structured:
    """Answers that were held to a JSON schema."""

    answers: int
    parsed: int
    """Are JSON."""
    cut_off: int
    """Ended at the token limit, so that they cannot be."""


@dataclass(frozen=True, slots=True)
class Row:
    """One arm at one load on one dataset, once."""

    arm: str
    batch: int | None
    """Requests kept in flight (closed loop)."""
    rate: float | None
    """Requests per second (open loop)."""
    dataset: str
    repeat: int
    state: RowState
    reason: str | None = None
    started: str | None = None
    duration_s: float | None = None
    """The measured window."""
    requests: int = 0
    """Measured requests that were answered in full."""
    errors: int = 0
    error_kinds: Mapping[str, int] = field(default_factory=dict)
    output_tokens: int | None = None
    """Of the measured requests, from usage."""
    input_tokens: int | None = None
    output_tokens_per_s: Number = field(default=Number.unknown("not measured"))
    """Tokens that came inside the window, whichever request they belong to / the window."""
    ttft_s: Spread = field(default=Spread.unknown("not measured"))
    tpot_s: Spread = field(default=Spread.unknown("not measured"))
    """(e2e - TTFT) / (output tokens - 1), a request."""
    e2e_s: Spread = field(default=Spread.unknown("not measured"))
    chunk_gap_s: Spread = field(default=Spread.unknown("not measured"))
    """Between two chunks of one answer; several tokens may come in one: no token latency."""
    acceptance: Acceptance = field(default=Acceptance.unknown("not measured"))
    gpu_utilisation: Number = field(default=Number.unknown("not measured"))
    """0..1, mean over the window and the GPUs in use."""
    power_w: Number = field(default=Number.unknown("not measured"))
    """All GPUs in use together."""
    sm_clock_mhz: Number = field(default=Number.unknown("not measured"))
    energy_j: Number = field(default=Number.unknown("not measured"))
    """All GPUs in use together, over the window."""
    energy_j_per_token: Number = field(default=Number.unknown("not measured"))
    """The same / output tokens that came inside the window."""
    contaminated: bool | None = None
    """Whether others' traffic was seen; None where the counters cannot tell."""
    contaminated_reason: str | None = None
    """Why they cannot."""
    structured: Structured | None = None
    client: RowClient | None = None
    samples: Samples = Samples()

    @property
    def key(self) -> tuple[str, int | None, float | None, str, int]:
        """What tells it from every other row of a bench."""
        return self.arm, self.batch, self.rate, self.dataset, self.repeat

    @property
    def label(self) -> str:
        """`eagle3, batch 8, sharegpt, repeat 1`."""
        load = f"batch {self.batch}" if self.batch is not None else f"rate {self.rate:g}/s"
        return f"{self.arm}, {load}, {self.dataset}, repeat {self.repeat + 1}"

    @property
    def usable(self) -> bool:
        """Whether it has numbers that may be judged; of its requests at most 1 % failed."""
        return self.state in {"ok", "partial"} and 99 * self.errors <= self.requests > 0


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of its memory, by its metrics and its log. Bytes are of one GPU."""

    kv_cache_tokens: Number = field(default=Number.unknown("not told"))
    """Tokens that the KV cache has room for."""
    num_gpu_blocks: Number = field(default=Number.unknown("not told"))
    block_size: Number = field(default=Number.unknown("not told"))
    """Tokens of a block."""
    kv_cache_bytes: Number = field(default=Number.unknown("not told"))
    weights_bytes: Number = field(default=Number.unknown("not told"))
    """Target and draft together, as loaded."""
    cuda_graph_bytes: Number = field(default=Number.unknown("not told"))
    gpu_memory_bytes: Number = field(default=Number.unknown("not told"))
    """What the GPU holds more of since it was started."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One configuration that was measured."""

    name: str
    baseline: bool
    endpoint: str | None = None
    """Where it answered, without credentials."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """`kind`, `version`, `runner`, each as far as it is known."""
    model: str | None = None
    method: str | None = None
    k: int | None = None
    draft: str | None = None
    command: tuple[str, ...] | None = None
    """What started it, where specctl did."""
    gpu_count: int = 1
    gpu_hour_usd: float | None = None
    start_s: float | None = None
    """How long it took to start, where specctl started it."""
    max_model_len: int | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    server: ServerFacts | None = None
    """None where it was not asked: imported, or of an older bench."""

    @property
    def price(self) -> float | None:
        """USD of a GPU-hour; None where it is not known, of which older files said 0."""
        return self.gpu_hour_usd or None


@dataclass(frozen=True, slots=True)
class Dataset:
    """A set of prompts, the same ones for every arm."""

    name: str
    source: str
    """Package and version, or a file's name."""
    sha256: str | None
    """Of the prompts as they were sent, in their order; None where they are not known."""
    prompts: int
    prompt_tokens_mean: Number = field(default=Number.unknown("not measured"))
    bins: tuple[Mapping[str, Any], ...] = ()
    """`{"low", "high", "prompts"}` by prompt tokens, as the server counted them."""
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What was asked of every arm."""

    kind: Kind
    batches: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    requests: int | None = None
    """Measured ones of each row, at the least."""
    requests_by_load: tuple[int, ...] = ()
    """The same for each batch or rate, where they differ."""
    seconds: float | None = None
    """Or the window's length."""
    output_tokens: int | None = None
    """Every answer is made exactly this long (`ignore_eos`)."""
    max_tokens: int | None = None
    warmup: int = 0
    """Requests of each row whose answers are not measured, at the least."""
    warmup_by_load: tuple[int, ...] = ()
    """The same for each batch or rate, where they differ."""
    repeats: int = 1
    endpoint: Literal["chat", "completions"] = "chat"
    window: Literal["steady", "whole"] = "steady"
    request_seeds: bool = False
    """Whether each request carried a seed of its own."""
    structured: str | None = None
    """The JSON schema laid over every answer: its file and its hash."""

    def requests_of(self, batch: int | None, rate: float | None) -> int | None:
        """Measured requests of a row at this load; None where it ends by time."""
        return self._of(self.requests_by_load, batch, rate, self.requests)

    def warmup_of(self, batch: int | None, rate: float | None) -> int:
        """Requests of a row at this load that are not measured."""
        return self._of(self.warmup_by_load, batch, rate, self.warmup) or 0

    def _of(
        self, each: tuple[int, ...], batch: int | None, rate: float | None, usual: int | None
    ) -> int | None:
        loads: tuple[float, ...] = self.batches or self.rates
        here = batch if batch is not None else rate
        return each[loads.index(here)] if each and here in loads else usual


@dataclass(frozen=True, slots=True)
class Client:
    """What the load generator cost, at its worst."""

    cpu_s_per_1k_tokens: Number
    saturated: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Who measured, where, with what."""

    specctl: str
    runner: str
    """`specctl`, `vllm-bench`, `aiperf`, `guidellm`."""
    commands: tuple[str, ...] = ()
    host: Mapping[str, Any] = field(default_factory=dict)
    gpu: Mapping[str, Any] | None = None
    gpu_reason: str | None = None
    """Why the GPU is not known."""
    git: str | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    order: str | None = None
    """In which order rows were measured: `interleaved` or `blocks`, in words."""
    client: Client | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A whole bench."""

    name: str
    created: str
    """RFC 3339."""
    finished: str | None
    complete: bool
    simulated: bool
    provenance: Provenance
    load: Load
    datasets: tuple[Dataset, ...]
    arms: tuple[Arm, ...]
    rows: tuple[Row, ...]
    stand_in: str | None = None
    """Words, where the model only stands in for the one that is meant."""
    texts: Mapping[str, Mapping[str, Any]] | None = None
    """`{arm: {prompt id: {"text": …}}}`."""
    schema: str = SCHEMA

    @property
    def baseline(self) -> Arm | None:
        """The arm that others are compared with."""
        return next((arm for arm in self.arms if arm.baseline), None)

    def arm(self, name: str) -> Arm:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.name == name)

    def rows_of(self, arm: str, *, usable: bool = True) -> tuple[Row, ...]:
        """An arm's rows; `usable`: those that may be judged."""
        return tuple(r for r in self.rows if r.arm == arm and (r.usable or not usable))

    def with_row(self, row: Row) -> Result:
        """The same with this row, in place of the one that has its key."""
        kept = tuple(each for each in self.rows if each.key != row.key)
        return replace(self, rows=(*kept, row))
