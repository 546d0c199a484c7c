"""The table of vLLM's metric families, version by version."""

from __future__ import annotations

from typing import Final

from speccli.core.sim.families import (
    FIRST,
    ITERATION_LADDER,
    ITL_LADDER,
    PREEMPTION_LADDER,
    REQUEST_LADDER,
    SMALL_LADDER,
    TTFT_LADDER,
    Family,
    Version,
    known_version,
)


def _counter(name: str, help_text: str, source: str, **rest: object) -> Family:
    return Family(name, "counter", help_text, source, **rest)  # type: ignore[arg-type]


def _gauge(name: str, help_text: str, source: str, **rest: object) -> Family:
    return Family(name, "gauge", help_text, source, **rest)  # type: ignore[arg-type]


def _histogram(name: str, help_text: str, source: str, **rest: object) -> Family:
    return Family(name, "histogram", help_text, source, **rest)  # type: ignore[arg-type]


_V10: Final[Version] = (0, 10, 2)
_V12: Final[Version] = (0, 12, 0)
_V16: Final[Version] = (0, 16, 0)
_V20: Final[Version] = (0, 20, 2)
_V32: Final[Version] = (0, 32, 0)
_CACHED_BY_SOURCE: Final = (
    "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host "
    "(offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or "
    "external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + "
    "vllm:external_prefix_cache_hits."
)
_WAITING_BY_REASON: Final = (
    "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling "
    "capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked "
    "status). Sum of all reasons equals vllm:num_requests_waiting."
)
_SLEEP: Final = (
    "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
    "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2."
)
_EXTERNAL: Final = (
    "External prefix cache {} from KV connector cross-instance cache sharing, in terms of number "
    "of {} tokens."
)
_MFU: Final = "Estimated number of {} (for Model Flops Utilization calculations)."
_ITL_HELP: Final = "Histogram of time per output token in seconds."
_KV_HELP: Final = "KV-cache usage. 1 means 100 percent usage."

_SPEC: Final = (
    _counter(
        "vllm:spec_decode_num_drafts_total",
        "Number of spec decoding drafts.",
        "drafts",
        spec=True,
        read=True,
    ),
    _counter(
        "vllm:spec_decode_num_draft_tokens_total",
        "Number of draft tokens.",
        "draft_tokens",
        spec=True,
        read=True,
    ),
    _counter(
        "vllm:spec_decode_num_accepted_tokens_total",
        "Number of accepted tokens.",
        "accepted_tokens",
        spec=True,
        read=True,
    ),
    _counter(
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "Accepted tokens per draft position.",
        "accepted_per_position",
        labels=("position", ()),
        spec=True,
        read=True,
    ),
)
_UTILIZATION: Final = tuple(
    _counter(f"vllm:estimated_{what}_per_gpu_total", _MFU.format(text), "zero", since=_V20)
    for what, text in (
        ("flops", "floating point operations per GPU"),
        ("read_bytes", "bytes read from memory per GPU"),
        ("write_bytes", "bytes written to memory per GPU"),
    )
)
_STATE: Final = (
    _gauge(
        "vllm:num_requests_running",
        "Number of requests in model execution batches.",
        "running",
        read=True,
    ),
    _gauge(
        "vllm:num_requests_waiting",
        "Number of requests waiting to be processed.",
        "waiting",
        read=True,
    ),
    _gauge(
        "vllm:num_requests_waiting_by_reason",
        _WAITING_BY_REASON,
        "waiting_by_reason",
        labels=("reason", ("capacity", "deferred")),
        since=_V20,
    ),
    _gauge(
        "vllm:engine_sleep_state",
        _SLEEP,
        "awake",
        labels=("sleep_state", ("awake", "weights_offloaded", "discard_all")),
        since=_V12,
    ),
    _gauge(
        "vllm:gpu_cache_usage_perc",
        f"GPU {_KV_HELP}",
        "kv_usage",
        until=_V10,
        read=True,
    ),
    _gauge(
        "vllm:gpu_cache_usage_perc",
        f"GPU {_KV_HELP}DEPRECATED: Use vllm:kv_cache_usage_perc instead.",
        "kv_usage",
        since=_V10,
        until=_V12,
        read=True,
    ),
    _gauge("vllm:kv_cache_usage_perc", _KV_HELP, "kv_usage", since=_V10, read=True),
)
_CACHES: Final = (
    _counter(
        "vllm:gpu_prefix_cache_queries_total",
        "GPU prefix cache queries, in terms of number of queried blocks.",
        "prefix_query_blocks",
        until=_V10,
    ),
    _counter(
        "vllm:gpu_prefix_cache_hits_total",
        "GPU prefix cache hits, in terms of number of cached blocks.",
        "prefix_hit_blocks",
        until=_V10,
    ),
    _counter(
        "vllm:gpu_prefix_cache_queries_total",
        "GPU prefix cache queries, in terms of number of queriedtokens. "
        "DEPRECATED: Use vllm:prefix_cache_queries instead.",
        "prefix_queries",
        since=_V10,
        until=_V12,
    ),
    _counter(
        "vllm:gpu_prefix_cache_hits_total",
        "GPU prefix cache hits, in terms of number of cached tokens. "
        "DEPRECATED: Use vllm:prefix_cache_hits instead.",
        "prefix_hits",
        since=_V10,
        until=_V12,
    ),
    _counter(
        "vllm:prefix_cache_queries_total",
        "Prefix cache queries, in terms of number of queried tokens.",
        "prefix_queries",
        since=_V10,
        read=True,
    ),
    _counter(
        "vllm:prefix_cache_hits_total",
        "Prefix cache hits, in terms of number of cached tokens.",
        "prefix_hits",
        since=_V10,
        read=True,
    ),
    _counter(
        "vllm:external_prefix_cache_queries_total",
        _EXTERNAL.format("queries", "queried"),
        "zero",
        since=_V12,
    ),
    _counter(
        "vllm:external_prefix_cache_hits_total",
        _EXTERNAL.format("hits", "cached"),
        "zero",
        since=_V12,
    ),
    _counter(
        "vllm:mm_cache_queries_total",
        "Multi-modal cache queries, in terms of number of queried items.",
        "zero",
        since=_V12,
    ),
    _counter(
        "vllm:mm_cache_hits_total",
        "Multi-modal cache hits, in terms of number of cached items.",
        "zero",
        since=_V12,
    ),
)
_TOKENS: Final = (
    _counter(
        "vllm:num_preemptions_total",
        "Cumulative number of preemption from the engine.",
        "preemptions",
        read=True,
    ),
    _counter(
        "vllm:prompt_tokens_total",
        "Number of prefill tokens processed.",
        "prompt_tokens",
        read=True,
    ),
    _counter(
        "vllm:prompt_tokens_by_source_total",
        "Number of prompt tokens by source.",
        "prompt_by_source",
        labels=("source", ("local_compute", "local_cache_hit", "external_kv_transfer")),
        since=_V16,
    ),
    _counter(
        "vllm:prompt_tokens_cached_total",
        "Number of cached prompt tokens (local + external).",
        "cached_tokens",
        since=_V16,
    ),
    _counter(
        "vllm:prompt_tokens_recomputed_total",
        "Number of cached tokens recomputed for forward pass.",
        "zero",
        since=_V16,
        until=_V20,
    ),
    _counter(
        "vllm:prompt_tokens_cached_by_source_total",
        _CACHED_BY_SOURCE,
        "cached_by_tier",
        labels=("source", ("device", "host", "p2p", "disk", "external_unspecified")),
        since=_V32,
    ),
    _counter(
        "vllm:generation_tokens_total",
        "Number of generation tokens processed.",
        "generation_tokens",
        read=True,
    ),
    *(
        _counter(
            "vllm:request_success_total",
            "Count of successfully processed requests.",
            "finished",
            labels=("finished_reason", reasons),
            since=since,
            until=until,
            read=True,
        )
        for since, until, reasons in (
            (FIRST, _V16, ("stop", "length", "abort")),
            (_V16, _V20, ("stop", "length", "abort", "error")),
            (_V20, None, ("stop", "length", "abort", "error", "repetition")),
        )
    ),
    _counter(
        "vllm:admission_rejections_total",
        "Number of admission attempts rejected by a queue limit, by reason.",
        "rejections",
        labels=("reason", ("max_num_queued_reqs", "max_num_queued_tokens")),
        since=_V32,
        engine_label=False,
    ),
)
_REQUEST_SIZES: Final = (
    _histogram(
        "vllm:request_prompt_tokens", "Number of prefill tokens processed.", "request_prompt"
    ),
    _histogram(
        "vllm:request_generation_tokens",
        "Number of generation tokens processed.",
        "request_generation",
    ),
    _histogram(
        "vllm:iteration_tokens_total",
        "Histogram of number of tokens per engine_step.",
        "iteration",
        ladder=ITERATION_LADDER,
        read=True,
    ),
    _histogram(
        "vllm:request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        "request_max_generation",
    ),
    _histogram(
        "vllm:request_params_n",
        "Histogram of the n request parameter.",
        "request_n",
        ladder=SMALL_LADDER,
    ),
    _histogram(
        "vllm:request_params_max_tokens",
        "Histogram of the max_tokens request parameter.",
        "request_max_tokens",
    ),
)
_LATENCIES: Final = (
    _histogram(
        "vllm:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        "ttft",
        ladder=TTFT_LADDER,
        read=True,
    ),
    _histogram(
        "vllm:time_per_output_token_seconds",
        _ITL_HELP,
        "itl",
        ladder=ITL_LADDER,
        until=_V10,
        read=True,
    ),
    _histogram(
        "vllm:time_per_output_token_seconds",
        f"{_ITL_HELP}DEPRECATED: Use vllm:inter_token_latency_seconds instead.",
        "itl",
        ladder=ITL_LADDER,
        since=_V10,
        until=_V12,
        read=True,
    ),
    _histogram(
        "vllm:inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        "itl",
        ladder=ITL_LADDER,
        since=_V10,
        read=True,
    ),
    _histogram(
        "vllm:request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        "tpot",
        ladder=ITL_LADDER,
        since=_V12,
        read=True,
    ),
    *(
        _histogram(name, text, source, ladder=REQUEST_LADDER, read=read)
        for name, text, source, read in (
            (
                "vllm:e2e_request_latency_seconds",
                "Histogram of e2e request latency in seconds.",
                "e2e",
                True,
            ),
            (
                "vllm:request_queue_time_seconds",
                "Histogram of time spent in WAITING phase for request.",
                "queue",
                True,
            ),
            (
                "vllm:request_inference_time_seconds",
                "Histogram of time spent in RUNNING phase for request.",
                "inference",
                False,
            ),
            (
                "vllm:request_prefill_time_seconds",
                "Histogram of time spent in PREFILL phase for request.",
                "prefill",
                False,
            ),
            (
                "vllm:request_decode_time_seconds",
                "Histogram of time spent in DECODE phase for request.",
                "decode",
                False,
            ),
        )
    ),
    _histogram(
        "vllm:request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
        "request_preemptions",
        ladder=PREEMPTION_LADDER,
        since=_V32,
    ),
    _histogram(
        "vllm:request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        "request_computed",
        since=_V16,
    ),
)

FAMILIES: Final = (*_SPEC, *_UTILIZATION, *_STATE, *_CACHES, *_TOKENS, *_REQUEST_SIZES, *_LATENCIES)
"""Every family of every version in the table, in the order of the page."""


def families_for(version: str, *, speculating: bool) -> tuple[Family, ...]:
    """Return the families that an engine of this version exposes, in the order of the page."""
    at = known_version(version)
    return tuple(
        family
        for family in FAMILIES
        if family.since <= at
        and (family.until is None or at < family.until)
        and (speculating or not family.spec)
    )
