"""Whether a second run, on a freshly started machine, says what the first one said.

    python benchmarks/lab/again.py FIRST.json SECOND.json

Speed-ups by arm and batch, each with its 95 % interval. Two runs of one truth lie outside of each
other's intervals now and then, but their difference lies within both scatters together. Files of
two models, or of arms that share no more than their names, are refused, and so are those of another
GPU, engine, set of prompts or flags.

Exit codes: 0 all agree, 1 one does not, 3 they share no comparison, 64 usage.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from usage import Parser, run  # noqa: E402

from speccli.core.bench.again import differences, pairs  # noqa: E402
from speccli.core.bench.compare import compare  # noqa: E402
from speccli.core.bench.form import read  # noqa: E402
from speccli.core.bench.results import Statistic  # noqa: E402
from speccli.core.errors import UsageError  # noqa: E402


def _words(told: Statistic) -> str:
    interval = f" [{told.low:.2f}, {told.high:.2f}]" if told.low and told.high else ""
    return f"{told.value:.2f}{interval}"


def main(arguments: list[str]) -> int:
    """As the module says.

    Raises:
        UsageError: a file is no bench, or they are not of the same thing.
    """
    parser = Parser("again", str(__doc__))
    parser.add_argument("first", type=Path, metavar="FIRST")
    parser.add_argument("second", type=Path, metavar="SECOND")
    asked = parser.parse_args(arguments)
    first, second = read(asked.first), read(asked.second)
    told = list(differences(first, second))
    if told:
        raise UsageError(
            f"{asked.first} and {asked.second} did not measure the same: {'; '.join(told)}"
        )
    found = pairs(compare(first), compare(second))
    for each in found:
        mark = {True: "agree", False: "DIFFER", None: "not told"}[each.agree]
        print(
            f"{each.arm:<12} batch {each.load[0]!s:<5} {each.dataset:<12} "
            f"{_words(each.first):<20} {_words(each.second):<20} {mark}"
        )
    if not found:
        print("again: the two files share no comparison", file=sys.stderr)
        return 3
    return int(any(each.agree is False for each in found))


if __name__ == "__main__":
    run("again", main)
