"""From settings to probes and canaries, and from their results to a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speccli.core.alert.confirm import Said
from speccli.core.alert.examine import Terms
from speccli.core.alert.judge import Judge
from speccli.core.alert.probe.canary import Run, baseline_of, canary, running_key
from speccli.core.alert.probe.outcome import Probed
from speccli.core.alert.probe.run import client_of, probe
from speccli.core.alert.verdict import Verdict, verdict_of
from speccli.core.baseline import Baseline
from speccli.core.config import Settings
from speccli.core.deadline import Clock
from speccli.core.errors import UsageError
from speccli.core.findings.base import Finding
from speccli.core.sources.scrape import Access
from speccli.core.sources.targets import Target, parse_targets
from speccli.core.units import seconds

DEADLINE_S = 180.0
_HINT = "give --endpoint http://host:8000"


def targets_of(
    settings: Settings, plain: str | None, *, replay: Path | None
) -> tuple[tuple[Target, ...], Target | None, float]:
    """Servers to ask, the one without speculation, and the deadline, seconds.

    Raises:
        UsageError: there is nothing that can be asked.
    """
    if replay is not None or not settings.endpoint:
        raise UsageError(
            "requests are sent to servers, not to recordings or Prometheus", hint=_HINT
        )
    text = settings.deadline
    limit_s = seconds(text, what="--deadline", least=1) if text else DEADLINE_S
    other = parse_targets([plain])[0] if plain else None
    return tuple(parse_targets(list(settings.endpoint))), other, limit_s


async def probed(
    targets: Sequence[Target], plain: Target | None, access: Access, clock: Clock
) -> Probed:
    """Every probe of every server."""
    return await probe(targets, plain, access, deadline_s=clock.left)


async def canaried(
    targets: Sequence[Target],
    access: Access,
    clock: Clock,
    terms: Terms,
    record: str | None,
) -> tuple[Verdict, list[Run], Baseline | None]:
    """The canary on every server: the verdict, the runs, and what is to be kept.

    Raises:
        UsageError: several servers are to be recorded as one.
        SpecctlError: a server cannot be asked, or says too little to be recorded.
    """
    if record and len(targets) > 1:
        raise UsageError("--record keeps the run of one server", hint="give one --endpoint")
    runs, findings = [], list[Finding]()
    for target in targets:
        async with client_of(target, access, clock.left) as client:
            run = await canary(target, access, client, deadline_s=min(10.0, clock.left))
        runs.append(run)
        findings += judged(run, terms)
    kept = baseline_of(runs[0], record) if record else None
    base = terms.baseline
    verdict = verdict_of(
        runs[0].snapshot,
        Said(tuple(findings), (), ()),
        terms.thresholds,
        require_traffic=True,
        baseline=None if base is None else (base.name, base.rate),
    )
    return verdict, runs, kept


def judged(run: Run, terms: Terms) -> tuple[Finding, ...]:
    """What one run says."""
    if run.contaminated:
        share = 100 * (run.foreign or 0.0)
        other = Finding(
            "PARTIAL_DATA",
            "unknown",
            run.target.split("://")[-1],
            f"{share:.0f} % of the tokens counted were other traffic's",
            "counters tell of the canary and of everybody else",
            "run it while nobody else uses the server, or let answers carry their own metrics",
        )
        return (other,)
    judge = Judge(terms.baseline, terms.thresholds, running=running_key(), force=terms.force)
    return judge.observe(run.snapshot)
