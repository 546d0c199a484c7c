"""Every check, side by side, within one wall-clock deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from speccli.core.config import Settings
from speccli.core.doctor import cluster, prometheus, server
from speccli.core.doctor.base import AREAS, Check
from speccli.core.doctor.machine import MACHINE, Surroundings
from speccli.core.doctor.probe import in_daemon, visit
from speccli.core.errors import SpecctlError
from speccli.core.open import access_of
from speccli.core.sources.recording import Recording
from speccli.core.sources.scrape import Access
from speccli.core.sources.targets import Target, parse_target
from speccli.core.units import seconds

STEP_S = 5.0
"""Deadline of one step of one source, where none is set."""
WHOLE_STEPS = 3.0
"""Deadline of everything, in steps."""
_AT_ONCE = 32
_NO_SOURCE = "give --endpoint, --prometheus, --deployment or --replay, or set one in specctl.toml"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be looked at besides this machine."""

    settings: Settings
    replay: Path | None = None
    refused: str | None = None
    """Why the settings could not be loaded, so that sources are not known; None when they were."""


async def run(
    asked: Asked,
    around: Surroundings,
    *,
    whole_s: float | None = None,
    machine: Sequence[Callable[[Surroundings], object]] = MACHINE,
) -> list[Check]:
    """All checks, in the order of their areas.

    Args:
        asked: The sources, and how to be let in.
        around: Where specctl runs.
        whole_s: Wall clock for everything; None: three times the deadline of a step.
        machine: Which checks of this machine to make.

    Raises:
        UsageError: a deadline that is no duration, or too short for any answer.
    """
    given = asked.settings.deadline
    step_s = seconds(given, what="--deadline", least=0.1) if given else STEP_S
    local = [check for each in machine for check in each(around)]  # type: ignore[attr-defined]
    environment = around.environment
    found = local + await _sources(asked, step_s, whole_s or step_s * WHOLE_STEPS, environment)
    return sorted(found, key=lambda check: AREAS.index(check.area))


async def _sources(
    asked: Asked, step_s: float, whole_s: float, environment: Mapping[str, str]
) -> list[Check]:
    settings = asked.settings
    if asked.refused is not None:
        why = "settings have to be right first"
        return [Check("source", "sources", "skip", "not looked at", why, asked.refused)]
    in_cluster = cluster.wanted(settings)
    unasked = [] if in_cluster else cluster.unasked(environment)
    if not (settings.endpoint or settings.prometheus or asked.replay or in_cluster):
        return [Check("source", "sources", "skip", "no source given", fix=_NO_SOURCE), *unasked]
    access = access_of(settings)
    checks = [*_access(access), *unasked]
    if any(check.state == "fail" for check in checks):
        return checks
    jobs: list[tuple[str, Awaitable[list[Check]]]] = []
    limit = asyncio.Semaphore(_AT_ONCE)
    targets: dict[str, Target] = {}
    for text in settings.endpoint or ():
        try:
            target = parse_target(text)
        except SpecctlError as error:
            checks.append(Check("source", "URL", "fail", error.message, fix=error.hint or ""))
        else:
            targets.setdefault(target.name, target)
    for target in targets.values():
        jobs.append((target.name, _server(target, access, settings.method, step_s, limit)))
    if settings.prometheus:
        jobs.append((settings.prometheus, _prometheus(settings, access, step_s)))
    if in_cluster:
        subject = settings.context or settings.kubeconfig or settings.deployment or ""
        jobs.append((subject, in_daemon(lambda: cluster.look(settings, step_s, environment))))
    if asked.replay:
        jobs.append((str(asked.replay), in_daemon(lambda: _recording(asked.replay))))
    return checks + await _within(jobs, whole_s)


async def _within(
    jobs: Sequence[tuple[str, Awaitable[list[Check]]]], whole_s: float
) -> list[Check]:
    """What each job found; one that is late is cancelled and gives what it knows, or says so."""
    tasks = [asyncio.ensure_future(job) for _, job in jobs]
    if not tasks:
        return []
    _, late = await asyncio.wait(tasks, timeout=whole_s)
    for task in late:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    found: list[Check] = []
    for (subject, _), outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, asyncio.CancelledError):
            what = f"not finished within {whole_s:g} s"
            fix = "give a longer --deadline, or fewer sources"
            found.append(Check("source", "reach", "unknown", what, fix=fix, subject=subject))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            found += outcome
    return found


async def _server(
    target: Target, access: Access, method: str | None, step_s: float, limit: asyncio.Semaphore
) -> list[Check]:
    async with limit:
        seen = await visit(target, access, deadline_s=step_s, method=method)
    return [check for each in server.SERVER for check in each(seen)]


async def _prometheus(settings: Settings, access: Access, step_s: float) -> list[Check]:
    url = settings.prometheus or ""
    looked = prometheus.look(url, settings.selector, access, deadline_s=step_s)
    return [replace(check, subject=check.subject or "--prometheus") async for check in looked]


def _access(access: Access) -> list[Check]:
    """Can the files that let us in be used?"""
    checks: list[Check] = []
    for name, attempt, files in (
        ("token", access.bearer, (access.token_file,)),
        ("certificates", access.ssl_context, (access.ca_file, access.cert_file)),
    ):
        named = [str(file) for file in files if file]
        if not named:
            continue
        try:
            attempt()
        except SpecctlError as error:
            checks.append(Check("source", name, "fail", error.message, fix=error.hint or ""))
        else:
            checks.append(Check("source", name, "ok", "readable", subject=", ".join(named)))
    return checks


def _recording(path: Path | None) -> list[Check]:
    """Can every line of it be read?"""
    subject = str(path)
    try:
        recording = Recording(path or Path())
        scrapes = list(recording)
    except SpecctlError as error:
        return [Check("source", "recording", "fail", error.message, fix=error.hint or "")]
    answered = sum(scrape.error is None for scrape in scrapes)
    targets = len({scrape.target for scrape in scrapes})
    what = f"{len(scrapes):,} scrapes of {targets} targets, {answered:,} answered"
    if recording.note:
        why = "what comes before can be replayed"
        return [Check("source", "recording", "warn", f"{what}; {recording.note}", why, "", subject)]
    return [Check("source", "recording", "ok", what, subject=subject)]
