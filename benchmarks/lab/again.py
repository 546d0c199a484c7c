"""Whether a second run, on a freshly started machine, says what the first one said.

    python benchmarks/lab/again.py FIRST.json SECOND.json

Speed-ups by arm and batch, each with its 95 % interval. Two runs of one truth lie outside of each
other's intervals now and then, but their difference lies within both scatters together. Exits 0
where all do, 1 where one does not, 3 where they share no comparison.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from speccli.core.bench.compare import compare  # noqa: E402
from speccli.core.bench.form import read  # noqa: E402
from speccli.core.bench.results import Statistic  # noqa: E402


@dataclass(frozen=True)
class Pair:
    """One comparison, measured twice."""

    arm: str
    batch: int | None
    dataset: str
    first: Statistic
    second: Statistic

    @property
    def agree(self) -> bool:
        """Whether the difference of the logarithms is within the two scatters together."""
        assert self.first.value is not None
        assert self.second.value is not None
        apart = abs(math.log(self.second.value / self.first.value))
        return apart <= math.hypot(_half(self.first), _half(self.second))


def _half(told: Statistic) -> float:
    """Half of the interval, in logarithms; without one, nothing is known to be by chance."""
    if not told.low or not told.high:
        return 0.0
    return math.log(told.high / told.low) / 2


def pairs(first: Path, second: Path) -> list[Pair]:
    """What both of them compared."""
    cells = [
        {(c.arm, c.load[0], c.dataset): c.speedup for c in compare(read(path)).cells}
        for path in (first, second)
    ]
    shared = [key for key in cells[0] if key in cells[1]]
    found = [Pair(*key, cells[0][key], cells[1][key]) for key in shared]
    return [p for p in found if p.first.value is not None and p.second.value is not None]


def _words(told: Statistic) -> str:
    interval = f" [{told.low:.2f}, {told.high:.2f}]" if told.low and told.high else ""
    return f"{told.value:.2f}{interval}"


def main(arguments: list[str]) -> int:
    """As the module says; 64 usage."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 64
    found = pairs(Path(arguments[0]), Path(arguments[1]))
    for each in found:
        mark = "agree" if each.agree else "DIFFER"
        print(
            f"{each.arm:<12} batch {each.batch!s:<5} {each.dataset:<12} "
            f"{_words(each.first):<20} {_words(each.second):<20} {mark}"
        )
    if not found:
        print("again: the two files share no comparison", file=sys.stderr)
        return 3
    return int(any(not each.agree for each in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
