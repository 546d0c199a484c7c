"""Recording rules made of the recorded sums: ratios, queue wait, percentiles.

Their names keep clear of `:rate2m`, `:sum`, `:max` and `:count`, by which `specctl --prometheus`
finds the sums that it pools itself. Division keeps the series apart by namespace, model and kind.
"""

from __future__ import annotations

from typing import Any

from speccli.core.engines.registry import ADAPTERS
from speccli.core.sources.promql import LEVEL, Fleet

CAP_MS = 60_000
"""Longest queue wait that is told: what scales by it must not be told infinity."""
ACCEPTANCE = "specctl:acceptance_rate:ratio2m"
LENGTH = "specctl:acceptance_length:ratio2m"
AT = "specctl:acceptance_at:ratio2m"
WASTED = "specctl:wasted_draft_tokens:per_second"
QUEUE_WAIT = "specctl:queue_wait_ms"
BATCH = "specctl:batch_size:ratio2m"
ENGINES = "specctl:engines:present"


def p99(field: str) -> str:
    """The name under which a latency's 99th percentile is recorded, seconds."""
    return f"specctl:{field}_seconds:p99_2m"


def bare(name: str) -> str:
    """A recorded sum without the label that says which it is."""
    return f"sum without (slot) ({name})"


def derived_rules() -> list[dict[str, Any]]:
    """The rules, in an order in which each finds what it is made of."""
    accepted, drafted = bare("specctl:accepted_tokens:rate2m"), bare("specctl:draft_tokens:rate2m")
    drafts = bare("specctl:drafts:rate2m")
    steps = bare("specctl:steps:rate2m")
    served = f"{bare('specctl:ttft_count:rate2m')} + {bare('specctl:itl_count:rate2m')}"
    at, of = bare("specctl:accepted_at:rate2m"), bare("specctl:drafts_at:rate2m")
    rules: list[dict[str, Any]] = [
        {"record": ACCEPTANCE, "expr": f"{accepted} / ({drafted} > 0)"},
        {"record": LENGTH, "expr": f"1 + {accepted} / ({drafts} > 0)"},
        {"record": AT, "expr": f"{at} / ({of} > 0)"},
        {"record": WASTED, "expr": f"{drafted} - {accepted}"},
        {"record": BATCH, "expr": f"({served}) / ({steps} > 0)"},
        {"record": QUEUE_WAIT, "expr": _queue_wait()},
    ]
    for field in ("ttft", "itl", "tpot"):
        buckets = bare(f"specctl:{field}_bucket:rate2m")
        rules.append({"record": p99(field), "expr": f"histogram_quantile(0.99, {buckets})"})
    rules += [
        {"record": ENGINES, "expr": _engines(adapter.kind), "labels": {"engine_kind": adapter.kind}}
        for adapter in ADAPTERS
    ]
    return rules


def _queue_wait() -> str:
    return queue_wait(
        bare("specctl:requests_waiting:sum"),
        bare("specctl:queue_sum:rate2m"),
        bare("specctl:queue_count:rate2m"),
        bare("specctl:ttft_count:rate2m"),
    )


def queue_wait(waiting: str, total: str, count: str, leaving: str) -> str:
    """The larger of what finished requests waited and what one that comes now will; never NaN.

    Args:
        waiting: Requests that wait.
        total: Growth of the seconds that finished requests waited.
        count: Growth of their number.
        leaving: Requests that leave the queue a second.
    """
    observed = f"(1000 * {total} / {count} >= 0) or 0 * {waiting}"
    backlog = (
        f"clamp_max(1000 * {waiting} / ({leaving} > 0), {CAP_MS}) "
        f"or ({waiting} > 0) * 0 + {CAP_MS} or 0 * {waiting}"
    )
    return f"(({observed}) > ({backlog})) or ({backlog})"


def _engines(kind: str) -> str:
    adapter = next(a for a in ADAPTERS if a.kind == kind)
    gauges = {slot: expression for slot, expression in Fleet(adapter, by=LEVEL).gauges()}
    return gauges["running"].replace("sum by", "count by", 1)
