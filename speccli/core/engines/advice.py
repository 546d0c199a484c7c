"""What an operator may be told to change about an engine, and since which version that can be."""

from __future__ import annotations

import re

from speccli.core.engines.vllm import PER_ENGINE_SPEC_METRICS_SINCE

CUSTOM_BUCKETS_SINCE = (0, 32)
"""`--custom-histogram-buckets` is new in vLLM 0.32."""
CUSTOM_BUCKETS = (
    '--custom-histogram-buckets \'{"request_latency":'
    "[0.005,0.01,0.02,0.05,0.1,0.2,0.3,0.5,1,2,5,10,30,60]}'"
)
"""Queue wait, and all that is counted per request, from 5 ms on."""
TELL_METHOD = "start vLLM with VLLM_SERVER_DEV_MODE=1 (not on a public port), or give --method"


def version_of(text: str | None) -> tuple[int, ...] | None:
    """`0.32.1rc1` as (0, 32, 1); None where it is no version."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text or "")
    return tuple(int(part) for part in match.groups(default="0")) if match else None


def takes_custom_buckets(kind: str, version: str | None) -> bool | None:
    """Whether its buckets can be set; None where its version is unknown."""
    known = version_of(version)
    if kind != "vllm":
        return False
    return None if known is None else known >= CUSTOM_BUCKETS_SINCE


def hides_speculation(kind: str, version: str | None, engines: int) -> bool:
    """Whether it speculates without a metric of it, having several engines and an old version."""
    known = version_of(version)
    return (
        kind == "vllm"
        and engines > 1
        and known is not None
        and known < PER_ENGINE_SPEC_METRICS_SINCE
    )
