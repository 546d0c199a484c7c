"""A bench with whatever puts the load on: specctl itself, `vllm bench serve` or AIPerf."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from speccli.core.bench.aiperf_profile import AiperfProfile
from speccli.core.bench.arms import Remote
from speccli.core.bench.by_tool import ByTool, Tool
from speccli.core.bench.measure import MeasureRow, measure
from speccli.core.bench.progress import Progress
from speccli.core.bench.results import Result
from speccli.core.bench.run import Spec, run
from speccli.core.bench.vllm_serve import VllmServe
from speccli.core.errors import UsageError

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
        "--dcgm": spec.dcgm is not None,
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
    """
    measure_row: MeasureRow = measure
    if spec.runner != OURS:
        measure_row = ByTool(TOOLS[spec.runner](), spec)
    return asyncio.run(run(spec, progress, before, measure_row))
