"""A sweep of K in a bench: which arms it is of, and how their rates compare by batch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from speccli.core.bench import pairing
from speccli.core.bench.compare import baseline_of
from speccli.core.bench.results import Arm, Result, Row
from speccli.core.engines.vllm_speculative import SCHEDULE_SINCE, Version, dotted
from speccli.core.errors import UsageError


def sweep(result: Result, baseline: str | None, method: str | None) -> dict[int, str]:
    """Arm by K, the largest first; K = 0 is the baseline, where there is one.

    Raises:
        UsageError: no arm tells its K, several drafts were measured, or one K alone.
    """
    speculating = [arm for arm in result.arms if arm.k and arm.method not in {None, "none"}]
    kinds = list(dict.fromkeys((arm.method, arm.draft) for arm in speculating))
    if method is not None:
        kinds = [kind for kind in kinds if kind[0] == method]
    if not kinds:
        raise UsageError(
            f"there is no arm of method {method}" if method else "no arm tells its K",
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
    """Of each batch the datasets and repeats that every K has: K's are compared on the same."""
    there: dict[tuple[int, str, int], dict[str, Row]] = {}
    for row in rows:
        if row.usable and row.batch is not None and row.output_tokens_per_s.value:
            there.setdefault((row.batch, row.dataset, row.repeat), {})[row.arm] = row
    names = set(arms.values())
    return [row for cell in there.values() if names <= set(cell) for row in cell.values()]


def logs(rows: Sequence[Row], arms: dict[int, str]) -> dict[int, dict[int, float]]:
    """By batch, then K: log of the rate over the first K's, where all were measured; 0 for it."""
    reference, *others = arms.items()
    found, _ = pairing.pairs(rows, reference[1], [arm for _, arm in others])
    told: dict[tuple[int, str], list[float]] = {}
    for pair, contrast in zip(found, pairing.contrasts(found, pairing.RATE), strict=True):
        if contrast is not None and pair.load[0] is not None:
            told.setdefault((pair.load[0], pair.arm), []).append(contrast.value)
    batches = {batch for batch, _ in told}
    return {
        batch: {reference[0]: 0.0, **{k: fmean(told[batch, arm]) for k, arm in others}}
        for batch in batches
        if all((batch, arm) in told for _, arm in others)
    }
