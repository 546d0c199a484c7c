"""A bench with whatever puts the load on."""

from __future__ import annotations

import asyncio

from speccli.core.bench.asked import Plan
from speccli.core.bench.progress import Progress
from speccli.core.bench.results import Result
from speccli.core.bench.run import run


def run_with(runner: str, plan: Plan, progress: Progress) -> Result:
    """Run it to its end."""
    return asyncio.run(run(plan.spec, progress, plan.before))
