"""K by batch size, from a sweep of K: where which K was fastest, and what was measured there.

Between two batches that were measured the logarithm of the rate is taken to be straight over the
logarithm of the batch. K only ever falls as batches grow, and only where it earns more than the
trouble of another set of CUDA graphs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from speccli.core.bench import sweep as sweeps
from speccli.core.bench.bootstrap import ALPHA, Contrast
from speccli.core.bench.compare import mean_rate, ratio
from speccli.core.bench.results import Result, Row, Statistic
from speccli.core.engines.vllm_graphs import FAILS_HOW, STARTS_WITH, schedule_fails
from speccli.core.engines.vllm_speculative import dotted, schedule_problems
from speccli.core.errors import UsageError
from speccli.core.sizing.cudagraphs import dense

GAIN = 0.03
"""What a smaller K must earn before it is worth a range of its own."""
DOUBT = 1 / 6
"""Chance at most that the smaller K is the slower one, by what was measured.

No interval of 95 % is asked for: one K is a choice too, and it is wrong where the other is right.
"""
Rows = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """One batch of the sweep."""

    batch: int
    tokens_per_s: dict[int, float]
    """Output tokens per second by K, mean over datasets and repeats; K = 0 is the baseline."""
    best: int
    chosen: int


@dataclass(frozen=True, slots=True)
class Change:
    """Where K falls."""

    last: int
    """The last batch of the larger K."""
    larger: int
    smaller: int
    below: int
    """The measured batches on either side."""
    above: int
    at_below: Statistic
    """Rate with the smaller K / with the larger, at the batch below: under 1, or hardly over it."""
    at_above: Statistic

    @property
    def confirm(self) -> tuple[int, int, int]:
        """Batches at which to measure the schedule itself (vllm#49548)."""
        return max(1, self.last - 1), self.last, self.last + 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """What to run."""

    method: str
    draft: str | None
    rows: Rows
    """First batch, last batch, K; one range where K never changes."""
    measured: tuple[Measured, ...]
    changes: tuple[Change, ...]
    lookup: tuple[tuple[int, int], ...]
    """Batch and the K that vLLM takes there, at every change and on both sides of it."""
    refused: str | None
    """Why the version that was measured does not start with it, and what does."""
    notes: tuple[str, ...]
    arms: dict[int, str]
    """By K."""

    @property
    def k(self) -> int:
        """`num_speculative_tokens`: the largest K; 0 where no draft was faster than none."""
        return max(k for _, _, k in self.rows)

    @property
    def needed(self) -> bool:
        """Whether K changes at all."""
        return len(self.rows) > 1

    def config(self) -> dict[str, Any] | None:
        """What to add to `--speculative-config`; None: serve without a draft."""
        if not self.k:
            return None
        if not self.needed:
            return {"num_speculative_tokens": self.k}
        return {
            "num_speculative_tokens": self.k,
            "num_speculative_tokens_per_batch_size": [list(row) for row in self.rows],
        }


def schedule(
    result: Result,
    *,
    baseline: str | None = None,
    method: str | None = None,
    max_num_seqs: int | None = None,
    data_parallel: int = 1,
) -> Schedule:
    """The schedule that a sweep of K justifies.

    Raises:
        UsageError: data parallel, an engine that has no schedules, or no sweep.
    """
    sweep = sweeps.sweep(result, baseline, method)
    sweeps.refuse(result, list(sweep.values()), data_parallel)
    rows = sweeps.shared(result.rows, sweep)
    logs = sweeps.logs(rows, sweep)
    batches = sorted(logs)
    if len(batches) < 2:
        raise UsageError(
            "K by batch size needs two batches at which every K was measured",
            hint="bench run --batch 1,8,32,64,128 for each K",
        )
    swept = _Swept(rows, sweep, logs)
    chosen = _choose(swept, batches)
    changes = tuple(_changes(swept, chosen))
    ranges = _ranges(changes, chosen[batches[0]], max(max_num_seqs or 0, batches[-1]))
    first = next(arm for arm in result.arms if arm.name == sweep[max(sweep)])
    refused = _refused(result, swept, ranges) if len(ranges) > 1 else None
    return Schedule(
        method=first.method or "?",
        draft=first.draft,
        rows=ranges,
        measured=tuple(
            Measured(
                batch,
                {k: _rate(rows, arm, batch) for k, arm in sweep.items()},
                max(logs[batch], key=lambda k: logs[batch][k]),
                chosen[batch],
            )
            for batch in batches
        ),
        changes=changes,
        lookup=_checked(ranges, changes),
        refused=refused,
        notes=(
            *_of_what(result),
            *([refused] if refused else ()),
            *sweeps.by_batch(result).values(),
            *_doubts(swept, chosen),
            *_notes(batches, chosen, sweep),
        ),
        arms=sweep,
    )


@dataclass(frozen=True, slots=True)
class _Swept:
    """What was measured of every K."""

    rows: Sequence[Row]
    arms: dict[int, str]
    logs: dict[int, dict[int, float]]
    """By batch, then K: the log of the rate, over that of one K of them."""

    def lead(self, batch: int, smaller: int, larger: int) -> float:
        """Log of the rate with the smaller K over that with the larger."""
        return self.logs[batch][smaller] - self.logs[batch][larger]

    def width(self, batch: int, smaller: int, larger: int, alpha: float = ALPHA) -> float | None:
        """Half of the interval of `lead`, mean of the datasets; None: measured once."""
        found = self.beside(batch, smaller, larger)
        widths = [contrast.width(alpha) if contrast else None for contrast in found]
        known = [width for width in widths if width is not None]
        return math.hypot(*known) / len(known) if known and len(known) == len(widths) else None

    def beside(self, batch: int, smaller: int, larger: int) -> list[Contrast | None]:
        """`lead`, by dataset, with its chance."""
        names = self.arms[larger], self.arms[smaller]
        found = sweeps.beside(self.rows, *names, self.arms.get(0))
        return [contrast for (at, _), contrast in found.items() if at == batch]

    def likely(self, batch: int, smaller: int, larger: int) -> bool:
        """Whether the smaller K was faster by more than `GAIN`, and likely is."""
        lead = self.lead(batch, smaller, larger)
        if lead <= math.log1p(GAIN):
            return False
        width = self.width(batch, smaller, larger, DOUBT)
        return width is not None and lead > width


def _choose(swept: _Swept, batches: Sequence[int]) -> dict[int, int]:
    """K at each measured batch: of all that only fall, what was fastest over the batches.

    Every batch counts alike, and a fall costs `GAIN`; so one K is left only for what earns more.
    """
    paths: dict[int, tuple[float, tuple[int, ...]]] = {
        k: (log, (k,)) for k, log in swept.logs[batches[0]].items()
    }
    for batch in batches[1:]:
        before, paths = paths, {}
        for k, log in swept.logs[batch].items():
            score, path = before[k]
            for larger, (held, so_far) in before.items():
                fallen = held - math.log1p(GAIN)
                if larger > k and fallen > score and swept.likely(batch, k, larger):
                    score, path = fallen, so_far
            paths[k] = score + log, (*path, k)
    chosen = dict(zip(batches, max(paths.values())[1], strict=True))
    if 0 in swept.arms and not any(
        swept.lead(batch, k, 0) > math.log1p(GAIN) for batch, k in chosen.items()
    ):
        return dict.fromkeys(batches, 0)
    return chosen


def _doubts(swept: _Swept, chosen: dict[int, int]) -> list[str]:
    """Where another K was faster, and where a fall is likely and no more."""
    told, first = [], next(iter(chosen.values()))
    before = first
    for batch, k in chosen.items():
        here = swept.logs[batch]
        best = max(here, key=lambda k: here[k])
        if swept.lead(batch, best, k) > math.log1p(GAIN):
            told.append(_passed_over(swept, batch, best, k, first))
        elif k < before and swept.lead(batch, k, before) <= (
            width := swept.width(batch, k, before) or 0.0
        ):
            ends = _ends(swept.lead(batch, k, before), width)
            said = _faster(swept, batch, k, before)
            told.append(f"{said}, {ends}: likely, not sure; more --repeats would tell")
        before = k
    return told


def _passed_over(swept: _Swept, batch: int, best: int, k: int, first: int) -> str:
    """Why a batch does not have the K that was fastest there."""
    said = _faster(swept, batch, best, k)
    if best > first:
        return f"{said}; to begin with it and fall later earns less"
    if best > k:
        return f"{said}; K is not raised again"
    if swept.likely(batch, best, k):
        return f"{said}; K is not raised again, and a larger one pays later"
    width = swept.width(batch, best, k)
    why = "measured once" if width is None else _ends(swept.lead(batch, best, k), width)
    return f"{said}, {why}: K is not changed there (more --repeats would tell)"


def _faster(swept: _Swept, batch: int, best: int, k: int) -> str:
    return f"at batch {batch} K = {best} was {_percent(swept.lead(batch, best, k))} faster than {k}"


def _percent(lead: float) -> str:
    return f"{100 * math.expm1(lead):.0f} %"


def _ends(lead: float, width: float) -> str:
    return f"its interval {_percent(lead - width)} to {_percent(lead + width)}"


def _changes(swept: _Swept, chosen: dict[int, int]) -> list[Change]:
    found = []
    for (below, larger), (above, smaller) in pairwise(chosen.items()):
        if larger == smaller:
            continue
        behind = -swept.lead(below, smaller, larger)
        ahead = swept.lead(above, smaller, larger)
        share = max(0.0, behind) / (max(0.0, behind) + ahead)
        place = math.exp(math.log(below) + share * (math.log(above) - math.log(below)))
        found.append(
            Change(
                last=min(max(below, math.floor(place)), above - 1),
                larger=larger,
                smaller=smaller,
                below=below,
                above=above,
                at_below=_beside(swept, below, smaller, larger),
                at_above=_beside(swept, above, smaller, larger),
            )
        )
    return found


def _beside(swept: _Swept, batch: int, smaller: int, larger: int) -> Statistic:
    """Rate with the smaller K / with the larger; of several datasets, the one least in favour."""
    told = [ratio(contrast) for contrast in swept.beside(batch, smaller, larger)]
    return min(told, key=lambda each: each.value or math.inf)


def _ranges(changes: Sequence[Change], first: int, most: int) -> Rows:
    rows, start, k = [], 1, first
    for change in changes:
        rows.append((start, change.last, k))
        start, k = change.last + 1, change.smaller
    return (*rows, (start, max(most, start), k))


def _checked(rows: Rows, changes: Sequence[Change]) -> tuple[tuple[int, int], ...]:
    """What vLLM's table says on both sides of every change."""
    problems = schedule_problems([list(row) for row in rows])
    assert not problems, problems
    most = max(last for _, last, _ in rows)
    table = dense(rows, max(k for _, _, k in rows), most)
    checked = []
    for change in changes:
        for batch in sorted({*change.confirm}):
            k = table[batch - 1]
            wanted = next(k for first, last, k in rows if first <= batch <= last)
            assert k == wanted, (batch, k, wanted)
            checked.append((batch, k))
    return tuple(checked)


def _rate(rows: Sequence[Row], arm: str, batch: int) -> float:
    return mean_rate([row for row in rows if row.arm == arm and row.batch == batch]) or 0.0


def _of_what(result: Result) -> list[str]:
    if result.simulated:
        return ["SIMULATED: measured on simulated engines; no real server is told by it"]
    return [f"STAND-IN: {result.stand_in}"] if result.stand_in else []


def _refused(result: Result, swept: _Swept, rows: Rows) -> str | None:
    for arm in (result.arm(name) for k, name in swept.arms.items() if k):
        version = sweeps.version_of(arm)
        most, k = rows[-1][1], max(k for _, _, k in rows)
        if version is not None and schedule_fails(version, arm.method or "", rows, k, most):
            said = f"vLLM {dotted(version)}, V2 runner: {FAILS_HOW} (vllm#48494); {STARTS_WITH}"
            return f"{said}. Of one K, {_alone(swept)} was fastest over these batches"
    return None


def _alone(swept: _Swept) -> int:
    """The K that is fastest where one has to serve all batches."""
    return max(swept.arms, key=lambda k: math.fsum(logs[k] for logs in swept.logs.values()))


def _notes(batches: Sequence[int], chosen: dict[int, int], sweep: dict[int, str]) -> list[str]:
    notes = []
    if 0 not in sweep:
        notes.append("no baseline: whether no draft at all is faster is not known")
    if chosen[batches[0]] != chosen[batches[-1]]:
        notes.append(
            "the batch is the requests of a step, prompts included; measure the schedule itself "
            "where K changes before it is trusted: padding can cost more than K saves (vllm#49548)"
        )
    return notes
