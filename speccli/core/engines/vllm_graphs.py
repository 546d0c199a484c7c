"""Which runner a vLLM uses, and which CUDA graphs it captures by default: rules by version.

Read from `config/vllm.py`, `config/compilation.py`, `v1/cudagraph_dispatcher.py` and
`v1/worker/gpu/cudagraph_utils.py` of 0.16.0 to 0.32.0; a test holds them to vLLM 0.32's own code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from speccli.core.engines.vllm_speculative import Version

READ_SINCE: Version = (0, 16, 0)
"""Older versions' rules were not read."""
CEILING = 512
"""Largest default capture size in tokens on Hopper (1024 is Blackwell's)."""

_V2_ARCHITECTURES: Mapping[Version, frozenset[str]] = {
    (0, 22, 0): frozenset({"Qwen3ForCausalLM"}),
    (0, 24, 0): frozenset(
        {
            "DeepseekV2ForCausalLM",
            "GraniteMoeForCausalLM",
            "LlamaForCausalLM",
            "MistralForCausalLM",
            "Qwen2MoeForCausalLM",
            "Qwen3ForCausalLM",
        }
    ),
}
_NEVER_V2 = frozenset({"suffix", "medusa", "mlp_speculator", "custom_class"})
_V2_METHOD_SINCE: Mapping[str, Version] = {
    "ngram": (0, 32, 0),
    "ngram_gpu": (0, 32, 0),
    "draft_model": (0, 31, 0),
}

SCHEDULE_FAILS: tuple[Version, Version] = ((0, 25, 0), (0, 32, 0))
"""Since and before which the V2 runner sizes the graphs of a draft by a schedule of the target's K.

A draft that is made a token at a time is given graphs of 1 + K - the largest K tokens: none or
fewer for every smaller K; DSpark is given graphs of K tokens, and none where K is 0. The server
ends while it makes them (read in each version, not run; vllm#48494, PR #48329 and #47737).
"""
_REACHED_SINCE: Version = (0, 29, 0)
"""Before, graphs are made for ranges that no batch reaches, too."""
STEPWISE = frozenset({"eagle", "eagle3", "mtp", "draft_model"})
"""Methods whose draft is made a token at a time."""
RUNNER_ENV = "VLLM_USE_V2_MODEL_RUNNER"
FAILS_HOW = "the draft's CUDA graphs are sized by K by batch size: vLLM ends while it captures them"
STARTS_WITH = (
    f"vLLM 0.32 or newer, or one K; with {RUNNER_ENV}=0 it starts, on piecewise graphs: an 8B was "
    "6 to 27 % slower so with EAGLE-3, K = 3, at 16 to 128 requests"
)
"""Measured on an H200, vLLM 0.25.1, 16 to 128 requests (docs/evidence/lab-h200)."""

CAPTURE_FAILS: tuple[Version, Version] = ((0, 22, 0), (0, 26, 0))
"""Since and before which the V2 runner captures a draft on the attention data of the target.

Those are views of buffers that a later capture has overwritten, so attention reads what is not its
own; whether that faults goes by shapes and memory. Read in 0.22.1, 0.23.0, 0.24.0, 0.25.1 and,
mended, 0.26.0; vllm#47561, PR #48261; met on 0.25.1 (docs/evidence/lab-h200/capture.txt).
"""
CAPTURE_STARTED_SEQS = 64
"""The fewest max_num_seqs at which servers were seen to start; at 8 they were seen to end.

No bound: that of vllm#47561 has vLLM's default, which is more.
"""
CAPTURE_ENDS = "vLLM may end while it captures the draft's CUDA graphs, on an illegal memory access"
CAPTURE_STARTS_WITH = (
    "vLLM 0.26 or newer; else a larger --max-num-seqs (a server that ended at 8 started at 128), "
    f"{RUNNER_ENV}=0 or, slower, --enforce-eager (neither tried for this)"
)

Dispatch = Literal["rounded", "nearest", "uniform"]
"""How a decode batch finds its graph. rounded: capture sizes become multiples of K+1, the next one
serves. nearest: the nearest size of any graph decides; if it is no multiple of K+1, the step runs
piecewise (PR #53407). uniform: the next multiple of K+1 that was captured serves."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What one version does with one configuration."""

    runner: Literal["V1", "V2"]
    dispatch: Dispatch
    appends_decode_sizes: bool
    """Whether the default ladder has the decode sizes n x (K+1) added (PR #50488, 0.29)."""
    appends_max_seqs: bool
    """Whether without speculation max_num_seqs itself is added (0.31)."""
    piecewise_only: bool
    """The V1 runner takes no full graphs where K changes by batch size."""
    forced_in_vain: bool = False
    """Whether `RUNNER_ENV` asks for a V2 runner that cannot serve this: vLLM does not start."""


def rules(
    version: Version,
    *,
    method: str,
    parallel: bool,
    architecture: str,
    moe: bool,
    quantized: bool,
    scheduled: bool,
    forced: str | None = None,
) -> Rules | None:
    """The rules of `version`; None where they were not read.

    `forced` is what `RUNNER_ENV` says, where it is set.
    """
    if version < READ_SINCE:
        return None
    can = _can_v2(version, method, parallel, scheduled)
    v2 = can and _uses_v2(version, architecture, moe, quantized)
    if forced in {"0", "1"}:
        v2 = forced == "1"
    dispatch: Dispatch = "rounded"
    if v2 and version >= (0, 29, 0):
        dispatch = "uniform"
    elif v2 and version >= (0, 25, 0):
        dispatch = "nearest"
    return Rules(
        runner="V2" if v2 else "V1",
        dispatch=dispatch,
        appends_decode_sizes=version >= (0, 29, 0),
        appends_max_seqs=version >= (0, 31, 0),
        piecewise_only=scheduled and not v2,
        forced_in_vain=forced == "1" and not can,
    )


def schedule_fails(
    version: Version, method: str, rows: Iterable[tuple[int, int, int]], k: int, most: int
) -> bool:
    """Whether the V2 runner of `version` ends with these ranges of batches and their K.

    `k` is the largest K, `most` the largest batch.
    """
    since, before = SCHEDULE_FAILS
    if not since <= version < before:
        return False
    ks = {each for first, _, each in rows if first <= most or version < _REACHED_SINCE}
    return (method in STEPWISE and bool(ks - {k})) or (method == "dspark" and 0 in ks)


def capture_may_end(version: Version, method: str) -> bool:
    """Whether the V2 runner of `version` may end while it captures this draft's graphs."""
    since, before = CAPTURE_FAILS
    return since <= version < before and method in STEPWISE


def _can_v2(version: Version, method: str, parallel: bool, scheduled: bool) -> bool:
    if version < (0, 22, 0) or method in _NEVER_V2:
        return False
    if parallel and method not in {"dflash", "dspark"}:
        return False
    if scheduled and version < (0, 25, 0):
        return False
    return version >= _V2_METHOD_SINCE.get(method, (0, 22, 0))


def _uses_v2(version: Version, architecture: str, moe: bool, quantized: bool) -> bool:
    if version >= (0, 29, 0):
        return True
    if version >= (0, 25, 0):
        return not moe or architecture in _V2_ARCHITECTURES[(0, 24, 0)] - {"LlamaForCausalLM"}
    if version >= (0, 24, 0):
        return architecture in _V2_ARCHITECTURES[(0, 24, 0)]
    return architecture in _V2_ARCHITECTURES[(0, 22, 0)] and not moe and not quantized
