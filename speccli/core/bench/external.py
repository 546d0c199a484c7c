"""A bench with whatever puts the load on: specctl itself, or `vllm bench serve`."""

from __future__ import annotations

import asyncio

from speccli.core.bench.arms import Remote
from speccli.core.bench.measure import MeasureRow, measure
from speccli.core.bench.progress import Progress
from speccli.core.bench.results import Result
from speccli.core.bench.run import Spec, run
from speccli.core.bench.vllm_serve import VllmServe
from speccli.core.errors import UsageError

OURS = "specctl"
VLLM = "vllm-bench"
COUNTS_ALL = (
    "vllm bench serve counts from the first request to the last answer, ramp and tail included; "
    "its warm-up is the first prompt, several times"
)


def possible(spec: Spec) -> None:
    """Refuse what the runner cannot do, rather than measure something else.

    Raises:
        UsageError: with what it is.
    """
    if spec.runner == OURS:
        if spec.tokenizer is not None:
            raise UsageError("--tokenizer is for --runner vllm-bench", hint="leave it out")
        return
    if spec.runner != VLLM:
        raise UsageError(
            f"--runner {spec.runner} cannot be called from here",
            hint="run `aiperf profile` on each arm, then `specctl bench import ARM=FOLDER …`",
        )
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
        f"dataset {', '.join(several)} (more than one message a prompt)": bool(several),
    }
    for what, asked in refused.items():
        if asked:
            raise UsageError(
                f"--runner vllm-bench has no way to do this: {what}",
                hint="leave that out, or use --runner specctl",
            )


def run_with(spec: Spec, before: Result | None, progress: Progress) -> Result:
    """Run it to its end.

    Raises:
        SpecctlError: the runner is not on this machine.
    """
    measure_row: MeasureRow = measure if spec.runner == OURS else VllmServe.of(spec)
    return asyncio.run(run(spec, progress, before, measure_row))
