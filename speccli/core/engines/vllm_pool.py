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
    """Requests that an engine had waiting throughout `held`. A request that has just come waits for
    the step under way, and a scrape may see it: at few departures a second that one request would
    read as seconds of queue, and a pool that has such a reading in every scale-down window never
    scales in."""
    running: str
    leaving: str
    """Requests a second whose first token came: they have left the queue. Of all counters the one
    that lags least."""
    waited_sum: str
    waited_count: str
    """What finished requests waited: observed when they finish, so late by their whole answer."""


def signals(matchers: str, by: str, window: str, held: str) -> Signals:
    """The signals of the engines that `matchers` select.

    Args:
        matchers: Label matchers, without braces.
        by: Labels that stay apart, separated by commas.
        window: What rates look back over, as PromQL writes it.
        held: How long a request must have waited to be counted; a few scrapes.
    """

    def name(field: str) -> str:
        return next(each.names[0] for each in VLLM.gauges if each.field == field)

    def least(series: str) -> str:
        return f"sum by ({by}) (min_over_time({series}[{held}]))"

    def rate(field: str, part: str) -> str:
        family = next(each.names[0] for each in VLLM.histograms if each.field == field)
        return f"sum by ({by}) (rate({family}_{part}{{{matchers}}}[{window}]))"

    capacity = least(f'{_BY_REASON}{{{matchers},reason="capacity"}}')
    waiting = least(f"{name('waiting')}{{{matchers}}}")
    return Signals(
        waiting=f"({capacity} or {waiting})",
        running=f"sum by ({by}) ({name('running')}{{{matchers}}})",
        leaving=rate("ttft", "count"),
        waited_sum=rate("queue", "sum"),
        waited_count=rate("queue", "count"),
    )
