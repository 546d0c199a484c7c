"""Work is there and no token leaves; /health may well answer 200 (ascend#13648)."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case, Scope, started
from speccli.core.findings._text import duration
from speccli.core.findings.base import FLEET, Finding, Hit, Rule, Thresholds
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot

CODE = "STALLED"


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """Judges every engine by its history; a summed fleet by its trail."""
    for scope in case.engines:
        if scope.engine is None:
            continue
        since, at = stuck_since(scope.engine), scope.engine.points[-1].at
        if since is not None and at - since >= thresholds.stalled_s:
            yield Hit(_finding(scope, at, since), badness=at - since)
    if case.snapshot.pooled is not None:
        since = _fleet_stuck_since(case.snapshot)
        if since is not None and case.snapshot.at - since >= thresholds.stalled_s:
            yield Hit(_finding(case.fleet, case.snapshot.at, since, FLEET))


def stuck_since(engine: EngineSnapshot) -> float | None:
    """Since when it has had work and produced nothing; None where it has not, or none can tell."""
    i = engine.increase.layout.index.get("generation_tokens") if engine.increase else None
    if i is None:
        return None
    last, begun, since = engine.points[-1].totals[i], started(engine) or 0.0, None
    for point in reversed(engine.points):
        busy = (point.running or 0) > 0 or (point.waiting or 0) > 0
        if not busy or point.totals[i] != last or point.at < begun:
            break
        since = point.at
    return since


def _fleet_stuck_since(snapshot: Snapshot) -> float | None:
    since = None
    for point in reversed(snapshot.trail):
        if point.generation_tokens != 0 or not point.running + point.waiting > 0:
            break
        since = point.at - point.seconds
    return since


def _finding(scope: Scope, at: float, since: float, name: str | None = None) -> Finding:
    running = sum(gauges.get("running", 0.0) for gauges in scope.subject.gauges)
    waiting = sum(gauges.get("waiting", 0.0) for gauges in scope.subject.gauges)
    evidence = (
        f"0 tokens in {duration(at - since)} with {running:.0f} running, {waiting:.0f} waiting"
    )
    if running > 0:
        cause = (
            "the engine makes no progress: a hung kernel or a worker that does not answer "
            "(vllm#41530, vllm#44185, ascend#13648); /health does not notice"
        )
        action = (
            "keep the log and a stack (py-spy dump --pid of EngineCore), then restart the engine; "
            "a prefill of very many tokens looks the same while it lasts"
        )
    else:
        cause = "nothing is scheduled: the engine is paused, or its KV cache cannot take a request"
        action = "POST /resume if it was paused; else look at kv_cache_usage and restart the engine"
    return Finding(CODE, "critical", name or scope.name, evidence, cause, action, since)


RULE = Rule(CODE, check)
