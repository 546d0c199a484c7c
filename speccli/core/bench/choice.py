"""Which K at which batch: what was measured of every K, and the falls that it justifies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from speccli.core.bench import sweep as sweeps
from speccli.core.bench.bootstrap import ALPHA, Contrast
from speccli.core.bench.results import Row

GAIN = 0.03
"""What a smaller K must earn at one batch before it is worth a range of its own."""
DOUBT = 1 / 6
"""Chance at most that the smaller K is the slower one, by what was measured of the two.

No interval of 95 % is asked for: one K is a choice too, and it is wrong where the other is right.
"""


@dataclass(frozen=True, slots=True)
class Swept:
    """What was measured of every K."""

    rows: Sequence[Row]
    arms: dict[int, str]
    logs: dict[int, dict[int, float]]
    """By batch, then K: the log of the rate, over that of one K of them."""

    @property
    def batches(self) -> list[int]:
        """Those at which every K was measured, ascending."""
        return sorted(self.logs)

    def alone(self) -> int:
        """The K that is fastest where one has to serve all batches; 0: no draft."""
        return max(self.arms, key=lambda k: math.fsum(here[k] for here in self.logs.values()))

    def best(self, batch: int) -> int:
        """The fastest K of a batch."""
        here = self.logs[batch]
        return max(here, key=lambda k: here[k])

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

    def gains(self, batch: int, smaller: int, larger: int) -> bool:
        """Whether the smaller K was faster by more than `GAIN`."""
        return self.lead(batch, smaller, larger) > math.log1p(GAIN)

    def likely(self, batch: int, smaller: int, larger: int) -> bool:
        """Whether the smaller K was faster by more than `GAIN`, and likely is."""
        width = self.width(batch, smaller, larger, DOUBT)
        led = width is not None and self.lead(batch, smaller, larger) > width
        return led and self.gains(batch, smaller, larger)

    def falls(self, batch: int, smaller: int, larger: int) -> bool:
        """Whether K may fall there: likely faster than what it was, and than the best over it.

        Else a worse K would be begun with, from which the same doubtful fall looks sure.
        """
        over = max((k for k in self.arms if k > smaller), key=lambda k: self.logs[batch][k])
        return all(self.likely(batch, smaller, k) for k in {larger, over})


def choose(swept: Swept, *, doubt: bool = True) -> dict[int, int]:
    """K at each measured batch: of all that only fall, what was fastest over the batches.

    Every batch counts alike, and a fall costs `GAIN` of one batch's rate; so one K is left only
    for what earns more. Without `doubt` as if chance had no part in what was measured.
    """
    may = swept.falls if doubt else swept.gains
    first, *others = swept.batches
    paths: dict[int, tuple[float, tuple[int, ...]]] = {
        k: (log, (k,)) for k, log in swept.logs[first].items()
    }
    for batch in others:
        before, paths = paths, {}
        for k, log in swept.logs[batch].items():
            score, path = before[k]
            for larger, (held, so_far) in before.items():
                fallen = held - math.log1p(GAIN)
                if larger > k and fallen > score and may(batch, k, larger):
                    score, path = fallen, so_far
            paths[k] = score + log, (*path, k)
    chosen = dict(zip(swept.batches, max(paths.values())[1], strict=True))
    if 0 in swept.arms and not any(swept.gains(batch, k, 0) for batch, k in chosen.items()):
        return dict.fromkeys(swept.batches, 0)
    return chosen


def doubts(swept: Swept, chosen: dict[int, int]) -> list[str]:
    """Where another K was faster, and why it is not taken; where a fall is likely and no more."""
    told, free = [], choose(swept, doubt=False)
    before: int | None = None
    for batch, k in chosen.items():
        best = swept.best(batch)
        if swept.gains(batch, best, k):
            why = (
                f"; to fall from it later is not sure {MORE}"
                if best > k and free[batch] == best
                else _why_not(swept, batch, best, chosen)
            )
            told.append(f"{_faster(swept, batch, best, k)}{why}")
        elif before is not None and k < before:
            lead, width = swept.lead(batch, k, before), swept.width(batch, k, before)
            if width is None or lead <= width:
                ends = _ends(lead, width or 0.0)
                told.append(f"{_faster(swept, batch, k, before)}, {ends}: likely, not sure {MORE}")
        before = k
    return told


MORE = "(more --repeats would tell)"


def _why_not(swept: Swept, batch: int, best: int, chosen: dict[int, int]) -> str:
    """Why a batch does not have the K that was fastest there."""
    k, first = chosen[batch], max(chosen.values())
    if best > k:
        if best > first:
            return "; to begin with it and fall later earns less"
        below = max((at for at in chosen if at < batch), default=batch)
        return "; to fall to it and once more earns less" if chosen[below] >= best else RAISED
    if batch == min(chosen) or swept.falls(batch, best, k):
        return f"{RAISED}, and a larger one pays later"
    width = swept.width(batch, best, k)
    why = "measured once" if width is None else _ends(swept.lead(batch, best, k), width)
    return f", {why}: K is not changed there {MORE}"


RAISED = "; K is not raised again"


def _faster(swept: Swept, batch: int, best: int, k: int) -> str:
    return f"at batch {batch} K = {best} was {_percent(swept.lead(batch, best, k))} faster than {k}"


def _percent(lead: float) -> str:
    return f"{100 * math.expm1(lead):.0f} %"


def _ends(lead: float, width: float) -> str:
    return f"its interval {_percent(lead - width)} to {_percent(lead + width)}"
