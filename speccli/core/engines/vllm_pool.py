"""What scaling a pool of vLLM engines looks at, in the engine's own names."""

from __future__ import annotations

from dataclasses import dataclass

from speccli.core.engines.vllm import VLLM

_BY_REASON = "vllm:num_requests_waiting_by_reason"
"""0.22 and newer. `deferred` waits for a grammar or for LoRA weights: more engines do not help."""


@dataclass(frozen=True, slots=True)
class Signals:
    """PromQL of one pool, each a sum by some labels."""

    waiting: str
    running: str
    leaving: str
    """Requests a second whose first token came: they have left the queue. Of all counters the one
    that lags least."""
    waited_sum: str
    waited_count: str
    """What finished requests waited: observed when they finish, so late by their whole answer."""


def signals(matchers: str, by: str, window: str) -> Signals:
    """The signals of the engines that `matchers` select.

    Args:
        matchers: Label matchers, without braces.
        by: Labels that stay apart, separated by commas.
        window: What rates look back over, as PromQL writes it.
    """

    def gauge(field: str) -> str:
        name = next(each.names[0] for each in VLLM.gauges if each.field == field)
        return f"sum by ({by}) ({name}{{{matchers}}})"

    def rate(field: str, part: str) -> str:
        name = next(each.names[0] for each in VLLM.histograms if each.field == field)
        return f"sum by ({by}) (rate({name}_{part}{{{matchers}}}[{window}]))"

    capacity = f'sum by ({by}) ({_BY_REASON}{{{matchers},reason="capacity"}})'
    return Signals(
        waiting=f"({capacity} or {gauge('waiting')})",
        running=gauge("running"),
        leaving=rate("ttft", "count"),
        waited_sum=rate("queue", "sum"),
        waited_count=rate("queue", "count"),
    )
