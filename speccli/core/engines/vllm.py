"""vLLM's metric names, 0.8.5 to 0.33.0, and what they are called here.

Read from vLLM's `v1/metrics/loggers.py` and `v1/spec_decode/metrics.py` of those versions. Names
are looked up by presence, never by version: several versions expose an old and a new name of the
same fact side by side, and the fleet runs several versions at once (vLLM PR #29330, gpustack
#2985).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speccli.core.engines.base import Adapter, Counter, Gauge, Histogram

VLLM = Adapter(
    kind="vllm",
    prefix="vllm:",
    counters=(
        Counter("drafts", ("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts")),
        Counter(
            "draft_tokens",
            ("vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens"),
        ),
        Counter(
            "accepted_tokens",
            ("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens"),
        ),
        Counter(
            "accepted_at",
            (
                "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                "vllm:spec_decode_num_accepted_tokens_per_pos",
            ),
            by="position",
        ),
        Counter("generation_tokens", ("vllm:generation_tokens_total", "vllm:generation_tokens")),
        Counter("prompt_tokens", ("vllm:prompt_tokens_total", "vllm:prompt_tokens")),
        Counter("finished", ("vllm:request_success_total", "vllm:request_success")),
        Counter("preemptions", ("vllm:num_preemptions_total", "vllm:num_preemptions")),
        # A histogram by type; its count is the number of engine steps, all that is needed of it.
        Counter("steps", ("vllm:iteration_tokens_total_count",)),
    ),
    histograms=(
        Histogram("ttft", ("vllm:time_to_first_token_seconds",)),
        # One observation per request and engine step, whatever the step yields (vLLM stats.py).
        Histogram(
            "itl", ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
        ),
        Histogram("tpot", ("vllm:request_time_per_output_token_seconds",)),
        Histogram("e2e", ("vllm:e2e_request_latency_seconds",)),
        Histogram("queue", ("vllm:request_queue_time_seconds",)),
    ),
    gauges=(
        Gauge("running", ("vllm:num_requests_running",)),
        Gauge("waiting", ("vllm:num_requests_waiting",)),
        Gauge("kv_cache_usage", ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
    ),
    engine_labels=("engine", "engine_index"),
    absent={"tpot": "vLLM exports request_time_per_output_token_seconds from 0.11 on"},
    server_error_hint="vLLM does so when PROMETHEUS_MULTIPROC_DIR is on a network volume (#49983)",
)

PER_ENGINE_SPEC_METRICS_SINCE = (0, 10, 2)
"""Before it (PR #24049) vLLM exposed no speculation series with more than one engine."""


def method_of(speculative_config: Mapping[str, Any] | None) -> str:
    """The method's name here, from vLLM's own speculative configuration.

    P-EAGLE is not a method of vLLM: it is `eagle3` with `parallel_drafting` (0.16.0 on).
    """
    if not speculative_config:
        return "none"
    method = str(speculative_config.get("method") or "unknown")
    if method in {"eagle", "eagle3"} and speculative_config.get("parallel_drafting"):
        return "p-eagle"
    return method
