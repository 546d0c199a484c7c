"""Acceptance has stayed under the floor for the whole hold time."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case, Scope
from speccli.core.findings._text import accepted_of, duration
from speccli.core.findings.base import Finding, Hit, Rule, Thresholds
from speccli.core.findings.parallel_draft_cliff import cliff
from speccli.core.findings.zero_acceptance import nothing_accepted
from speccli.core.stats.increase import Pool
from speccli.core.stats.measures import acceptance_by_position
from speccli.core.stats.snapshot import EngineSnapshot

CODE = "LOW_ACCEPTANCE"
_PAUSE_S = 60.0
"""Seconds without a draft that end a run of low acceptance."""


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """Judges engines for which no other rule has a better name of the fault."""
    for scope, rate, held in _low(case, thresholds):
        if held >= thresholds.hold_s:
            yield Hit(_finding(scope, f"for {duration(held)}", thresholds), badness=-rate)


def waiting(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """What is as low, and has not been for the whole hold time."""
    for scope, rate, held in _low(case, thresholds):
        if held < thresholds.hold_s:
            lasting = f"for {duration(held)} of {duration(thresholds.hold_s)}"
            yield Hit(_finding(scope, lasting, thresholds), badness=-rate)


def _low(case: Case, thresholds: Thresholds) -> Iterator[tuple[Scope, float, float]]:
    """What is under the floor now: its rate, and seconds for which it has been."""
    for scope in case.scopes:
        rate = _rate(scope.pool, thresholds)
        if rate is None or rate >= thresholds.acceptance_floor or _recovered(scope, thresholds):
            continue
        if nothing_accepted(scope, thresholds) or cliff(scope, thresholds) is not None:
            continue
        yield scope, rate, _held_s(case, scope, thresholds)


def _rate(pool: Pool, thresholds: Thresholds) -> float | None:
    sums = pool.sums("accepted_tokens", "draft_tokens")
    if sums is None or sums[1] < max(1.0, thresholds.min_draft_tokens):
        return None
    return sums[0] / sums[1]


def _held_s(case: Case, scope: Scope, thresholds: Thresholds) -> float:
    """How long it has been low, seconds: as watched, or as long as the window it is low over.

    A pause is not low: of the window counts what comes after the last one.
    """
    engine, pool = scope.engine, scope.pool
    window = 0.0 if pool.since_start else pool.seconds or 0.0
    if engine is None:
        return window
    window = min(window, _busy_s(engine))
    if engine.low_since is None:
        return window
    at = case.snapshot.at if engine.at is None else engine.at
    return max(window, at - engine.low_since)


def _busy_s(engine: EngineSnapshot) -> float:
    """How long it has drafted without a pause, seconds; as far as its history goes."""
    i = engine.increase.layout.index.get("draft_tokens") if engine.increase else None
    if i is None:
        return 0.0
    points = engine.points
    busy = idle = 0.0
    for older, newer in zip(points[-2::-1], points[:0:-1], strict=True):
        if newer.totals[i] > older.totals[i]:
            busy, idle = points[-1].at - older.at, 0.0
        else:
            idle += newer.at - older.at
            if idle > _PAUSE_S:
                break
    return busy


def _recovered(scope: Scope, thresholds: Thresholds) -> bool:
    """Whether the last minute alone is back over the floor."""
    rate = _rate(scope.pools[0], thresholds)
    return rate is not None and rate >= thresholds.acceptance_floor


def _finding(scope: Scope, lasting: str, thresholds: Thresholds) -> Finding:
    floor = thresholds.acceptance_floor
    evidence = f"{accepted_of(scope.pool)}; under {floor:g} {lasting}"
    cause, action = _advice(scope, floor)
    since = scope.engine.low_since if scope.engine else None
    return Finding(CODE, "warning", scope.name, evidence, cause, action, since)


def _advice(scope: Scope, floor: float) -> tuple[str, str]:
    rates = [number.value for number in acceptance_by_position(scope.subject)]
    k, rate = _shorter(rates, floor)
    if k:
        return (
            f"K = {len(rates)} is long for this draft: first tokens are taken, last ones are not",
            f"num_speculative_tokens {k} would have {rate:.2f} accepted on this traffic",
        )
    if scope.method in {"ngram", "ngram_gpu", "suffix"}:
        return (
            "the traffic repeats itself little",
            "compare tokens/s with speculation off, or serve a trained draft",
        )
    return (
        "the draft does not know this traffic: prompts longer than it was trained on "
        "(speculators PR #684), another language or template, high temperature, a target changed "
        "by quantization or fine-tuning, or a slide that a restart ends (vllm#41838)",
        "send the same prompts to a freshly started engine: better there, restart this one; the "
        "same there, check draft revision and max_position_embeddings, then train the draft on "
        "this traffic",
    )


def _shorter(rates: list[float | None], floor: float) -> tuple[int, float]:
    """The longest K whose acceptance rate reaches the floor, and that rate; 0 if none does."""
    best, total = (0, 0.0), 0.0
    for k, rate in enumerate(rates[:-1], start=1):
        if rate is None:
            break
        total += rate
        if total / k >= floor:
            best = (k, total / k)
    return best


RULE = Rule(CODE, check)
