"""Kernels that are wrong on purpose: each must be caught, and by the check that is meant for it."""

from __future__ import annotations

import re

from kernels_check.child import resolve
from kernels_check.model import Check, Context, Passed, Wrong


def caught(context: Context) -> Passed:
    """Run the check on the mutant; passing means that the check failed, for the right reason."""
    options = dict(context.options)
    target, reason = options.pop("target"), options.pop("reason")
    check = Check("mutant", target, "", options=options)
    try:
        outcome = resolve(check)(Context(context.seed, options))
    except Wrong as wrong:
        if re.search(reason, wrong.evidence):
            return Passed(f"caught: {wrong.evidence}", {"caught_by": target})
        raise Wrong(f"caught for another reason than {reason!r}: {wrong.evidence}") from wrong
    raise Wrong(f"not caught: {outcome.evidence}")


def original(context: Context) -> Passed:
    """The kernels as they are, under the same checks, other seeds each time: not one alarm."""
    runs = int(context.options.get("runs", 20))
    targets = context.options["targets"]
    first = int(context.options.get("from", 0))
    for turn in range(first, first + runs):
        for target, options in targets:
            check = Check("original", target, "", options=options)
            seed = context.seed + 1009 * (turn + 1)
            try:
                resolve(check)(Context(seed, options))
            except Wrong as wrong:
                raise Wrong(f"run {turn + 1}, seed {seed}, {target}: {wrong.evidence}") from wrong
    return Passed(f"{runs} runs of {len(targets)} checks, each with another seed, no alarm")
