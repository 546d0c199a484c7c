"""A sweep of K in a bench: which arms it is of, and how their rates compare by batch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from speccli.core.bench import pairing
from speccli.core.bench.bootstrap import Contrast, Scatter
from speccli.core.bench.compare import baseline_of
from speccli.core.bench.results import Arm, Result, Row
from speccli.core.engines.vllm_speculative import SCHEDULE_SINCE, Version, dotted
from speccli.core.errors import UsageError

Cell = tuple[int, str]
"""Batch and dataset."""
SHORT = 0.9
"""Share of K under which a draft is a shorter one: those at a text's end are few."""
_WHOLE = frozenset({"eagle", "eagle3", "p-eagle", "mtp", "draft_model"})
"""Methods that draft K tokens each time."""


def sweep(result: Result, baseline: str | None, method: str | None) -> dict[int, str]:
    """Arm by K, the largest first; K = 0 is the baseline, where there is one.

    Raises:
        UsageError: no arm tells its K, several drafts were measured, or one K alone.
    """
    apart = by_batch(result)
    speculating = [
        arm
        for arm in result.arms
        if arm.k and arm.method not in {None, "none"} and arm.name not in apart
    ]
    kinds = list(dict.fromkeys((arm.method, arm.draft) for arm in speculating))
    if method is not None:
        kinds = [kind for kind in kinds if kind[0] == method]
    if not kinds:
        raise UsageError(
            f"there is no arm of method {method}"
            if method
            else next(iter(apart.values()), "no arm tells its K"),
            hint="`arms[].k` and `arms[].method` of the file are read",
        )
    if len(kinds) > 1:
        told = ", ".join(f"{kind} with {draft}" if draft else f"{kind}" for kind, draft in kinds)
        raise UsageError(f"it holds several drafts: {told}", hint="choose one with --method")
    found: dict[int, str] = {}
    for arm in speculating:
        if (arm.method, arm.draft) != kinds[0] or arm.k is None:
            continue
        if arm.k in found:
            raise UsageError(f"{found[arm.k]} and {arm.name} both have K = {arm.k}")
        found[arm.k] = arm.name
    try:
        found[0] = baseline_of(result, baseline)
    except UsageError:
        if baseline is not None:
            raise
    if len(found) < 2:
        raise UsageError(
            f"only K = {next(iter(found))} was measured", hint="a sweep has several, and none"
        )
    return dict(sorted(found.items(), reverse=True))


def by_batch(result: Result) -> dict[str, str]:
    """Arms that draft fewer tokens than their K at some load, and where: K by batch already.

    n-gram drafts what it finds, and a grammar cuts drafts short: of those it cannot be told.
    """
    if result.load.structured:
        return {}
    drafting = {arm.name: arm.k for arm in result.arms if arm.k and arm.method in _WHOLE}
    found: dict[str, str] = {}
    for row in result.rows:
        told, k = row.acceptance, drafting.get(row.arm)
        if k and row.usable and told.drafts and told.draft_tokens is not None:
            drafted = told.draft_tokens / told.drafts
            if drafted < SHORT * k:
                found.setdefault(
                    row.arm,
                    f"{row.arm} drafts {drafted:.1f} tokens at batch {row.batch}, not K = {k}: it "
                    "has K by batch, and is left out",
                )
    return found


def refuse(result: Result, arms: Sequence[str], data_parallel: int) -> None:
    """Raises where the engine takes no K by batch size."""
    degree = max(data_parallel, *(_data_parallel(result.arm(name)) for name in arms))
    if degree > 1:
        raise UsageError(
            f"data parallel {degree}: vLLM ignores K by batch size there, with a warning",
            hint="one engine a server (--data-parallel-size 1) and a router, or one K",
        )
    for name in arms:
        arm = result.arm(name)
        kind = arm.engine.get("kind")
        if kind not in {None, "vllm"}:
            raise UsageError(f"{name} was served by {kind}: only vLLM has K by batch size")
        version = version_of(arm)
        if version is not None and version < SCHEDULE_SINCE:
            raise UsageError(
                f"{name} was served by vLLM {dotted(version)}: K by batch size needs "
                f"{dotted(SCHEDULE_SINCE)}",
                hint="use a newer engine, or one K",
            )


def version_of(arm: Arm) -> Version | None:
    """The version that served an arm, where it is known."""
    parts = str(arm.engine.get("version") or "").split("+")[0].split(".")[:3]
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        return None


def _data_parallel(arm: Arm) -> int:
    words = [part for word in arm.command or () for part in word.split("=", 1)]
    for flag, value in zip(words, words[1:], strict=False):
        if flag in {"--data-parallel-size", "-dp"} and value.isdigit():
            return int(value)
    told = arm.flags.get("data_parallel_size")
    return told if isinstance(told, int) else 1


def shared(rows: Sequence[Row], arms: dict[int, str]) -> list[Row]:
    """Of each batch and dataset that every K has: the repeats that have the baseline.

    Where there is none, those that have every K: K's are compared on the same.
    """
    cells: dict[Cell, dict[int, dict[str, Row]]] = {}
    for row in rows:
        if row.usable and row.batch is not None and row.output_tokens_per_s.value:
            repeats = cells.setdefault((row.batch, row.dataset), {})
            repeats.setdefault(row.repeat, {})[row.arm] = row
    names, base = set(arms.values()), arms.get(0)
    needed = names if base is None else {base}
    kept: list[Row] = []
    for repeats in cells.values():
        held = [each for each in repeats.values() if needed <= set(each)]
        if names <= {arm for each in held for arm in each}:
            kept += [row for each in held for arm, row in each.items() if arm in names]
    return kept


def beside(
    rows: Sequence[Row], one: str, other: str, base: str | None
) -> dict[Cell, Contrast | None]:
    """By batch and dataset: log of the rate of `other` over that of `one`.

    Repeat by repeat where both have the same; else, as of two files, each beside its own baseline.
    """
    told = _paired(rows, one, other)
    if base is None or base in (one, other):
        return told
    had, has = (_repeats(rows, arm) for arm in (one, other))
    ours, theirs = (_paired(rows, base, arm) for arm in (other, one))
    for cell in ours.keys() & theirs.keys():
        if had[cell] != has[cell]:
            told[cell] = _difference(ours[cell], theirs[cell])
    return told


def _repeats(rows: Sequence[Row], arm: str) -> dict[Cell, set[int]]:
    found: dict[Cell, set[int]] = {}
    for row in rows:
        if row.arm == arm and row.batch is not None:
            found.setdefault((row.batch, row.dataset), set()).add(row.repeat)
    return found


def _paired(rows: Sequence[Row], one: str, other: str) -> dict[Cell, Contrast | None]:
    found, _ = pairing.pairs(rows, one, [other])
    made = pairing.contrasts(found, pairing.RATE)
    return {
        (pair.load[0], pair.dataset): contrast
        for pair, contrast in zip(found, made, strict=True)
        if pair.load[0] is not None
    }


def _difference(one: Contrast | None, other: Contrast | None) -> Contrast | None:
    """One log less the other, as if nothing of their chance were the same."""
    if one is None or other is None:
        return None
    run = prompts = None
    if one.run is not None and other.run is not None:
        variance = one.run.variance / one.repeats + other.run.variance / other.repeats
        run = Scatter(variance, min(one.run.df, other.run.df))
    if one.prompt_variance is not None and other.prompt_variance is not None:
        prompts = one.prompt_variance + other.prompt_variance
    return Contrast(one.value - other.value, 1, run, prompts, min(one.prompts, other.prompts))


def logs(rows: Sequence[Row], arms: dict[int, str]) -> dict[int, dict[int, float]]:
    """By batch, then K: log of the rate over the baseline's, else over the largest K's.

    Batches at which every K was measured.
    """
    first = 0 if 0 in arms else max(arms)
    told: dict[tuple[int, int], list[float]] = {}
    for k, arm in arms.items():
        for (batch, _), contrast in _paired(rows, arms[first], arm).items():
            if contrast is not None and k != first:
                told.setdefault((batch, k), []).append(contrast.value)
    return {
        batch: {k: fmean(told[batch, k]) if k != first else 0.0 for k in arms}
        for batch in {batch for batch, _ in told}
        if all((batch, k) in told for k in arms if k != first)
    }
