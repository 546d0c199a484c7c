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


MOST_SEQS = 65536
"""Requests of an engine at once; what is sized for each batch would take minutes above it."""
MOST_SPLIT = 1024
"""GPUs that a model's layers are split over."""


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
    tensor_parallel: int | None = _from(1, None, MOST_SPLIT)
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
    """Never secrets: those are referred to under `secrets`."""
    pull_secrets: tuple[str, ...] = ()
    """Secrets that the image is pulled with, by name."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs of one server."""

    gpu: GpuName
    count: int = _from(1, 1)
    products: tuple[str, ...] = ()
    """Values of the node label nvidia.com/gpu.product; none: those of `gpu`."""
    gpus_per_node: int = _from(1, 8)
    cpu_per_gpu: int = _from(1, 8)
    memory_gib_per_gpu: int = _from(8, 64)
    """Host memory requested; twice that is the limit, shared memory included."""


@dataclass(frozen=True, slots=True)
class Serving:
    """How the engine is set."""

    max_model_len: int = _from(1, 32768)
    max_num_seqs: int = _from(1, 128, MOST_SEQS)
    max_num_batched_tokens: int = _from(1, 8192)
    tensor_parallel: int = _from(1, 1, MOST_SPLIT)
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
    startup_timeout_s: int | None = _from(10, None)
    """None: sized from the weights."""


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
    scale_up_stabilization_s: int = _from(0, 30, 3600)
    scale_down_stabilization_s: int | None = _from(0, None, 3600)
    """None: 900, and as long as a start may take; shorter, and loading pods are scaled in."""
    running_share: float = _from(0.05, 0.8, 1)
    """Share of max_num_seqs that runs in an engine before there are more engines."""
    tolerance: float | None = _from(0, None, 1)
    """Deviation from the target that changes nothing; None: the server's, 0.1."""
    activation_query: str | None = None
    """PromQL of requests in flight, seen from in front: what scales from and to zero."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A further deployment of the same target; what is not set is as in the recipe."""

    draft: Draft | None = None
    """None: no draft in `structured`, the recipe's in `canary`, a rung's in `standby`."""
    min: int = _from(1, 1)
    max: int = _from(1, 1)
    image: str | None = None
    version: str | None = None
    served_model_name: str | None = None
    max_num_seqs: int | None = _from(1, None, MOST_SEQS)


PoolName = Literal["structured", "canary", "standby"]


@dataclass(frozen=True, slots=True)
class Storage:
    """Where weights come from."""

    source: Literal["hub", "pvc", "image"] = "hub"
    """Downloaded from the hub; a claim that holds them; an image that holds them."""
    claim: str | None = None
    """An existing claim; None: one is made, where weights are downloaded."""
    image: str | None = None
    """With `source: image`: the image, with its digest."""
    size_gib: int | None = _from(1, None)
    """Of the claim that is made; None: from the weights."""
    class_name: str | None = field(default=None, metadata={"key": "class"})
    """Storage class; None: the cluster's default."""
    access: Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] | None = None
    """None: ReadWriteMany where there may be more than one server."""
    persist: bool = True
    """False: downloaded anew by each pod, into a volume of its own."""
    read_mb_s: float | None = _from(1, None)
    """How fast weights are read, megabytes a second; None: an assumption by source."""
    cache_claim: str | None = None
    """Keeps compiled graphs over restarts; None: one is made where `persist` is set."""
    cache_gib: int = _from(1, 20)


@dataclass(frozen=True, slots=True)
class SecretRef:
    """A key of a Secret. Its value is never read."""

    name: str
    key: str = "token"


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secrets, by reference."""

    hf_token: SecretRef | None = None
    """None: `hf-token`, if there is one."""
    api_key: SecretRef | None = None
    """What clients must send; None: the engine asks for none."""
    prometheus_token: SecretRef | None = None
    """What the autoscaler sends to Prometheus; None: nothing."""


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that does not keep the pods away."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule"] | None = None


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Where pods may run, and before whom."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    """In place of the GPU product's label, where a cluster has other labels."""
    tolerations: tuple[Toleration, ...] = ()
    runtime_class: str | None = None
    """Only where the NVIDIA runtime is not the nodes' default."""
    priority_class: str | None = None
    """An existing one."""
    priority: int | None = _from(-(10**9), None, 10**9)
    """A PriorityClass of this value is made."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A place pods may reach."""

    namespace: str
    port: int = _from(1, 4317, 65535)


@dataclass(frozen=True, slots=True)
class Network:
    """Who may reach the pods, and what they may reach."""

    clients: tuple[str, ...] = ()
    """Namespaces of clients and gateways, beside the pods' own."""
    monitoring: str = "monitoring"
    """Namespace of the Prometheus that scrapes."""
    api_server: tuple[str, ...] = ()
    """Address ranges of the API servers, whose pod proxy specctl reads through."""
    egress: tuple[Reach, ...] = ()
    """Beside DNS and downloads: a collector of traces, e.g."""


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
class Rung:
    """A step of the ladder: the same target with a lesser draft."""

    method: Method | None = None
    """None: the recipe's own draft, with another K or schedule."""
    model: str | None = None
    """Of a draft of its own."""
    k: int | None = field(default=None, metadata={"key": "K", "least": 0, "most": 64})
    schedule: tuple[tuple[int, int, int], ...] | None = None
    """K by batch size, [first, last, K]."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """The ladder, and when specctl may go down and up it by itself."""

    rungs: tuple[Rung, ...] = ()
    """From the smallest retreat to the largest; none: half of K, n-gram, off."""
    standby: Method | None = None
    """Rung that the pool `standby` keeps warm; None: n-gram where the engine takes it, else off."""
    cool_down: str = "30m"
    """After a move, before the next."""
    hold: str = "5m"
    """How long a finding lasts before it moves anything."""
    restore_after: str = "1h"
    """How long below before the draft is tried again, in a canary; doubled at each refusal."""
    moves_per_hour: int = _from(1, 2)
    quiet: tuple[str, ...] = ()
    """Times of day, HH:MM-HH:MM, in which nothing moves by itself."""
    time_zone: str = "UTC"
    """Of the quiet hours: a name of the IANA database."""
    canary_drafts: int = _from(100, 2000)
    """Drafts that a canary makes before it is judged."""


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
    pools: Mapping[PoolName, Pool] = field(default_factory=dict)
    storage: Storage = field(default_factory=Storage)
    secrets: Secrets = field(default_factory=Secrets)
    scheduling: Scheduling = field(default_factory=Scheduling)
    network: Network = field(default_factory=Network)
    cost: Cost = field(default_factory=Cost)
    alerts: Alerts = field(default_factory=Alerts)
    fallback: Fallback = field(default_factory=Fallback)
    evidence: Mapping[str, str] = field(default_factory=dict)
    """Where each choice comes from, by its key."""

    @property
    def speculates(self) -> bool:
        """Whether there is a draft."""
        return self.draft.method != "none"
