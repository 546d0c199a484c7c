"""Up to which load an arm pays, and from which one it is to be turned off.

No further than the intervals tell: a load counts as faster where the 95 % interval of every dataset
that was measured there is over 1, as slower where all are under it, and is not told otherwise.
Nothing is told where the load generator was held up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speccli.core.bench.compare import Cell, Comparison
from speccli.core.bench.crossover import Crossover
from speccli.core.bench.pairing import Load
from speccli.core.views.bench import load_words, times


@dataclass(frozen=True, slots=True)
class Advice:
    """What is known of an arm, by load ascending."""

    arm: str
    loads: tuple[Load, ...]
    """All that were measured."""
    faster: tuple[Load, ...]
    slower: tuple[Load, ...]
    under: tuple[Load, ...]
    """Under the target, which is not to say slower."""
    certain: tuple[Load, ...]
    """Of `faster`: those that pass over the whole table, and not by their interval alone."""
    surely: tuple[Load, ...]
    """Of `faster` and `slower`: those that are so over the whole table, target or none."""
    crossover: tuple[str, Crossover] | None
    """The dataset on which it turns first between two measured batches, and where; no name where
    there is but one."""

    @property
    def open(self) -> tuple[Load, ...]:
        """Loads at which the intervals do not tell."""
        known = {*self.faster, *self.slower, *self.under}
        return tuple(load for load in self.loads if load not in known)

    @property
    def from_the_least(self) -> bool:
        """Whether it is faster at every load up to some of those that were measured."""
        return bool(self.faster) and self.loads[: len(self.faster)] == self.faster

    @property
    def to_the_most(self) -> bool:
        """Whether it is slower at every load from some of those that were measured on."""
        return bool(self.slower) and self.loads[-len(self.slower) :] == self.slower


def advice(comparison: Comparison, arm: str) -> Advice:
    """What its intervals tell."""
    loads = tuple(load for load in comparison.loads if comparison.of(arm, load))
    cells = {load: comparison.of(arm, load) for load in loads}
    word = {load: comparison.word(arm, load) for load in loads}
    even = min(1.0, comparison.target)  # who asks for less than 1 has a reason
    slower = tuple(x for x in loads if all(is_slower(cell, even) for cell in cells[x]))
    places = [
        (dataset if len(comparison.datasets) > 1 else "", found)
        for name, dataset, found in comparison.crossovers
        if name == arm and found.between
    ]
    return Advice(
        arm,
        loads,
        tuple(
            x
            for x in loads
            if word[x] != "FAIL" and all(is_faster(cell, even) for cell in cells[x])
        ),
        slower,
        tuple(
            x
            for x in loads
            if word[x] == "FAIL" and x not in slower and not any(map(is_slower, cells[x]))
        ),
        tuple(x for x in loads if word[x] == "PASS"),
        tuple(
            x
            for x in loads
            if all(cell.verdict.slower for cell in cells[x])
            or all(cell.verdict.faster for cell in cells[x])
        ),
        min(places, key=lambda each: each[1].place, default=None),
    )


def is_faster(cell: Cell, even: float = 1.0) -> bool:
    """By its interval alone; never where the load generator was held up."""
    return not cell.held_up and cell.speedup.low is not None and cell.speedup.low > even


def is_slower(cell: Cell, even: float = 1.0) -> bool:
    """By its interval alone; never where the load generator was held up."""
    return not cell.held_up and cell.speedup.high is not None and cell.speedup.high < even


def batches(loads: Sequence[Load]) -> str:
    """`batch 8`, `batches 1, 8 and 32`, `rate 4/s`."""
    kind = "batch" if loads[0][0] is not None else "rate"
    plural = "batches" if kind == "batch" else "rates"
    return f"{kind if len(loads) == 1 else plural} {listed([load_words(load) for load in loads])}"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def span(values: Sequence[float]) -> str:
    """`1.78`, `1.35 to 1.70`."""
    low, high = min(values), max(values)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


def spans(comparison: Comparison, arm: str, loads: Sequence[Load]) -> str:
    """What it does at these loads together."""
    cells = [cell for load in loads for cell in comparison.of(arm, load)]
    return span([cell.speedup.value or 0 for cell in cells])


def where(told: Advice) -> str:
    """`up to batch 64`, `at batch 8`, `at batches 1 and 32`; of the loads at which it is faster."""
    if told.from_the_least and len(told.faster) > 1:
        last = told.faster[-1]
        most = ", the largest measured" if told.faster == told.loads else ""
        return f"up to {batches([last])}{most}"
    return f"at {batches(told.faster)}"


def off(told: Advice) -> str:
    """`from batch 64 on`, `at batch 128, the largest measured`; where it is slower."""
    if told.slower == told.loads and told.slower[1:]:
        return f"at every {'batch' if told.loads[0][0] is not None else 'rate'} measured"
    if told.to_the_most and told.slower[0] != told.loads[0]:
        if not told.slower[1:]:
            return f"at {batches(told.slower)}, the largest measured"
        return f"from {batches(told.slower[:1])} on"
    return f"at {batches(told.slower)}"


def turns(told: Advice) -> str | None:
    """`about 97 [79, 121] on sharegpt, interpolated between 64 and 128`; None: not known."""
    if told.crossover is None:
        return None
    dataset, found = told.crossover
    low, high = found.between or (found.least, found.most)
    on = f" on {dataset}" if dataset else ""
    return f"about {found.words}{on}, interpolated between {low} and {high}"


def doubt(comparison: Comparison, told: Advice) -> str | None:
    """Where it is faster by its interval alone; None where all of it holds over the whole table."""
    if not alone(told.faster, told.certain):
        return None
    here = [load for load in told.faster if load in told.certain]
    count = len(comparison.cells)
    if not here:
        return f"each by an interval taken alone, not certain among all {count} comparisons"
    return (
        f"certain among all {count} comparisons at {batches(here)}, else by intervals taken alone"
    )


def lost(comparison: Comparison, told: Advice) -> str:
    """`0.86 [0.75, 0.99], by its interval alone`: what it does where it is slower."""
    cells = [cell for load in told.slower for cell in comparison.of(told.arm, load)]
    one = times(cells[0].speedup) if len(cells) == 1 else None
    seen = one or spans(comparison, told.arm, told.slower)
    return seen + alone(told.slower, told.surely)


def alone(loads: Sequence[Load], certain: Sequence[Load]) -> str:
    """`, at 32 by its interval alone`, of those that are not certain over the whole table."""
    unsure = [load for load in loads if load not in certain]
    if not unsure:
        return ""
    what = "its interval alone" if len(unsure) == 1 else "intervals taken alone"
    if len(unsure) == len(loads):
        return f", by {what}"
    return f", at {listed([load_words(load) for load in unsure])} by {what}"


def narrow(comparison: Comparison, told: Advice) -> str | None:
    """Which loads were measured on fewer datasets than others; None where all are alike."""
    sets = {load: [cell.dataset for cell in comparison.of(told.arm, load)] for load in told.loads}
    most = max(map(len, sets.values()))
    if most == 1:
        return None
    few: dict[str, list[Load]] = {}
    for load, names in sets.items():
        if len(names) < most:
            few.setdefault(listed(names), []).append(load)
    parts = [f"{batches(loads)} on {names} alone" for names, loads in few.items()]
    return f"{listed(parts)}, the others on {most} datasets" if parts else None


def not_told(comparison: Comparison, told: Advice, loads: Sequence[Load]) -> str:
    """`batch 64 (0.99 [0.79, 1.24])`, with what was measured there."""
    parts = []
    for load in loads:
        cells = comparison.of(told.arm, load)
        if len(cells) == 1:
            seen = times(cells[0].speedup)
        else:
            seen = f"{spans(comparison, told.arm, [load])} on {len(cells)} datasets"
        if any(cell.held_up for cell in cells):
            seen += ", the load generator held up"
        parts.append(f"{load_words(load)} ({seen})")
    kind = "batch" if loads[0][0] is not None else "rate"
    return f"{kind} {listed(parts)}"


def beside(comparison: Comparison, best: str) -> list[str]:
    """Every other arm in a line: where it is faster, slower, and where that is not told."""
    lines = []
    for arm in comparison.arms:
        if arm == best:
            continue
        told, parts = advice(comparison, arm), []
        if told.faster:
            unsure = alone(told.faster, told.surely)
            parts.append(f"faster {where(told)} ({spans(comparison, arm, told.faster)}{unsure})")
        if told.under:
            rest = spans(comparison, arm, told.under)
            parts.append(f"under {comparison.target:g} at {batches(told.under)} ({rest})")
        if told.open:
            parts.append(f"not told at {batches(told.open)} ({spans(comparison, arm, told.open)})")
        if told.slower:
            unsure = alone(told.slower, told.surely)
            parts.append(f"slower {off(told)} ({spans(comparison, arm, told.slower)}{unsure})")
        lines.append(f"{arm}: {'; '.join(parts)}.")
    return lines
