"""What a bench says of the rungs at the batch that runs now: speed, tail, cost, which is faster.

A number is of one server, at the measured batch nearest to the present one; where nobody measured
it, it is unknown and says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from speccli.core.bench import pairing
from speccli.core.bench.choice import GAIN
from speccli.core.bench.compare import compare
from speccli.core.bench.results import Arm, Result, Row, Statistic
from speccli.core.bench.schedule import schedule as swept
from speccli.core.bench.spread import mean, spread
from speccli.core.cost import Pricing
from speccli.core.errors import UsageError
from speccli.core.fallback.rungs import Ranges
from speccli.core.plan.measured import how_of, notes_of, together, unlike_of
from speccli.core.recipes.model import Draft, Recipe
from speccli.core.values import Number

_FAR = math.log(1.5)
"""How far the present batch may lie outside of those measured."""
NO_BENCH = "no bench given (--bench FILE)"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a rung is expected to do, one server of it."""

    tokens_per_s: Statistic
    """Output tokens per second."""
    tpot_p99_s: Statistic
    ttft_p99_s: Statistic
    usd_per_1m: Statistic
    """USD per 1M output tokens at full load."""
    how: str = "unmeasured"
    """`measured`, `measured on MODEL`, `simulated`, `unmeasured`."""
    arm: str | None = None
    batch: int | None = None
    """The measured one."""
    notes: tuple[str, ...] = ()
    """Where it is not just this that was measured."""

    @classmethod
    def unknown(cls, reason: str) -> Expected:
        """Nobody measured it."""
        nothing = Statistic.unknown(reason)
        return cls(nothing, nothing, nothing, nothing)


@dataclass(frozen=True, slots=True)
class Faster:
    """One rung's speed over another's."""

    ratio: Statistic
    """Output tokens per second of the one / of the other."""

    @property
    def is_so(self) -> bool:
        """Whether the mean says so by more than a rung is worth. One of the two must be taken.

        So it need not be proven; `words` say whether it is.
        """
        return self.ratio.value is not None and self.ratio.value >= 1 + GAIN

    @property
    def proven(self) -> bool:
        """Whether the whole interval says the same as the mean."""
        low, high, value = self.ratio.low, self.ratio.high, self.ratio.value
        return None not in (low, high, value) and (low > 1 or high < 1)  # type: ignore[operator]

    def words(self, than: str = "") -> str:
        """`1.31 times as fast [1.28, 1.35]`; `than`: `as what serves now`."""
        told = f"{self.ratio.value:.2f} times as fast{f' {than}' if than else ''}"
        if self.ratio.low is None or self.ratio.high is None:
            return f"{told} [measured once]"
        unsure = "" if self.proven else "; not proven"
        return f"{told} [{self.ratio.low:.2f}, {self.ratio.high:.2f}{unsure}]"


class Bench:
    """What was measured of a deployment, at the batch that runs now."""

    def __init__(self, result: Result | None, recipe: Recipe, batch: Number) -> None:
        """`recipe`: whose target and hardware it is; `batch`: requests in a step of one server."""
        self._result, self._recipe, self._batch = result, recipe, batch

    @property
    def name(self) -> str | None:
        """Of the result."""
        return None if self._result is None else self._result.name

    @property
    def known(self) -> bool:
        """Whether there is anything to tell rungs apart by."""
        return self._result is not None and self._batch.value is not None

    def schedule(self, draft: Draft) -> Ranges | None:
        """K by batch that a sweep justifies, under this draft's K; None where there is none."""
        if self._result is None:
            return None
        serving = self._recipe.serving
        try:
            found = swept(
                self._result,
                method=draft.method,
                max_num_seqs=serving.max_num_seqs,
                data_parallel=serving.data_parallel,
            )
        except UsageError:
            return None
        if any(self._other(self._result.arm(name)) for name in found.arms.values()):
            return None
        rows = tuple((first, last, min(k, draft.k)) for first, last, k in found.rows)
        return rows if len({k for _, _, k in rows}) > 1 else None

    def expected(self, draft: Draft) -> Expected:
        """What one server with this draft does."""
        place = self._place(draft)
        if isinstance(place, str):
            return Expected.unknown(place)
        arm, batch = place
        assert self._result is not None
        rows = [row for row in self._result.rows_of(arm.name) if row.batch == batch]
        rung = replace(self._recipe, draft=draft)
        notes = tuple(notes_of(rung, self._result, arm))
        if draft.schedule and not _is_scheduled(arm):
            notes = (f"measured with K = {arm.k or 0} alone, which is its K there", *notes)
        rate = _positive(mean([row.output_tokens_per_s.value or 0.0 for row in rows]))
        return Expected(
            _once(rate),
            _p99(rows, "tpot"),
            _p99(rows, "ttft"),
            self._cost(arm, rate),
            how_of(self._recipe, self._result, arm),
            arm.name,
            batch,
            notes,
        )

    def faster(self, one: Draft, other: Draft) -> Faster:
        """How fast one is beside the other."""
        first, second = self._place(one), self._place(other)
        if isinstance(first, str) or isinstance(second, str):
            why = first if isinstance(first, str) else str(second)
            return Faster(Statistic.unknown(why))
        (ours, batch), (base, at) = first, second
        if at != batch or ours.name == base.name:
            return Faster(Statistic.unknown("not measured at the same batch"))
        assert self._result is not None
        try:
            found = compare(self._result, baseline=base.name, arms=[ours.name], batches=[batch])
        except UsageError as error:
            return Faster(Statistic.unknown(error.message))
        ratio = together(found.of(ours.name, (batch, None)))
        return Faster(ratio)

    def _place(self, draft: Draft) -> tuple[Arm, int] | str:
        """The arm and the batch that speak of it, or why none does."""
        if self._result is None:
            return NO_BENCH
        if self._batch.value is None:
            return f"the present batch is not known: {self._batch.reason}"
        arm = _arm(self._result, draft, self._batch.value)
        if arm is None:
            return f"{self._result.name} has no arm of it"
        if other := self._other(arm):
            return f"{self._result.name} is of {other}: it says nothing of this"
        rows = self._result.rows_of(arm.name)
        told = sorted({row.batch for row in rows if row.batch and row.output_tokens_per_s.value})
        if not told:
            return f"{self._result.name} has no usable row of {arm.name}"
        present = math.log(max(1.0, self._batch.value))
        nearest = min(told, key=lambda each: abs(math.log(each) - present))
        outside = present < math.log(told[0]) - _FAR or present > math.log(told[-1]) + _FAR
        if outside:
            batches = ", ".join(map(str, told))
            return f"measured at batch {batches}; now it is {self._batch.value:.0f}"
        return arm, nearest

    def _other(self, arm: Arm) -> str | None:
        """What it is a bench of, where that is not this deployment's model on its GPUs."""
        if self._result is None or self._result.simulated:  # labelled wherever it is told
            return None
        return unlike_of(self._recipe, self._result, arm)

    def _cost(self, arm: Arm, rate: Statistic) -> Statistic:
        told = self._recipe.cost.gpu_hour_usd
        pricing = Pricing(arm.price if told is None else told, arm.gpu_count)
        full = pricing.per_million(1, rate.value)
        if full.value is None:
            return Statistic.unknown("no price of a GPU-hour (cost.gpu_hour_usd)")
        low, high = (
            pricing.per_million(1, end).value if end and end > 0 else None
            for end in (rate.high, rate.low)
        )
        return _once(Statistic(full.value, low, high, rate.n))


def _arm(result: Result, draft: Draft, batch: float) -> Arm | None:
    """The arm that has this draft; for K by batch the K that is taken there."""
    same = [arm for arm in result.arms if arm.method == draft.method]
    if draft.method == "none":
        return same[0] if same else None
    k = draft.k
    if draft.schedule:
        whole = [arm for arm in same if _is_scheduled(arm)]
        if whole:
            return whole[0]
        k = next((k for first, last, k in draft.schedule if first <= batch <= last), draft.k)
        if k == 0:
            return _arm(result, Draft(), batch)
    own = [arm for arm in same if arm.k == k and not _is_scheduled(arm)]
    return min(own, key=lambda arm: arm.draft != draft.model, default=None)


def _is_scheduled(arm: Arm) -> bool:
    return any("per_batch_size" in word for word in (*(arm.command or ()), *map(str, arm.flags)))


def _positive(told: Statistic) -> Statistic:
    """The same: a rate is none below 0, however few repeats an interval is of."""
    return told if told.low is None else replace(told, low=max(0.0, told.low))


def _once(told: Statistic) -> Statistic:
    if told.value is None or told.low is not None or told.high is not None:
        return told
    return Statistic(told.value, None, None, told.n, reason="measured once: no interval")


def _p99(rows: Sequence[Row], of: Literal["tpot", "ttft"]) -> Statistic:
    """Of all requests of these rows; seconds."""
    each = pairing.tpot_of if of == "tpot" else pairing.ttft_of
    values = [value for row in rows for _, value in each(row)]
    if values:
        return spread(values).p99
    told = [row.tpot_s.p99 if of == "tpot" else row.ttft_s.p99 for row in rows]
    if len(told) == 1:
        return told[0]
    return Statistic.unknown("single requests are not in the file, and p99s do not add up")


def passed_over(bench: Bench, drafts: Sequence[Draft], place: int, serving: Draft) -> str | None:
    """Why the rung at this place is not stopped at.

    One below it was measured to be faster; or nobody measured it, and one below is faster than what
    serves now.
    """
    known = bench.expected(drafts[place]).tokens_per_s.value is not None
    other, than = (drafts[place], "") if known else (serving, "as what serves now")
    for below in drafts[place + 1 :]:
        found = bench.faster(below, other)
        if found.is_so:
            name = "no speculation" if below.method == "none" else below.method
            first = "" if known else "not measured at this batch, and "
            return f"{first}{name} is {found.words(than)}"
    return None
