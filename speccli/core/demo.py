"""The demonstration: a fleet, a deliberate fault, and the finding it raises."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from speccli.core.config import Settings
from speccli.core.findings import evaluate
from speccli.core.findings.base import Finding
from speccli.core.open import Opened
from speccli.core.stats.snapshot import Event, Snapshot

ENGINES = 4
WINDOW = "5s"
HOLD = "3s"
FLOOR = 0.3
"""Far enough under what the draft has, 0.5, that a few drafts do not fall under it by chance."""
DROP_AT_S = 6.0
LASTING_S = 16.0
ON_SCREEN_S = 20.0
"""When the draft goes bad on the screen, for which there is time to look first."""
GPU_HOUR_USD = 2.5
"""Illustrative, and said to be."""
GPUS_PER_ENGINE = 4
SCENARIO = ("--scenario", "drop", "--speed", f"{20.0 / DROP_AT_S:.3f}", "-k", "4")
ABOUT_ACCEPTANCE = frozenset(
    {"LOW_ACCEPTANCE", "ZERO_ACCEPTANCE", "PARALLEL_DRAFT_CLIFF", "ACCEPTANCE_DRIFT"}
)


def settings_for(urls: list[str], floor: float = FLOOR) -> Settings:
    """What the demonstration asks of its fleet: a short window and a short hold."""
    return Settings(
        endpoint=tuple(urls),
        window=WINDOW,
        hold=HOLD,
        floor=floor,
        gpu_hour_usd=GPU_HOUR_USD,
        gpus_per_engine=GPUS_PER_ENGINE,
    )


@dataclass(frozen=True, slots=True)
class Watched:
    """What a headless run saw."""

    before: Snapshot | None
    """Before the fault."""
    after: Snapshot
    findings: tuple[Finding, ...]
    """Every finding about acceptance, once each, then what holds at the end."""


async def watch(
    opened: Opened,
    *,
    before: Callable[[Snapshot], None],
    event: Callable[[Event], None],
    found: Callable[[Finding], None],
    fault: Callable[[], None] | None = None,
    drop_at_s: float = DROP_AT_S,
    lasting_s: float = LASTING_S,
    clock: Callable[[], float] = time.monotonic,
) -> Watched:
    """Watch for `lasting_s`: report the status before the fault, events, and findings as they rise.

    `fault`: what brings the fault about at `drop_at_s`, where the fleet does not do it by itself.
    """
    began = clock()
    first: Snapshot | None = None
    told_events = 0
    told: dict[tuple[str, str], Finding] = {}
    snapshot: Snapshot | None = None
    findings: tuple[Finding, ...] = ()
    faulted = False
    try:
        async for snapshot in opened.poller.snapshots():
            elapsed = clock() - began
            if first is None and elapsed >= drop_at_s - 1.0:
                first = snapshot
                before(snapshot)
            if fault is not None and not faulted and elapsed >= drop_at_s:
                faulted = True
                fault()
            for happened in snapshot.events[told_events:]:
                event(happened)
            told_events = len(snapshot.events)
            findings = evaluate(snapshot, opened.thresholds)
            for finding in findings:
                key = (finding.code, finding.subject)
                if finding.code in ABOUT_ACCEPTANCE and key not in told:
                    told[key] = finding
                    found(finding)
            if elapsed >= lasting_s:
                break
    finally:
        await opened.poller.source.aclose()
    assert snapshot is not None
    return Watched(
        first, snapshot, tuple({**told, **{(f.code, f.subject): f for f in findings}}.values())
    )
