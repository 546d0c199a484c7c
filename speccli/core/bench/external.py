"""A bench with whatever puts the load on: specctl itself, `vllm bench serve` or AIPerf."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from speccli.core.bench.aiperf_profile import AiperfProfile
from speccli.core.bench.arms import Remote
from speccli.core.bench.by_tool import ByTool, Tool
from speccli.core.bench.measure import MeasureRow, measure
from speccli.core.bench.progress import Progress
from speccli.core.bench.results import Result
from speccli.core.bench.run import Spec, run
from speccli.core.bench.vllm_serve import VllmServe
from speccli.core.errors import UsageError
from speccli.core.stopping import told_to_stop

OURS = "specctl"
TOOLS: dict[str, Callable[[], Tool]] = {"vllm-bench": VllmServe.here, "aiperf": AiperfProfile.here}
COUNTS_ALL = (
    "another tool counts from the first request to the last answer, ramp and tail included, and "
    "asks for prompts of the measured ones while it warms up"
)


def possible(spec: Spec) -> None:
    """Refuse what the runner cannot do, rather than measure something else.

    Raises:
        UsageError: with what it is.
    """
    if spec.runner == OURS:
        if spec.tokenizer is not None:
            raise UsageError("--tokenizer is for other runners", hint="leave it out")
        return
    several = [d.name for d in spec.datasets if any(len(p.messages) > 1 for p in d.prompts)]
    access = spec.access
    refused = {
        "--seconds": spec.load.seconds is not None,
        "--keep-texts": spec.keep_texts,
        "--dcgm and --nvml": spec.dcgm is not None or spec.nvml,
        "--request-seeds": spec.sampling.request_seeds,
        "answers held to a JSON schema": any(p.schema for d in spec.datasets for p in d.prompts),
        "--ca, --cert and --key": bool(access.ca_file or access.cert_file or access.key_file),
        "a user and password in an address": any(
            isinstance(arm, Remote) and arm.target.user is not None for arm in spec.arms
        ),
        "--token and --insecure": spec.runner == "aiperf"
        and bool(access.token or access.token_file or access.insecure),
        f"dataset {', '.join(several)} (more than one message a prompt)": bool(several),
    }
    for what, asked in refused.items():
        if asked:
            raise UsageError(
                f"--runner {spec.runner} has no way to do this: {what}",
                hint="leave that out, or use --runner specctl",
            )


def run_with(spec: Spec, before: Result | None, progress: Progress) -> Result:
    """Run it to its end.

    Raises:
        SpecctlError: the runner is not on this machine.
        ToldToStop: by a signal.
    """
    measure_row: MeasureRow = measure
    if spec.runner != OURS:
        measure_row = ByTool(TOOLS[spec.runner](), spec)
    return asyncio.run(_until_told(run(spec, progress, before, measure_row)))


class ToldToStop(KeyboardInterrupt):
    """A signal ended the bench; what was measured is kept, what was started is stopped."""

    def __init__(self, number: int) -> None:
        """`number`: of the signal."""
        super().__init__(number)
        self.number = number


async def _until_told(bench: Coroutine[Any, Any, Result]) -> Result:
    with told_to_stop() as stop:
        task = asyncio.ensure_future(bench)
        either: set[asyncio.Future[Any]] = {task, stop}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            raise ToldToStop(stop.result())
        return task.result()
