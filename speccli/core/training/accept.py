"""What a head is worth: acceptance on held-out prompts, from a real server that loads it.

A bench of one arm a head, so that the table is made of the same numbers as every other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from speccli.core.bench.arms import Local
from speccli.core.bench.datasets import Prompts
from speccli.core.bench.form import read
from speccli.core.bench.measure import Sampling
from speccli.core.bench.progress import Progress
from speccli.core.bench.results import Load, Result
from speccli.core.bench.run import Spec
from speccli.core.bench.run import run as bench

FILE = "acceptance.json"
BATCH = 8


def arms(target: str, heads: Sequence[tuple[str, Path]], method: str, k: int) -> tuple[Local, ...]:
    """One server a head: `(name, folder)`."""
    parallel: dict[str, Any] = {"parallel_drafting": True} if method == "p-eagle" else {}
    return tuple(
        Local(
            name,
            target,
            {
                "method": "eagle3",
                "model": str(folder),
                "num_speculative_tokens": k,
                **parallel,
            },
            ("--no-enable-prefix-caching",),
        )
        for name, folder in heads
    )


def accept(
    made: tuple[Local, ...],
    tests: Sequence[Prompts],
    *,
    out: Path,
    prompts: int,
    max_tokens: int,
    progress: Progress,
    extra_args: Sequence[str] = (),
) -> Result:
    """Measure the heads greedily on the first `prompts` of each test; kept in `out`.

    Raises:
        SpecctlError: a server did not start: the head is not one that this engine loads.
    """
    file = out / FILE
    before = read(file) if file.exists() else None
    spec = Spec(
        name="acceptance",
        out=file,
        arms=tuple(replace(a, extra_args=(*a.extra_args, *extra_args)) for a in made),
        baseline=made[0].name,
        datasets=tuple(tests),
        load=Load(
            kind="closed",
            batches=(BATCH,),
            rates=(),
            requests=prompts,
            seconds=None,
            output_tokens=None,
            max_tokens=max_tokens,
            warmup=0,
            repeats=1,
            endpoint="chat",
            window="whole",
        ),
        sampling=Sampling(
            max_tokens=max_tokens, output_tokens=None, temperature=0.0, top_p=None, api="chat"
        ),
        command="specctl draft train",
        logs=out / "work",
    )
    return asyncio.run(bench(spec, progress, before))
