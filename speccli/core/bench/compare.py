"""Arms beside a baseline: speed-ups with intervals, by load and dataset, and a verdict each.

Repeats are paired by their number (arms take turns, so what drifts hits both), requests by their
prompt. In a closed loop the speed-up is of output tokens per second; in an open loop the arrivals
fix those, and it is of TPOT. docs/verdict.md has the method.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from speccli.core.bench import pairing
from speccli.core.bench.bootstrap import ALPHA, Contrast
from speccli.core.bench.crossover import Crossover, crossover
from speccli.core.bench.lengths import other_lengths
from speccli.core.bench.pairing import Load, Pair, Tail99
from speccli.core.bench.refused import refused
from speccli.core.bench.results import Result, Row, Statistic
from speccli.core.bench.verdict import TARGET, Verdict, Word, judge, worst
from speccli.core.errors import UsageError

FEW = (
    "fewer than three repeats: where loads scatter differently, up to 9 % of simulated tables held "
    "a false verdict (--repeats 3)"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm beside the baseline, at one load on one dataset."""

    arm: str
    dataset: str
    batch: int | None
    rate: float | None
    repeats: int
    """Pairs of rows that are in it."""
    requests: tuple[int, int]
    """Of the baseline and of the arm."""
    measure: str
    """What `speedup` is of: `output tokens/s` or `TPOT`."""
    speedup: Statistic
    """What the verdict is of."""
    throughput: Statistic
    """With / without, output tokens per second; over 1 is more."""
    tpot: Statistic
    """Without / with, of the mean; over 1 is faster."""
    ttft: Statistic
    """Without / with, of the mean; over 1 is faster."""
    tpot_p99: Tail99
    ttft_p99: Tail99
    tokens_per_s: tuple[float | None, float | None]
    """Output tokens per second of the baseline and of the arm, mean of the repeats."""
    verdict: Verdict
    held_up: bool = False
    """Whether the load generator was, in a row of it: what was measured is partly its own."""
    contrast: Contrast | None = field(default=None, repr=False)
    """The logarithm of the speed-up, for what else is made of it."""

    @property
    def load(self) -> Load:
        """Batch, or rate."""
        return self.batch, self.rate


@dataclass(frozen=True, slots=True)
class Excluded:
    """A row that is in no comparison, and why."""

    label: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every arm beside the baseline."""

    result: Result
    baseline: str
    target: float
    cells: tuple[Cell, ...]
    crossovers: tuple[tuple[str, str, Crossover], ...]
    """Arm, dataset, and the batch from which on it is slower than the baseline."""
    excluded: tuple[Excluded, ...]
    notes: tuple[str, ...]

    @property
    def arms(self) -> list[str]:
        """Those compared, in the result's order."""
        names = {cell.arm for cell in self.cells}
        return [arm.name for arm in self.result.arms if arm.name in names]

    @property
    def datasets(self) -> list[str]:
        """In the result's order."""
        names = {cell.dataset for cell in self.cells}
        return [each.name for each in self.result.datasets if each.name in names]

    @property
    def loads(self) -> list[Load]:
        """Batches ascending, then rates."""
        return sorted({cell.load for cell in self.cells}, key=load_order)

    def of(self, arm: str, load: Load | None = None) -> list[Cell]:
        """An arm's cells, all or at one load."""
        return [c for c in self.cells if c.arm == arm and load in {None, c.load}]

    @property
    def doubted(self) -> list[Cell]:
        """Those whose printed interval clears the target, and whose verdict does not."""
        return [
            cell
            for cell in self.cells
            if cell.verdict.word == "INCONCLUSIVE"
            and cell.speedup.low is not None
            and cell.speedup.high is not None
            and not cell.speedup.low <= self.target <= cell.speedup.high
        ]

    def word(self, arm: str, load: Load) -> Word:
        """Over the datasets: FAIL where one fails, PASS where all pass."""
        return worst([cell.verdict.word for cell in self.of(arm, load)])


def load_order(load: Load) -> tuple[int, float]:
    """Batches ascending, then rates."""
    batch, rate = load
    return (0, float(batch)) if batch is not None else (1, rate or 0.0)


def compare(
    result: Result,
    *,
    baseline: str | None = None,
    target: float = TARGET,
    arms: Sequence[str] = (),
    batches: Sequence[int] = (),
    datasets: Sequence[str] = (),
) -> Comparison:
    """Every arm, or those named, beside the baseline.

    Raises:
        UsageError: a name that is not in the result, no baseline, or nothing beside it.
    """
    base = baseline_of(result, baseline)
    chosen = _chosen(result, base, arms)
    _known("dataset", datasets, [each.name for each in result.datasets])
    _known("batch", batches, sorted({row.batch for row in result.rows if row.batch}))
    rows = [
        row
        for row in result.rows
        if row.arm in {base, *chosen}
        and (not datasets or row.dataset in datasets)
        and (not batches or row.batch in batches)
    ]
    found, alone = pairing.pairs([row for row in rows if row.usable], base, chosen)
    if not found:
        raise UsageError(
            f"no load was measured both in {base} and in another arm", hint=why_none(rows)
        )
    cells = _cells(found, target)
    return Comparison(
        result,
        base,
        target,
        cells,
        tuple(_crossovers(cells)),
        (*(_excluded(row) for row in rows if not row.usable), *map(_single, alone)),
        tuple(_notes(result, cells)),
    )


def baseline_of(result: Result, named: str | None) -> str:
    """The name of the arm that others are compared with.

    Raises:
        UsageError: there is no such arm, or it is not told which one it is.
    """
    names = [arm.name for arm in result.arms]
    if named is not None:
        _known("arm", [named], names)
        return named
    marked = [arm.name for arm in result.arms if arm.baseline]
    plain = [arm.name for arm in result.arms if arm.method == "none"]
    # Files of one arm each mark their own: of several, the one without a draft is meant.
    told = plain if len(marked) != 1 and len(plain) == 1 else marked or plain
    if len(told) == 1:
        return told[0]
    raise UsageError(
        "which arm is the baseline is not told", hint=f"--baseline, one of: {', '.join(names)}"
    )


def _chosen(result: Result, base: str, arms: Sequence[str]) -> list[str]:
    names = [arm.name for arm in result.arms]
    _known("arm", arms, names)
    chosen = [name for name in names if name != base and (not arms or name in arms)]
    if not chosen:
        raise UsageError(
            f"there is no arm beside the baseline {base}", hint="give the other arms' files too"
        )
    return chosen


def _known(what: str, asked: Iterable[object], there: Sequence[object]) -> None:
    for each in asked:
        if each not in there:
            raise UsageError(
                f"there is no {what} {each} in it", hint=f"there are {', '.join(map(str, there))}"
            )


def _excluded(row: Row) -> Excluded:
    return Excluded(row.label, row.state, row.reason or "the file does not say why")


def _single(row: Row) -> Excluded:
    return Excluded(row.label, "alone", "the same repeat of the other arm has no numbers")


def why_none(rows: Sequence[Row]) -> str:
    """Why none of these rows can be compared: the first that may not be judged, and its state."""
    wrong = next((row for row in rows if not row.usable), None)
    if wrong is None:
        return "arms are compared at the same batch on the same dataset"
    return f"{wrong.label} is {wrong.state}: {wrong.reason or 'the file does not say why'}"


def _cells(found: Sequence[Pair], target: float) -> tuple[Cell, ...]:
    rate, tpot, ttft = (
        pairing.contrasts(found, measure) for measure in (pairing.RATE, pairing.TPOT, pairing.TTFT)
    )
    drawn = pairing.resamples(found)
    tails = [pairing.Tails(found, of, drawn).all() for of in (pairing.tpot_of, pairing.ttft_of)]
    main = [tpot[i] if pair.load[0] is None else rate[i] for i, pair in enumerate(found)]
    verdicts = list(map(_held_up, found, judge(main, target)))
    return tuple(
        Cell(
            arm=pair.arm,
            dataset=pair.dataset,
            batch=pair.load[0],
            rate=pair.load[1],
            repeats=len(pair.base),
            requests=(sum(r.requests for r in pair.base), sum(r.requests for r in pair.ours)),
            measure="TPOT" if pair.load[0] is None else "output tokens/s",
            speedup=ratio(main[i]),
            throughput=ratio(rate[i]),
            tpot=ratio(tpot[i]),
            ttft=ratio(ttft[i]),
            tpot_p99=tails[0][i],
            ttft_p99=tails[1][i],
            tokens_per_s=(mean_rate(pair.base), mean_rate(pair.ours)),
            verdict=verdicts[i],
            held_up=bool(_late(pair)),
            contrast=main[i],
        )
        for i, pair in enumerate(found)
    )


def _held_up(pair: Pair, verdict: Verdict) -> Verdict:
    """What a load generator that was held up measured is partly its own: nothing is certain."""
    told = _late(pair)
    if not told:
        return verdict
    if verdict.word == "INCONCLUSIVE":
        return Verdict(verdict.word, verdict.reason)
    client = told[0].client
    why = (client.reason if client else None) or "latencies are too long"
    return Verdict(
        "INCONCLUSIVE",
        f"{verdict.reason}, and the load generator was held up in {len(told)} of its "
        f"{len(pair.base) + len(pair.ours)} rows ({why})",
    )


def _late(pair: Pair) -> list[Row]:
    return [row for row in (*pair.base, *pair.ours) if row.client and row.client.saturated]


def ratio(contrast: Contrast | None) -> Statistic:
    """A contrast of logarithms as a ratio with its 95 % interval."""
    if contrast is None:
        return Statistic.unknown("not measured in both arms")
    value, width = math.exp(contrast.value), contrast.width(ALPHA)
    if width is None:
        return Statistic(value, None, None, contrast.repeats, reason="measured once: no interval")
    low, high = math.exp(contrast.value - width), math.exp(contrast.value + width)
    reason = None
    if contrast.prompt_variance is None:
        reason = "of these prompts only: single requests are not known"
    return Statistic(value, low, high, contrast.repeats, reason=reason)


def mean_rate(rows: Sequence[Row]) -> float | None:
    """Output tokens per second, mean of the rows that tell it."""
    told = [v for row in rows if (v := row.output_tokens_per_s.value) is not None]
    return fmean(told) if told else None


def _crossovers(cells: Sequence[Cell]) -> Iterator[tuple[str, str, Crossover]]:
    by_curve: dict[tuple[str, str], dict[int, Contrast]] = {}
    for cell in cells:
        if cell.batch is not None and cell.contrast is not None and not cell.held_up:
            by_curve.setdefault((cell.arm, cell.dataset), {})[cell.batch] = cell.contrast
    for (arm, dataset), points in by_curve.items():
        found = crossover(points)
        if found is not None:
            yield arm, dataset, found


def _notes(result: Result, cells: Sequence[Cell]) -> Iterator[str]:
    """What the reader must know of these numbers."""
    if result.simulated:
        yield "SIMULATED: these numbers say nothing about any GPU"
    if result.stand_in:
        yield f"STAND-IN: {result.stand_in}"
    if not result.complete:
        yield "the bench did not finish: what is missing is not in these numbers"
    if free := [arm.name for arm in result.arms if arm.gpu_hour_usd == 0]:
        yield f"a GPU price of 0 ({', '.join(free)}) is read as one that is not known"
    off = other_lengths(result)
    if off is not None:
        yield off
    yield from refused(result)
    lossy = [row for row in result.rows if row.usable and row.errors]
    if lossy:
        share = max(row.errors / (row.errors + row.requests) for row in lossy)
        yield f"{len(lossy)} rows lost requests, {100 * share:.1g} % at the most, and are judged"
    if len(cells) > 1:
        yield (
            f"{len(cells)} comparisons: each interval is 95 % taken alone; false PASSes are held "
            "to 2.5 % over the whole table by Holm's procedure, and so are false FAILs"
        )
    repeats = [cell.repeats for cell in cells]
    if max(repeats, default=0) > 1 and min(repeats) < 3:
        yield FEW
    if told := lent(cells):
        yield told
    yield from _structured(result)
    untold = [row for row in result.rows if row.usable and row.contaminated is None]
    if untold:
        why = untold[0].contaminated_reason or "the file does not tell"
        yield f"of {len(untold)} rows it is not known whether others' traffic was in them: {why}"
    order = result.provenance.order
    if order and "interleaved" not in order:
        yield f"arms were measured in {order}, not in turns: what drifted in between is not seen"
    client = result.provenance.client
    if client is not None and client.saturated:
        yield f"the load generator was saturated: {client.reason or 'latencies are too long'}"


def lent(cells: Sequence[Cell]) -> str | None:
    """Said where an interval's scatter between runs is that of other loads; None where none is."""
    once = [cell for cell in cells if cell.repeats == 1 and cell.speedup.low is not None]
    if not once:
        return None
    return (
        f"{len(once)} of {len(cells)} comparisons were measured once: how much runs differ is "
        "taken from the others"
    )


def _structured(result: Result) -> Iterator[str]:
    """How many answers were what a schema asked for, by arm."""
    told = []
    for arm in result.arms:
        held = [row.structured for row in result.rows_of(arm.name) if row.structured is not None]
        if held:
            whole, cut = sum(each.answers for each in held), sum(each.cut_off for each in held)
            parsed = f"{sum(each.parsed for each in held)} of {whole} of {arm.name}"
            told.append(f"{parsed} ({cut} cut off)" if cut else parsed)
    if told:
        yield f"answers held to {result.load.structured or 'a schema'} that are JSON: " + (
            ", ".join(told)
        )
