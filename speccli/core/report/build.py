"""Everything a report says, worked out once, before anybody writes it down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean

from speccli.core.bench.compare import Comparison, compare, load_order, why_none
from speccli.core.bench.economics import Economics, economics
from speccli.core.bench.lossless import Lossless, lossless
from speccli.core.bench.pairing import Load, e2e_of, tpot_of, ttft_of
from speccli.core.bench.results import Result, Row, Spread, Statistic
from speccli.core.bench.schedule import Schedule, schedule
from speccli.core.bench.spread import spread
from speccli.core.bench.sweep import by_batch
from speccli.core.bench.verdict import TARGET
from speccli.core.errors import UsageError
from speccli.core.prices import HostedPrice, PriceBook
from speccli.core.values import Number

KINDS = {
    "measured": ("●", "measured"),
    "stand-in": ("◐", "measured on a stand-in"),
    "simulated": ("◇", "simulated"),
    "given": ("□", "given: a list price or a setting"),
    "estimated": ("~", "interpolated between measured points"),
    "planned": ("△", "estimated by specctl plan, not measured"),
}
"""What a number is: its mark, and the words for the legend."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """How one arm's drafts fared on one dataset, over all loads and repeats."""

    arm: str
    dataset: str
    source: str
    """`per-request`, `counters`, or `mixed`."""
    rate: Number
    length: Number
    by_position: tuple[Number, ...]
    tokens_per_step: Number
    loads: tuple[float, float] | None
    """The lowest and the highest rate at any load; None where there is one load."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One arm's latencies at one load, over all datasets and repeats."""

    arm: str
    load: Load
    ttft_s: Spread
    tpot_s: Spread
    e2e_s: Spread
    requests: int
    tokens_per_s: float | None
    """Mean of the rows."""


@dataclass(frozen=True, slots=True)
class Report:
    """All of it."""

    result: Result
    files: tuple[str, ...]
    made: datetime
    comparison: Comparison | None
    why_no_comparison: str | None
    acceptance: tuple[Accepted, ...]
    waiting: tuple[Waiting, ...]
    economics: Economics
    schedule: Schedule | None
    lossless: Lossless | None

    @property
    def kind(self) -> str:
        """`measured`, `stand-in` or `simulated`: what its numbers are."""
        if self.result.simulated:
            return "simulated"
        return "stand-in" if self.result.stand_in else "measured"

    @property
    def mark(self) -> str:
        """The mark of its numbers."""
        return KINDS[self.kind][0]


def build(
    result: Result,
    files: Sequence[str],
    book: PriceBook,
    *,
    made: datetime,
    baseline: str | None = None,
    target: float = TARGET,
    gpu_hour_usd: float | None = None,
    models: Sequence[HostedPrice] = (),
) -> Report:
    """The report of a bench.

    Args:
        result: The bench.
        files: Names of the files that it was read from.
        book: Prices of hosted models.
        made: When the report is made.
        baseline: The arm that others are compared with; None: the one that is marked.
        target: What a speed-up must be over.
        gpu_hour_usd: Laid over the arms' own.
        models: Hosted models to compare with.
    """
    rows = [row for row in result.rows if row.usable]
    if not rows:
        raise UsageError(
            f"{', '.join(files)}: no row may be judged",
            hint=why_none(result.rows) if result.rows else "there are no rows in it",
        )
    comparison, why = _compared(result, baseline, target)
    return Report(
        result=result,
        files=tuple(Path(file).name for file in files),
        made=made,
        comparison=comparison,
        why_no_comparison=why,
        acceptance=tuple(_acceptance(result, rows)),
        waiting=tuple(_waiting(result, rows)),
        economics=economics(result, book, gpu_hour_usd=gpu_hour_usd, models=models),
        schedule=_scheduled(result, baseline),
        lossless=_lossless(result, baseline),
    )


def _compared(
    result: Result, baseline: str | None, target: float
) -> tuple[Comparison | None, str | None]:
    if baseline is not None:
        return compare(result, baseline=baseline, target=target), None
    try:
        return compare(result, target=target), None
    except UsageError as error:
        return None, error.message


def _scheduled(result: Result, baseline: str | None) -> Schedule | None:
    """Where the bench is a sweep of K; any other has no schedule, and needs no word about it.

    None either where the load generator was held up: what K costs is partly its own.
    """
    if any(row.client and row.client.saturated for row in result.rows if row.usable):
        return None
    try:
        return schedule(result, baseline=baseline) if _is_sweep(result) else None
    except UsageError:
        return None


def _is_sweep(result: Result) -> bool:
    apart = by_batch(result)
    ks = {(a.method, a.draft, a.k) for a in result.arms if a.k and a.name not in apart}
    return len(ks) > len({(method, draft) for method, draft, _ in ks})


def _lossless(result: Result, baseline: str | None) -> Lossless | None:
    try:
        return lossless(result, baseline)
    except UsageError:
        return None


def _acceptance(result: Result, rows: Sequence[Row]) -> Iterable[Accepted]:
    grouped: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.acceptance.source != "none":
            grouped[row.arm, row.dataset].append(row)
    for arm in result.arms:
        for dataset in result.datasets:
            found = grouped.get((arm.name, dataset.name))
            if found:
                yield _accepted(arm.name, dataset.name, found)


def _accepted(arm: str, dataset: str, rows: Sequence[Row]) -> Accepted:
    """Counts are added up before they are divided."""
    told = [row.acceptance for row in rows]
    drafts = sum(each.drafts or 0 for each in told)
    drafted = sum(each.draft_tokens or 0 for each in told)
    accepted = sum(each.accepted_tokens or 0 for each in told)
    sources = {each.source for each in told}
    by_load: dict[Load, list[Row]] = defaultdict(list)
    for row in rows:
        by_load[row.batch, row.rate].append(row)
    rates = [rate for each in by_load.values() if (rate := _rate(each)) is not None]
    return Accepted(
        arm,
        dataset,
        sources.pop() if len(sources) == 1 else "mixed",
        Number.known(accepted / drafted, n=drafted) if drafted else told[0].rate,
        Number.known(1 + accepted / drafts, n=drafts) if drafts else told[0].length,
        tuple(_positions(rows)),
        _weighted([(each.tokens_per_step, each.drafts or 1) for each in told]),
        (min(rates), max(rates)) if len(rates) > 1 else None,
    )


def _rate(rows: Sequence[Row]) -> float | None:
    drafted = sum(row.acceptance.draft_tokens or 0 for row in rows)
    accepted = sum(row.acceptance.accepted_tokens or 0 for row in rows)
    return accepted / drafted if drafted else None


def _positions(rows: Sequence[Row]) -> Iterable[Number]:
    longest = max(len(row.acceptance.by_position) for row in rows)
    for i in range(longest):
        yield _weighted(
            [
                (row.acceptance.by_position[i], row.acceptance.drafts or 1)
                for row in rows
                if i < len(row.acceptance.by_position)
            ]
        )


def _weighted(told: Sequence[tuple[Number, int]]) -> Number:
    """Mean by weight of what is known."""
    known = [(number.value, weight) for number, weight in told if number.value is not None]
    if not known:
        return Number.unknown(told[0][0].reason or "unknown")
    whole = sum(weight for _, weight in known)
    return Number.known(sum(value * weight for value, weight in known) / whole, n=whole)


def _waiting(result: Result, rows: Sequence[Row]) -> Iterable[Waiting]:
    grouped: dict[tuple[str, Load], list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row.arm, (row.batch, row.rate)].append(row)
    order = {arm.name: i for i, arm in enumerate(result.arms)}
    for arm, load in sorted(grouped, key=lambda key: (load_order(key[1]), order[key[0]])):
        found = grouped[arm, load]
        rates = [v for row in found if (v := row.output_tokens_per_s.value) is not None]
        yield Waiting(
            arm,
            load,
            _pooled([row.ttft_s for row in found], found, ttft_of),
            _pooled([row.tpot_s for row in found], found, tpot_of),
            _pooled([row.e2e_s for row in found], found, e2e_of),
            sum(row.requests for row in found),
            fmean(rates) if rates else None,
        )


def _pooled(
    told: Sequence[Spread], rows: Sequence[Row], of: Callable[[Row], list[tuple[str, float]]]
) -> Spread:
    """Of all requests together; of the rows' own figures where single requests are not known."""
    single = [(f"{row.dataset}/{prompt}", t) for row in rows for prompt, t in of(row)]
    if single:
        return spread([t for _, t in single], prompts=[prompt for prompt, _ in single])

    def middle(name: str) -> Statistic:
        values = [v for each in told if (v := getattr(each, name).value) is not None]
        if not values:
            return Statistic.unknown(getattr(told[0], name).reason or "unknown")
        return Statistic(
            fmean(values), None, None, len(values), reason="mean of the rows' own figures"
        )

    return Spread(middle("p50"), middle("p95"), middle("p99"), middle("mean"))
