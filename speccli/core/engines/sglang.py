"""SGLang's metric names (read from the 0.5.10 and 0.5.23 wheels).

SGLang exposes acceptance as gauges over its own log interval, not as counters, and its inter-token
latency is divided by the step's tokens and counted once per token: neither may be pooled with, or
compared to, vLLM's numbers of the same name.
"""

from __future__ import annotations

from speccli.core.engines.base import Adapter, Counter, Gauge, Histogram

_NO_COUNTERS = "SGLang exposes acceptance as a gauge over its log interval, not as counters"

SGLANG = Adapter(
    kind="sglang",
    prefix="sglang:",
    counters=(
        Counter("generation_tokens", ("sglang:generation_tokens_total",)),
        Counter("prompt_tokens", ("sglang:prompt_tokens_total",)),
        Counter("finished", ("sglang:num_requests_total",)),
    ),
    histograms=(
        Histogram("ttft", ("sglang:time_to_first_token_seconds",)),
        Histogram("tpot", ("sglang:request_time_per_output_token_seconds",)),
        Histogram("e2e", ("sglang:e2e_request_latency_seconds",)),
        Histogram("queue", ("sglang:queue_time_seconds",)),
    ),
    gauges=(
        Gauge("running", ("sglang:num_running_reqs",)),
        Gauge("waiting", ("sglang:num_queue_reqs",)),
        Gauge("kv_cache_usage", ("sglang:token_usage",)),
        # 1 + accepted / verify steps, the bonus token included: acceptance length as defined here.
        Gauge("acceptance_length", ("sglang:spec_accept_length",)),
        # K + 1; from 0.5.23. Without it no rate comparable to vLLM's can be formed, because
        # spec_accept_rate changed its meaning between 0.5.10 and 0.5.23.
        Gauge("verified_tokens_per_step", ("sglang:spec_num_draft_tokens",)),
    ),
    engine_labels=("dp_rank",),
    absent={
        "drafts": _NO_COUNTERS,
        "draft_tokens": _NO_COUNTERS,
        "accepted_tokens": _NO_COUNTERS,
        "accepted_at": _NO_COUNTERS,
        "itl": "SGLang counts inter-token latency per token, not per step",
        "steps": "SGLang exposes no step counter",
        "tpot": "SGLang exports request_time_per_output_token_seconds from 0.5.23 on",
    },
)
