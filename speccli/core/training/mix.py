"""Sources of prompts, and their shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from draft_training.mix import order
from speccli.core.bench.datasets import Prompt
from speccli.core.errors import UsageError


def named(text: str) -> tuple[str, float | None]:
    """`NAME` or `NAME=SHARE`: a source and its share; a file whose name holds a = is a name.

    Raises:
        UsageError: the share is no number above 0.
    """
    name, equals, told = text.rpartition("=")
    if not equals or Path(text).is_file():
        return text, None
    try:
        share = float(told)
    except ValueError:
        share = math.nan
    if not name or not math.isfinite(share) or share <= 0:
        raise UsageError(
            f"--data {text}: {told!r} is no share", hint="write --data prompts.jsonl=0.7"
        )
    return name, share


def sources(texts: Sequence[str]) -> tuple[tuple[str, float | None], ...]:
    """Every source with its share.

    Raises:
        UsageError: some have one and some have none, or a source is named twice.
    """
    made = tuple(named(text) for text in texts)
    names = [name for name, _ in made]
    if len(set(names)) < len(names):
        raise UsageError(f"--data names a source twice: {', '.join(names)}")
    without = [name for name, share in made if share is None]
    if without and len(without) < len(made):
        raise UsageError(
            f"--data {without[0]} has no share, and others have",
            hint="give every source a share, or none: then they count by their size",
        )
    return made


def mixed(
    parts: Sequence[tuple[Sequence[Prompt], float | None]],
) -> tuple[list[tuple[int, Prompt]], int | None]:
    """All parts in one order, each prompt with its part; the part that ended it, if one did.

    With shares it ends where a part that is due has no more.
    """
    weights = [float(len(prompts)) if share is None else share for prompts, share in parts]
    places, ended_by = order([len(prompts) for prompts, _ in parts], weights)
    each = [iter(prompts) for prompts, _ in parts]
    return [(at, next(each[at])) for at in places], ended_by
