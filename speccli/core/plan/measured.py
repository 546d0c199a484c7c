"""What a bench measured of a recipe, beside what the roofline says: measured beats estimated."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from speccli.core.bench.compare import Cell, Comparison, compare
from speccli.core.bench.crossover import Crossover
from speccli.core.bench.results import Arm, Result, Statistic
from speccli.core.bench.schedule import schedule
from speccli.core.bench.verdict import Word
from speccli.core.errors import UsageError
from speccli.core.recipes.model import Recipe

_LIKE = 1.5
"""Times as fast or slow at most, without a draft: estimates of models that were measured are 20 %
off, and the next size of a model is twice as fast."""


@dataclass(frozen=True, slots=True)
class Estimated:
    """What the roofline says of a batch, as far as it says anything."""

    tokens_per_s_without: float | None = None
    tokens_per_s: float | None = None
    """None where nobody knows the draft's acceptance."""
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One batch that was measured."""

    batch: int
    tokens_per_s_without: float | None
    tokens_per_s: float | None
    """Output tokens per second, mean over datasets."""
    speedup: Statistic
    """Over the datasets: their geometric mean; the interval holds all of theirs."""
    verdict: Word
    estimated: Estimated

    @property
    def error_without(self) -> float | None:
        """How far the estimate without a draft is off: 0.1 is 10 % too much."""
        return _off(self.estimated.tokens_per_s_without, self.tokens_per_s_without)

    @property
    def error(self) -> float | None:
        """The same with the draft."""
        return _off(self.estimated.tokens_per_s, self.tokens_per_s)

    @property
    def error_speedup(self) -> float | None:
        """The same of the speed-up."""
        return _off(self.estimated.speedup, self.speedup.value)


def _off(estimated: float | None, measured: float | None) -> float | None:
    return estimated / measured - 1 if estimated is not None and measured else None


@dataclass(frozen=True, slots=True)
class Measured:
    """A bench of this recipe."""

    arm: str
    baseline: str
    rows: tuple[Row, ...]
    crossover: Crossover | None
    """The lowest of the datasets'."""
    schedule: tuple[tuple[int, int, int], ...] | None
    """K by batch, where the bench is a sweep of K."""
    notes: tuple[str, ...]
    """Where it is not just this recipe that was measured."""
    how: str = "measured"
    """`measured`, `measured on MODEL` where that is another one, `simulated`."""
    unlike: str | None = None
    """What was measured instead, where that says nothing of this recipe's worth."""


def measured(recipe: Recipe, result: Result, estimate: Callable[[int], Estimated]) -> Measured:
    """What a bench says of a recipe; `estimate` says what the roofline would, of a batch.

    Raises:
        UsageError: it holds no arm of the recipe's method and K, no baseline beside it, or is of a
            model that cannot be the recipe's.
    """
    arm = _arm(recipe, result)
    # With the other arms, so that verdicts are those of the bench's own table.
    comparison = compare(result)
    cells = comparison.of(arm.name)
    if not cells:
        raise UsageError(
            f"{result.name}: no load was measured both in {arm.name} and in {comparison.baseline}",
            hint="give the files that hold both, at the same batches and prompts",
        )
    batches = sorted({cell.batch for cell in cells if cell.batch is not None})
    if not batches:
        raise UsageError("an open loop has no batches to compare the plan with")
    rows = tuple(_row(comparison, arm.name, batch, estimate) for batch in batches)
    size = tuple(_size(recipe, result, arm, rows[0]))
    places = [found for name, _, found in comparison.crossovers if name == arm.name]
    unlike = unlike_of(recipe, result, arm)
    return Measured(
        arm.name,
        comparison.baseline,
        rows,
        min(places, key=lambda found: found.place, default=None),
        _schedule(result, recipe.draft.method) if unlike is None else None,
        (*notes_of(recipe, result, arm), *size),
        how_of(recipe, result, arm),
        unlike,
    )


def unlike_of(recipe: Recipe, result: Result, arm: Arm) -> str | None:
    """What was measured instead, where that says nothing of a recipe's worth."""
    if result.simulated:
        return "a simulator"
    gpu = str((result.provenance.gpu or {}).get("name") or "")
    if gpu and not is_gpu(gpu, recipe.hardware.gpu):
        return gpu
    count = recipe.hardware.count
    if arm.gpu_count != count:
        return f"{arm.gpu_count} GPU{'' if arm.gpu_count == 1 else 's'} a server, not {count}"
    if not result.stand_in and arm.model and not _same_model(recipe, arm):
        return arm.model
    return None


def _same_model(recipe: Recipe, arm: Arm) -> bool:
    names = {_last(recipe.target.model), _last(recipe.engine.served_model_name)}
    return _last(arm.model) in names - {""}


def _last(name: str | None) -> str:
    """A path here may be a hub's name there."""
    return (name or "").rstrip("/").split("/")[-1]


def _arm(recipe: Recipe, result: Result) -> Arm:
    if not recipe.speculates:
        raise UsageError(f"{recipe.name} has no draft: there is nothing to measure it against")
    wanted = recipe.draft.method, recipe.draft.k
    found = [arm for arm in result.arms if (arm.method, arm.k) == wanted]
    if found:  # the recipe's own draft, where several were measured
        return next((arm for arm in found if _same_draft(recipe, arm)), found[0])
    told = ", ".join(f"{a.name} ({a.method}{f', K={a.k}' if a.k else ''})" for a in result.arms)
    raise UsageError(
        f"{result.name} holds no arm of {wanted[0]} with K = {wanted[1]}",
        hint=f"it holds {told}",
    )


def _size(recipe: Recipe, result: Result, arm: Arm, first: Row) -> Iterator[str]:
    """A note where it costs other than the recipe's does, by its rate without a draft.

    Raises:
        UsageError: so does a stand-in, on the same GPUs: it is one of another model.
    """
    off = first.error_without
    if off is None or 1 / _LIKE <= 1 + off <= _LIKE:
        return
    rates = (
        f"{first.tokens_per_s_without:,.0f} tokens/s at batch {first.batch} without a draft, and "
        f"{recipe.target.model} is estimated at {first.estimated.tokens_per_s_without:,.0f}"
    )
    gpu = str((result.provenance.gpu or {}).get("name") or "")
    same = is_gpu(gpu, recipe.hardware.gpu) and arm.gpu_count == recipe.hardware.count
    if result.stand_in and same and not result.simulated:
        raise UsageError(
            f"{result.name} stands in for another model: {arm.model} makes {rates}",
            hint="give a bench of the recipe's model, or of a stand-in of its size",
        )
    yield f"it makes {rates}: the same weights, quantization and lengths?"


def _same_draft(recipe: Recipe, arm: Arm) -> bool:
    if arm.draft is None or not recipe.draft.model:
        return False
    return _last(arm.draft) == _last(recipe.draft.model)


def _row(
    comparison: Comparison,
    arm: str,
    batch: int,
    estimate: Callable[[int], Estimated],
) -> Row:
    cells = comparison.of(arm, (batch, None))
    without, with_ = (_mean([cell.tokens_per_s[i] for cell in cells]) for i in (0, 1))
    return Row(
        batch,
        without,
        with_,
        together(cells),
        comparison.word(arm, (batch, None)),
        estimate(batch),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def together(cells: Sequence[Cell]) -> Statistic:
    """A speed-up over datasets: their geometric mean, the interval holding all of theirs."""
    known = [cell.speedup for cell in cells if cell.speedup.value is not None]
    if not known:
        return Statistic.unknown("not measured in both arms")
    value = math.exp(fmean(math.log(each.value or 1.0) for each in known))
    lows = [each.low for each in known if each.low is not None]
    highs = [each.high for each in known if each.high is not None]
    if not lows or not highs:
        return Statistic(value, None, None, len(known), reason=known[0].reason)
    return Statistic(value, min(lows), max(highs), len(known))


def _schedule(result: Result, method: str) -> tuple[tuple[int, int, int], ...] | None:
    try:
        found = schedule(result, method=method)
    except UsageError:
        return None
    return found.rows if len({k for k in found.arms if k}) > 1 else None


def how_of(recipe: Recipe, result: Result, arm: Arm) -> str:
    """`measured`, `measured on MODEL` where that is another one, `simulated`."""
    if result.simulated:
        return "simulated"
    other = result.stand_in or (arm.model if arm.model != recipe.target.model else None)
    return f"measured on {other}" if other else "measured"


def notes_of(recipe: Recipe, result: Result, arm: Arm) -> Iterator[str]:
    """Where it is not just this recipe that was measured."""
    if result.simulated:
        yield "SIMULATED: these numbers say nothing about any GPU"
    if result.stand_in:
        yield f"STAND-IN: {result.stand_in}"
    if arm.model and recipe.target.model and arm.model != recipe.target.model:
        yield f"measured on {arm.model}; the recipe serves {recipe.target.model}"
    gpu = str((result.provenance.gpu or {}).get("name") or "")
    if not gpu:
        yield "the bench does not tell its GPU"
    elif not is_gpu(gpu, recipe.hardware.gpu):
        yield f"measured on {gpu}; the recipe runs on {recipe.hardware.gpu}"
    if recipe.draft.model and not _same_draft(recipe, arm):
        draft = f"with the draft {arm.draft}" if arm.draft else "with a draft nobody named"
        yield f"measured {draft}; the recipe has {recipe.draft.model}"
    if arm.gpu_count != recipe.hardware.count:
        plural = "" if arm.gpu_count == 1 else "s"
        yield f"measured on {arm.gpu_count} GPU{plural}; the recipe has {recipe.hardware.count}"
    yield from _lengths(recipe, result, arm)
    version = arm.engine.get("version")
    if version and recipe.engine.version and str(version) != recipe.engine.version:
        kind = arm.engine.get("kind") or "version"
        yield f"measured with {kind} {version}; the recipe runs {recipe.engine.version}"


def _lengths(recipe: Recipe, result: Result, arm: Arm) -> Iterator[str]:
    """Where requests are of another length than the estimate's, which shows in the rates."""
    rows = [row for row in result.rows_of(arm.name) if row.usable and row.input_tokens]
    requests = sum(row.requests for row in rows)
    if not requests:
        return
    told = sum(row.input_tokens or 0 for row in rows) / requests
    made = sum(row.output_tokens or 0 for row in rows) / requests
    work = recipe.workload
    wanted = work.prompt_tokens, work.output_tokens
    if any(not 1 / _LIKE <= a / b <= _LIKE for a, b in zip((told, made), wanted, strict=True) if b):
        yield (
            f"measured with {told:,.0f} tokens of prompt and {made:,.0f} of answer a request; the "
            f"estimate is of {wanted[0]:,} and {wanted[1]:,} (workload)"
        )


def is_gpu(told: str, wanted: str) -> bool:
    """Whether NVML's name (`NVIDIA H100 80GB HBM3`) is the recipe's (`h100`), variant and all."""
    words = set(re.findall(r"[a-z0-9]+", told.lower()))
    family, *variant = wanted.lower().split("-")
    other = words & {"nvl", "pcie", "40gb", "64gb"}
    return family in words and other == set(variant)
