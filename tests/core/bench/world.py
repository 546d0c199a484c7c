"""Simulated servers that a bench can run against in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from speccli.core.bench import asked
from speccli.core.bench.asked import Asked, Plan
from speccli.core.bench.progress import Progress
from speccli.core.bench.results import Result
from speccli.core.bench.run import run
from speccli.core.sim import Fleet, Replica, SimConfig, SimEngine, Traffic
from speccli.core.sim.config import Method, StepCost, default_acceptance
from speccli.core.sim.fleet import ScaledClock

QUICK = StepCost(base_s=0.002, token_s=0.0, prefill_token_s=0.0, draft_s=0.0, jitter=0.0)


def replica(
    method: Method = "eagle3", *, k: int = 3, rate: float = 0.0, seed: int = 0, **given: Any
) -> Replica:
    """A quick server; `rate`: requests a second that are somebody else's."""
    k = 0 if method == "none" else k
    config = replace(
        SimConfig(
            method=method,
            k=k,
            acceptance=default_acceptance(method, k, 0.7 if k else None),
            traffic=Traffic(rate_per_s=rate, prompt_mean=64, output_mean=40),
            cost=QUICK,
        ),
        **given,
    )
    clock = ScaledClock()
    return Replica("sim", [SimEngine(config, clock, seed=seed)])


def fleet(*replicas: Replica) -> Fleet:
    """Several servers."""
    return Fleet(replicas, ScaledClock())


def plan(out: Path, urls: dict[str, str], **given: Any) -> Plan:
    """A small bench of these arms."""
    arms: Sequence[str] = [f"{name}={url}" for name, url in urls.items()]
    usual: dict[str, Any] = {"batch": "2", "requests": "6", "max_tokens": 24, "warmup": 2}
    usual["repeats"] = 1
    return asked.plan(Asked(arm=arms, out=out, **(usual | given)))


async def bench(out: Path, urls: dict[str, str], **given: Any) -> Result:
    """Its result."""
    made = plan(out, urls, **given)
    return await run(made.spec, Progress(), made.before)
