"""A recipe: what is served by what on what, and how it scales, costs and alarms.

Every key of `specctl.recipe/v1` is a field here; docs/recipes.md has the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "specctl.recipe/v1"

Method = Literal[
    "none",
    "eagle",
    "eagle3",
    "p-eagle",
    "ngram",
    "ngram_gpu",
    "draft_model",
    "medusa",
    "mtp",
    "dflash",
    "dspark",
    "suffix",
    "mlp_speculator",
]
GpuName = Literal["h100", "h100-nvl", "h200", "a100"]


def _from(least: float, default: Any, most: float | None = None) -> Any:
    return field(default=default, metadata={"least": least, "most": most})


@dataclass(frozen=True, slots=True)
class Target:
    """The big model."""

    model: str
    """A hub name, or a folder."""
    revision: str | None = None
    quantization: Literal["bf16", "fp16", "fp8", "int8", "awq", "gptq", "mxfp4"] | None = None
    """How its weights are stored; None: as its config.json says."""
    dtype: str | None = None
    config: str | None = None
    """A folder with its config.json, where the model's name is no folder."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What proposes tokens."""

    method: Method = "none"
    model: str | None = None
    revision: str | None = None
    k: int = field(default=0, metadata={"key": "K", "least": 0, "most": 64})
    """Tokens drafted per step."""
    tensor_parallel: int | None = _from(1, None)
    """1, or the target's."""
    config: str | None = None
    """A folder with its config.json, where the model's name is no folder."""
    acceptance_length: float | None = _from(1, None, 65)
    """Tokens per verify step that are expected: 1 + accepted / drafts."""
    acceptance_k: int | None = _from(1, None, 64)
    """The K at which that was measured; None: at K."""
    schedule: tuple[tuple[int, int, int], ...] | None = None
    """K by batch size, [first, last, K]."""
    sampling: Literal["greedy", "probabilistic"] | None = None
    prompt_lookup_max: int | None = _from(1, None)
    prompt_lookup_min: int | None = _from(1, None)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More keys of the engine's speculative configuration, checked by its version."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What serves."""

    kind: Literal["vllm", "sglang", "trtllm"] = "vllm"
    version: str = "0.32.0"
    image: str | None = None
    """With its digest."""
    served_model_name: str | None = None
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs of one server."""

    gpu: GpuName
    count: int = _from(1, 1)


@dataclass(frozen=True, slots=True)
class Serving:
    """How the engine is set."""

    max_model_len: int = _from(1, 32768)
    max_num_seqs: int = _from(1, 128)
    max_num_batched_tokens: int = _from(1, 8192)
    tensor_parallel: int = _from(1, 1)
    data_parallel: int = _from(1, 1)
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float = _from(0.05, 0.9, 1)
    prefix_caching: bool | None = None
    enforce_eager: bool = False
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    """None: the engine's default where it covers every batch, else the sizes that do."""
    lora: bool = False
    structured_output: bool = False
    """Whether many requests ask for JSON or a grammar."""
    shutdown_timeout_s: int = _from(0, 60)
    startup_timeout_s: int = _from(10, 1800)


@dataclass(frozen=True, slots=True)
class Workload:
    """A typical request, for the estimate and the decision guide."""

    prompt_tokens: int = _from(1, 1024)
    output_tokens: int = _from(1, 512)
    temperature: float = _from(0, 0.0, 5)


@dataclass(frozen=True, slots=True)
class Scaling:
    """How many servers."""

    min: int = _from(0, 1)
    max: int = _from(1, 4)
    queue_wait_ms_target: float = _from(1, 200.0)
    scale_up_stabilization_s: int = _from(0, 30)
    scale_down_stabilization_s: int = _from(0, 900)
    """Longer than a pod's start, else loading pods are scaled in."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A second deployment of the same target, e.g. for structured output."""

    draft: Draft | None = None
    min: int = _from(0, 0)
    max: int = _from(1, 1)


@dataclass(frozen=True, slots=True)
class Storage:
    """Where weights come from."""

    source: Literal["hub", "pvc", "image"] = "hub"
    claim: str | None = None
    size_gib: int | None = _from(1, None)
    cache_claim: str | None = None
    """Keeps compiled graphs over restarts."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a GPU costs."""

    gpu_hour_usd: float | None = _from(0, None)
    source: str | None = None
    date: str | None = None


@dataclass(frozen=True, slots=True)
class Alerts:
    """What is an alarm."""

    acceptance_floor: float = _from(0, 0.4, 1)
    hold: str = "1h"
    queue_wait_ms: float | None = _from(0, None)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The whole."""

    name: str
    target: Target
    hardware: Hardware
    schema: Literal["specctl.recipe/v1"] = "specctl.recipe/v1"
    summary: str = ""
    draft: Draft = field(default_factory=Draft)
    engine: Engine = field(default_factory=Engine)
    serving: Serving = field(default_factory=Serving)
    workload: Workload = field(default_factory=Workload)
    scaling: Scaling = field(default_factory=Scaling)
    pools: Mapping[str, Pool] = field(default_factory=dict)
    storage: Storage = field(default_factory=Storage)
    cost: Cost = field(default_factory=Cost)
    alerts: Alerts = field(default_factory=Alerts)
    evidence: Mapping[str, str] = field(default_factory=dict)
    """Where each choice comes from, by its key."""

    @property
    def speculates(self) -> bool:
        """Whether there is a draft."""
        return self.draft.method != "none"
