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
from speccli.core.bench.choice import Swept, choose, doubts
from speccli.core.bench.compare import mean_rate, ratio
from speccli.core.bench.results import Result, Row, Statistic
from speccli.core.engines.vllm_graphs import FAILS_HOW, STARTS_WITH, schedule_fails
from speccli.core.engines.vllm_speculative import dotted, schedule_problems
from speccli.core.errors import UsageError
from speccli.core.sizing.cudagraphs import dense

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
    alone: int
    """The K that was fastest where one serves all batches; 0: no draft."""
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
    swept = Swept(rows, sweep, logs)
    chosen = choose(swept)
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
            *_left_out(result, swept),
            *_across(result),
            *doubts(swept, chosen),
            *_notes(batches, chosen, sweep),
        ),
        alone=swept.alone(),
        arms=sweep,
    )


def _changes(swept: Swept, chosen: dict[int, int]) -> list[Change]:
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


def _beside(swept: Swept, batch: int, smaller: int, larger: int) -> Statistic:
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


def _refused(result: Result, swept: Swept, rows: Rows) -> str | None:
    for arm in (result.arm(name) for k, name in swept.arms.items() if k):
        version = sweeps.version_of(arm)
        most, k = rows[-1][1], max(k for _, _, k in rows)
        if version is not None and schedule_fails(version, arm.method or "", rows, k, most):
            said = f"vLLM {dotted(version)}, V2 runner: {FAILS_HOW} (vllm#48494); {STARTS_WITH}"
            alone = swept.alone()
            best = f"Of one K, {alone} was" if alone else "Without a draft was"
            return f"{said}. {best} fastest over these batches"
    return None


def _left_out(result: Result, swept: Swept) -> list[str]:
    """Batches that decide nothing, since not every K was measured there."""
    there: dict[int, set[str]] = {}
    for row in result.rows:
        if row.usable and row.batch is not None and row.output_tokens_per_s.value:
            there.setdefault(row.batch, set()).add(row.arm)
    told = []
    for batch in sorted(there.keys() - swept.logs.keys()):
        if lacking := [name for name in swept.arms.values() if name not in there[batch]]:
            why = f"not measured of {', '.join(reversed(lacking))}"
        else:
            why = "no repeat there has every K, nor the baseline with each"
        told.append(f"batch {batch} decides nothing: {why}")
    return told


def _across(result: Result) -> list[str]:
    """What several files have that is not the same."""
    order = result.provenance.order or ""
    if not order.startswith("blocks"):
        return []
    return [
        f"{order}: rates are as measured, and K's that share no repeat are compared by the "
        "baseline of each"
    ]


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
