"""Recording rules that autoscaling reads: one number a pool, never NaN, every ten seconds.

The fleet's own rules add up by namespace and model; a pool is scaled by its own requests alone.
Names keep clear of `:rate2m`, `:sum`, `:max` and `:count`, by which `specctl --prometheus` finds
the sums that it pools.
"""

from __future__ import annotations

from typing import Any

from speccli.core.engines.vllm_pool import signals
from speccli.core.manifests import names
from speccli.core.sources.derived import queue_wait

QUEUE_WAIT = "specctl:pool_queue_wait_ms"
RUNNING = "specctl:pool_requests_running"
WAITING = "specctl:pool_requests_waiting"
DEPARTURES = "specctl:pool_departures_per_second"

INTERVAL = "10s"
WINDOW = "1m"
"""Twelve scrapes of the PodMonitor's."""
HELD = "20s"
"""Four scrapes."""

LEVEL = f"namespace,{names.DEPLOYMENT_LABEL},{names.POOL_LABEL}"


def scope(deployment: str, namespace: str) -> str:
    """Matchers of one deployment's engines, as its PodMonitor labels them."""
    return f'namespace="{namespace}",{names.DEPLOYMENT_LABEL}="{deployment}"'


def scaling_group(deployment: str, namespace: str) -> dict[str, Any]:
    """The rules of one deployment's pools."""
    raw = signals(scope(deployment, namespace), LEVEL, WINDOW, HELD)
    here = f"{{{scope(deployment, namespace)}}}"
    wait = queue_wait(f"{WAITING}{here}", raw.waited_sum, raw.waited_count, f"{DEPARTURES}{here}")
    rules = (
        (WAITING, raw.waiting.removeprefix("(").removesuffix(")")),
        (RUNNING, raw.running),
        (DEPARTURES, raw.leaving),
        (QUEUE_WAIT, wait),
    )
    return {
        "name": f"specctl-{deployment}-scaling",
        "interval": INTERVAL,
        "rules": [{"record": record, "expr": expression} for record, expression in rules],
    }
