"""Prompts of several sources in one order, of which every beginning holds each source's share.

Answers stop when their time is up: with one source after another, the last would go without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

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


def mixed(parts: Sequence[tuple[Sequence[Prompt], float | None]]) -> list[Prompt]:
    """One order of all parts. With shares it ends where a part that is due has no more."""
    weights = [float(len(prompts)) if share is None else share for prompts, share in parts]
    whole, taken, made = sum(weights), [0] * len(parts), list[Prompt]()
    if not whole:
        return made
    while True:
        due = max(range(len(parts)), key=lambda i: (len(made) + 1) * weights[i] / whole - taken[i])
        if taken[due] == len(parts[due][0]):
            return made
        made.append(parts[due][0][taken[due]])
        taken[due] += 1
