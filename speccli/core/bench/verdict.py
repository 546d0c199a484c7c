"""PASS, FAIL or INCONCLUSIVE: is a speed-up beyond the target, and can chance have made it so.

PASS where the whole interval lies over the target, FAIL where it lies under it. Intervals of one
comparison are 95 %; a table of many would hold a lucky one, so each side is held to 2.5 % over the
whole table by Holm's procedure. docs/verdict.md defends it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from speccli.core.bench.bootstrap import ALPHA, Contrast
from speccli.core.errors import ExitCode

Word = Literal["PASS", "FAIL", "INCONCLUSIVE"]
TARGET = 1.1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is concluded of one comparison, and why."""

    word: Word
    reason: str
    faster: bool = False
    """Whether it is certain over the whole table to be faster than the baseline, by whatever."""
    slower: bool = False
    """Likewise, slower."""


def judge(contrasts: Sequence[Contrast | None], target: float) -> list[Verdict]:
    """One verdict each; `contrasts` are logarithms of speed-ups, all that one table shows."""
    goal = math.log(target)
    known = {i: each for i, each in enumerate(contrasts) if each is not None}
    above, below = (_beyond(known, goal, side) for side in (1, -1))
    even = min(goal, 0.0)  # under the target is not to say slower
    faster, slower = (_beyond(known, even, side) for side in (1, -1))
    found = [
        Verdict("INCONCLUSIVE", "nothing to compare")
        if contrast is None
        else _one(contrast, target, len(known), i in above, i in below, i in slower)
        for i, contrast in enumerate(contrasts)
    ]
    return [replace(each, faster=i in faster, slower=i in slower) for i, each in enumerate(found)]


def _beyond(known: dict[int, Contrast], goal: float, side: int) -> set[int]:
    """Those whose interval lies wholly on one side of the goal, by Holm's procedure.

    Step by step the level is shared by those that are left; stopping where nobody passes is what
    keeps the chance of even one false one at the level.
    """
    left, found = dict(known), set[int]()
    while left:
        level = ALPHA / len(left)
        now = {i for i, each in left.items() if _clears(each, goal, side, level)}
        if not now:
            break
        found |= now
        left = {i: each for i, each in left.items() if i not in now}
    return found


def _clears(contrast: Contrast, goal: float, side: int, level: float) -> bool:
    width = contrast.width(level)
    return width is not None and side * (contrast.value - goal) > width


def _one(
    contrast: Contrast, target: float, among: int, above: bool, below: bool, slower: bool
) -> Verdict:
    width = contrast.width(ALPHA)
    if width is None:
        return Verdict(
            "INCONCLUSIVE", "measured once: how much runs differ is unknown (--repeats 3)"
        )
    low, high = math.exp(contrast.value - width), math.exp(contrast.value + width)
    told = f"{math.exp(contrast.value):.2f} [{low:.2f}, {high:.2f}]"
    if above:
        return Verdict("PASS", f"{told} is over {target:g}")
    if below:
        than = ", slower than the baseline" if high < 1 <= target else ""
        alone = " by its interval alone" if than and not slower else ""
        return Verdict("FAIL", f"{told} is under {target:g}{than}{alone}")
    if low > target or high < target:
        side = "over" if low > target else "under"
        return Verdict(
            "INCONCLUSIVE",
            f"{told} is {side} {target:g} taken alone; among {among} comparisons it may be chance",
        )
    return Verdict("INCONCLUSIVE", f"{told} holds {target:g}: more repeats or prompts would tell")


def worst(words: Sequence[Word]) -> Word:
    """Of several datasets: FAIL if any fails, PASS if all pass."""
    if "FAIL" in words:
        return "FAIL"
    return "PASS" if words and all(word == "PASS" for word in words) else "INCONCLUSIVE"


def exit_code(words: Sequence[Word]) -> ExitCode:
    """0 where all pass, 2 where one fails, 3 where one cannot be told."""
    return {"PASS": ExitCode.OK, "FAIL": ExitCode.CRITICAL, "INCONCLUSIVE": ExitCode.UNKNOWN}[
        worst(words)
    ]
