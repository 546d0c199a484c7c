"""Benches that never ran: what a load generator would have written, from planted speed-ups.

Runs differ by more than their requests explain, prompts differ in how well they are drafted, and
what drifts hits arms that take turns alike: the things that make a verdict wrong.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from speccli.core.bench.results import (
    Acceptance,
    Arm,
    Dataset,
    Load,
    Provenance,
    Result,
    Row,
    Samples,
)
from speccli.core.bench.spread import spread
from speccli.core.values import Number

RATES = {1: 200.0, 8: 1450.0, 32: 4500.0, 64: 7400.0, 128: 10300.0}
"""Output tokens per second without speculation, by batch."""
TTFT_S = {1: 0.017, 8: 0.024, 32: 0.047, 64: 0.14, 128: 0.32}


@dataclass(frozen=True)
class Planted:
    """One arm of a bench that never ran."""

    name: str
    speedup: Mapping[int, float]
    """By batch; 1 for the baseline."""
    method: str = "eagle3"
    k: int | None = 3
    positions: tuple[float, ...] = (0.65, 0.43, 0.31)


PLAIN = Planted("none", {}, "none", None, ())


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms."""

    run: float = 0.012
    """Of one arm's run, beyond what its requests explain."""
    drift: float = 0.03
    """Shared by arms that take turns."""
    prompt: float = 0.12
    """Of how well a prompt is drafted, beside the others."""
    request: float = 0.03


def bench(
    arms: Sequence[Planted],
    *,
    batches: Sequence[int] = (1, 8, 32, 64, 128),
    datasets: Sequence[str] = ("sharegpt",),
    prompts: int = 100,
    repeats: int = 3,
    noise: Noise = Noise(),
    seed: int = 1,
    target_output: int = 128,
) -> Result:
    """A whole result; the first arm is the baseline."""
    rng = random.Random(seed)
    sets = {name: [(f"{name}-{i}", rng.gauss(0, 1)) for i in range(prompts)] for name in datasets}
    habits = {
        (arm.name, prompt): rng.gauss(0, 1)
        for arm in arms
        for name in datasets
        for prompt, _ in sets[name]
    }
    rows = []
    for repeat in range(repeats):
        for dataset in datasets:
            for batch in batches:
                drift = rng.gauss(0, noise.drift)
                for arm in arms:
                    shift = drift + rng.gauss(0, noise.run)
                    factors = [
                        (
                            prompt,
                            math.exp(
                                0.1 * kind
                                + noise.prompt * habits[arm.name, prompt]
                                - noise.prompt**2 / 2
                                + rng.gauss(0, noise.request)
                            ),
                        )
                        for prompt, kind in sets[dataset]
                    ]
                    rows.append(
                        _row(arm, batch, dataset, repeat, factors, shift, rng, target_output)
                    )
    return Result(
        name="planted",
        created="2026-11-29T12:00:00+00:00",
        finished="2026-11-29T12:40:00+00:00",
        complete=True,
        simulated=True,
        provenance=Provenance(
            specctl="0.1.0",
            runner="specctl",
            host={"cpu": "simulated", "cores": 2, "os": "linux"},
            seed=seed,
            temperature=0.0,
            order="interleaved: arms take turns within every repeat",
        ),
        load=Load("closed", batches=tuple(batches), requests=prompts, repeats=repeats, warmup=4),
        datasets=tuple(
            Dataset(
                name,
                f"{name} 0.1.0",
                hashlib.sha256(name.encode()).hexdigest(),
                prompts,
                Number.known(129.0, n=prompts),
            )
            for name in datasets
        ),
        arms=tuple(
            Arm(
                name=arm.name,
                baseline=i == 0,
                engine={"kind": "vllm", "version": "0.32.0", "runner": "v2"},
                model="simulated-8b",
                method=arm.method,
                k=arm.k,
                draft=None if arm.k is None else f"simulated-{arm.name}",
                command=("vllm", "serve", "simulated-8b"),
                gpu_hour_usd=2.5,
            )
            for i, arm in enumerate(arms)
        ),
        rows=tuple(rows),
    )


def _row(
    arm: Planted,
    batch: int,
    dataset: str,
    repeat: int,
    factors: Sequence[tuple[str, float]],
    shift: float,
    rng: random.Random,
    tokens: int,
) -> Row:
    speed = arm.speedup.get(batch, 1.0) * math.exp(shift)
    each_s = batch / RATES[batch]
    ttft = [TTFT_S[batch] * math.exp(rng.gauss(shift, 0.2)) for _ in factors]
    e2e = [tokens * each_s / speed * factor + 1e-6 for _, factor in factors]
    ttft = [min(a, 0.5 * b) for a, b in zip(ttft, e2e, strict=True)]
    tpot = [(b - a) / (tokens - 1) for a, b in zip(ttft, e2e, strict=True)]
    out, n = tokens * len(factors), len(factors)
    return Row(
        arm=arm.name,
        batch=batch,
        rate=None,
        dataset=dataset,
        repeat=repeat,
        state="ok",
        started="2026-11-29T12:00:00+00:00",
        duration_s=math.fsum(e2e) / batch,
        requests=n,
        output_tokens=out,
        input_tokens=129 * n,
        contaminated=False,
        output_tokens_per_s=Number.known(batch * out / math.fsum(e2e), n=n),
        ttft_s=spread(ttft),
        tpot_s=spread(tpot),
        e2e_s=spread(e2e),
        acceptance=_acceptance(arm, out, rng),
        samples=Samples(
            prompt=tuple(prompt for prompt, _ in factors),
            start_s=tuple(i * each_s for i in range(n)),
            ttft_s=tuple(ttft),
            e2e_s=tuple(e2e),
            output_tokens=(tokens,) * n,
            input_tokens=(129,) * n,
            text_sha=tuple(hashlib.sha256(p.encode()).hexdigest()[:16] for p, _ in factors),
        ),
    )


def _acceptance(arm: Planted, out: int, rng: random.Random) -> Acceptance:
    if not arm.positions:
        return Acceptance.unknown("no speculation in this arm")
    length = 1 + sum(arm.positions)
    drafts = round(out / length)
    accepted = [round(drafts * p * math.exp(rng.gauss(0, 0.01))) for p in arm.positions]
    drafted = drafts * len(arm.positions)
    return Acceptance(
        source="per-request",
        rate=Number.known(sum(accepted) / drafted, n=drafted),
        length=Number.known(1 + sum(accepted) / drafts, n=drafts),
        by_position=tuple(Number.known(each / drafts, n=drafts) for each in accepted),
        tokens_per_step=Number.known(1 + sum(accepted) / drafts, n=drafts),
        drafts=drafts,
        draft_tokens=drafted,
        accepted_tokens=sum(accepted),
    )


def sweep(
    curves: Mapping[int, Mapping[int, float]],
    *,
    seed: int = 1,
    noise: Noise = Noise(),
    **options: Any,
) -> Result:
    """A sweep of K: speed-ups by K, then batch."""
    arms = [
        Planted(f"eagle3-k{k}", by_batch, k=k, positions=(0.65, 0.43, 0.31, 0.22, 0.16)[:k])
        for k, by_batch in curves.items()
    ]
    made = bench([PLAIN, *arms], seed=seed, noise=noise, **options)
    return replace(
        made, arms=tuple(replace(a, draft="head") if a.k is not None else a for a in made.arms)
    )


def without_samples(result: Result) -> Result:
    """The same as a tool that keeps no single requests would have written it."""
    return replace(result, rows=tuple(replace(row, samples=Samples()) for row in result.rows))
