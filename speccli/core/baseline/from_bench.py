"""A baseline of a bench: an arm's acceptance on a fixed set of prompts, and its speed by batch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from speccli.core.baseline.model import Baseline, BatchSpeed, Key
from speccli.core.bench.compare import baseline_of
from speccli.core.bench.results import Arm, Result, Row
from speccli.core.errors import UsageError
from speccli.core.stats.drift import Dispersion, per_draft_variance

_TOLERANCE = 0.02
"""Share of the length a fixed set of prompts may lose: what vLLM's own acceptance tests allow."""
_CLUSTERING = 2.0
"""Drafts of one request resemble each other; a bench repeats its requests, so less than traffic."""
_FULL = 0.9
"""Share of K that drafts must reach for positions to share one denominator."""


def of_bench(result: Result, arm: str | None, name: str, told: Key) -> Baseline:
    """The baseline of an arm; its datasets together, or the one that `told.dataset` names.

    Raises:
        UsageError: there is no such arm, several that it may be, or no acceptance in its rows.
    """
    chosen = _arm(result, arm)
    rows = _rows(result, chosen, told.dataset)
    drafts, drafted, accepted = (
        sum(getattr(row.acceptance, part) or 0 for row in rows)
        for part in ("drafts", "draft_tokens", "accepted_tokens")
    )
    rate, positions = accepted / drafted, _positions(rows, chosen, drafts, drafted)
    scatter = Dispersion(per_draft=per_draft_variance(positions, rate), clustering=_CLUSTERING)
    names = list(dict.fromkeys(row.dataset for row in rows))
    requests = sum(row.requests for row in rows)
    return Baseline(
        name=name,
        key=told.over(_key(result, chosen, "+".join(names))),
        rate=rate,
        length=1 + accepted / drafts,
        positions=positions,
        drafts=float(drafts),
        origin="imported",
        created=result.created,
        source=f"bench {result.name}, arm {chosen.name}, {requests:,} requests",
        simulated=result.simulated,
        stand_in=result.stand_in,
        tolerance=_TOLERANCE,
        prompt_tokens=_per_request(rows, "input_tokens", requests),
        output_tokens=_per_request(rows, "output_tokens", requests),
        fleet=scatter,
        engine=scatter,
        speed=speeds(result, chosen.name),
        plain=_plain(result, chosen),
    )


def speeds(result: Result, arm: str) -> tuple[BatchSpeed, ...]:
    """Output of one engine by batch, over datasets and repeats; closed loops only.

    Raises:
        UsageError: no row of it has a batch and a rate.
    """
    by_batch: dict[int, list[Row]] = {}
    for row in result.rows_of(arm):
        if row.batch is not None and row.output_tokens_per_s.value:
            by_batch.setdefault(row.batch, []).append(row)
    if not by_batch:
        raise UsageError(f"arm {arm} has no row with a batch and a rate")
    return tuple(
        BatchSpeed(
            float(batch),
            round(fmean(row.output_tokens_per_s.value or 0.0 for row in rows), 2),
            round(sum(row.duration_s or 0.0 for row in rows), 1),
        )
        for batch, rows in sorted(by_batch.items())
    )


def _plain(result: Result, chosen: Arm) -> tuple[BatchSpeed, ...]:
    """The arm that speculation has to beat, where the bench has it."""
    try:
        base = baseline_of(result, None)
        return speeds(result, base) if base != chosen.name else ()
    except UsageError:
        return ()


def _arm(result: Result, name: str | None) -> Arm:
    names = [arm.name for arm in result.arms]
    if name is not None:
        if name not in names:
            raise UsageError(f"there is no arm {name}", hint=f"there are {', '.join(names)}")
        return result.arm(name)
    told = {row.arm for row in result.rows if row.usable and row.acceptance.drafts}
    found = [arm for arm in result.arms if arm.name in told]
    if len(found) != 1:
        what = "several arms have" if found else "no arm has"
        hint = f"--arm, one of {', '.join(arm.name for arm in found)}" if found else None
        raise UsageError(f"{what} acceptance in {result.name}", hint=hint)
    return found[0]


def _rows(result: Result, arm: Arm, dataset: str | None) -> list[Row]:
    rows = [row for row in result.rows_of(arm.name) if row.acceptance.draft_tokens]
    if dataset in {each.name for each in result.datasets}:
        rows = [row for row in rows if row.dataset == dataset]
    if not rows:
        raise UsageError(
            f"no row of arm {arm.name} has acceptance",
            hint="`rows[].acceptance` of the file says why",
        )
    return rows


def _positions(rows: Sequence[Row], arm: Arm, drafts: int, drafted: int) -> tuple[float, ...]:
    """Weighted by drafts; none where draft lengths vary, since they share no denominator."""
    k = arm.k or max(len(row.acceptance.by_position) for row in rows)
    if drafted < _FULL * drafts * k:
        return ()
    found = []
    for i in range(k):
        told = [
            (each.value, row.acceptance.drafts or 0)
            for row in rows
            if i < len(row.acceptance.by_position)
            and (each := row.acceptance.by_position[i]).value is not None
        ]
        weight = sum(n for _, n in told)
        if not weight:
            return ()
        found.append(sum((value or 0.0) * n for value, n in told) / weight)
    return tuple(found)


def _per_request(rows: Sequence[Row], part: str, requests: int) -> float | None:
    tokens = sum(getattr(row, part) or 0 for row in rows)
    return tokens / requests if requests and tokens else None


def _key(result: Result, arm: Arm, dataset: str) -> Key:
    temperature = result.provenance.temperature
    engine = {part: _text(arm.engine.get(part)) for part in ("kind", "version", "runner")}
    return Key(
        engine=engine["kind"],
        version=engine["version"],
        runner=engine["runner"],
        target=arm.model,
        draft=arm.draft,
        method=arm.method,
        k=arm.k,
        sampling=None if temperature is None else f"temperature={temperature:g}",
        dataset=dataset,
    )


def _text(value: object) -> str | None:
    return str(value) if value else None
