"""The tables of docs/acceptance.md, out of docs/evidence/lab-cpu.

    python benchmarks/lab/counted.py

They are written between their markers. Intervals are of 95 % over prompts: a rate is a ratio of
sums, and a difference of two rows is taken prompt by prompt where they asked the same.

Exit codes: 0 written, 64 usage.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from math import sqrt
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from usage import Parser, run  # noqa: E402

from speccli.core.bench.form import read  # noqa: E402
from speccli.core.bench.results import Result, Row  # noqa: E402
from speccli.core.bench.student import quantile  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "docs/evidence/lab-cpu"
DOC = ROOT / "docs/acceptance.md"
ALPHA = 0.025
END = "<!-- end -->"


def main(arguments: list[str]) -> int:
    """As the module says."""
    Parser("counted", str(__doc__)).parse_args(arguments)
    text = DOC.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        begin = f"<!-- {name} -->"
        before, _, rest = text.partition(begin)
        after = rest.partition(END)[2]
        text = "\n\n".join([f"{before}{begin}", "\n".join(table()), END + after])
    DOC.write_text(text, encoding="utf-8")
    return 0


Sums = Mapping[str, tuple[int, int]]
"""Accepted and drafted tokens by prompt."""


def sums(row: Row) -> Sums:
    """Of each prompt's answers."""
    told: dict[str, tuple[int, int]] = {}
    each = zip(row.samples.accepted or (), row.samples.drafted or (), strict=True)
    for prompt, (accepted, drafted) in zip(row.samples.prompt, each, strict=True):
        had = told.get(prompt, (0, 0))
        told[prompt] = had[0] + accepted, had[1] + drafted
    return told


def rate(told: Sums) -> float:
    """Accepted tokens of those drafted."""
    return sum(a for a, _ in told.values()) / sum(d for _, d in told.values())


def influence(told: Sums) -> dict[str, float]:
    """By how much each prompt moves the rate, to first order."""
    own, whole = rate(told), sum(d for _, d in told.values())
    return {prompt: (a - own * d) / whole for prompt, (a, d) in told.items()}


def half(moved: Mapping[str, float]) -> float:
    """Half of the interval's width."""
    n = len(moved)
    squares = sum(each * each for each in moved.values())
    return quantile(ALPHA, n - 1) * sqrt(n / (n - 1) * squares)


def difference(ours: Sums, theirs: Sums) -> tuple[float, float]:
    """Ours less theirs, and half of its interval's width."""
    one, other = influence(ours), influence(theirs)
    moved = {p: one.get(p, 0.0) - other.get(p, 0.0) for p in one.keys() | other.keys()}
    return rate(ours) - rate(theirs), half(moved)


def _rate(told: Sums) -> str:
    return f"{rate(told):.3f} ± {half(influence(told)):.3f}"


def _difference(ours: Sums, theirs: Sums) -> str:
    value, width = difference(ours, theirs)
    return f"{value:+.3f} ± {width:.3f}"


def _of(result: Result) -> dict[int, Row]:
    return {row.batch: row for row in result.rows if row.batch and row.state == "ok"}


def mixtures() -> dict[str, dict[int, Row]]:
    """Rows by batch, of the dense model and of each spread."""
    files = sorted(EVIDENCE.glob("cpu-mixture-spread-*.json"), key=_spread)
    named = {f"{_spread(file):g}": _of(read(file)) for file in files}
    return {"dense": _of(read(EVIDENCE / "cpu-mixture-dense.json")), **named}


def _spread(file: Path) -> float:
    return float(file.stem.rpartition("-")[2])


def same(ours: Row, theirs: Row) -> str:
    """Answers that are the same to the letter."""
    known, mine = _answers(theirs), _answers(ours)
    both = known.keys() & mine.keys()
    return f"{sum(known[p] == mine[p] for p in both)} of {len(both)}"


def routing() -> list[str]:
    """Acceptance by spread and batch."""
    told = mixtures()
    lines = [
        "| experts apart by | batch 1 | batch 32 | 32 less 1 | same answers "
        "| less dense, at 32 | the dense model's answers, at 32 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in told.items():
        by = {batch: sums(row) for batch, row in rows.items()}
        apart = "—" if name == "dense" else _difference(by[32], sums(told["dense"][32]))
        alike = "—" if name == "dense" else same(rows[32], told["dense"][32])
        both = 1 in by
        cells = [_rate(by[1]) if both else "not measured", _rate(by[32])]
        cells += [_difference(by[32], by[1]), same(rows[32], rows[1])] if both else ["—", "—"]
        lines.append(f"| {name} | {' | '.join([*cells, apart, alike])} |")
    return lines


def noise() -> list[str]:
    """Acceptance where the router is off by chance, beside the same mixture where it is not."""
    lines = [
        "| router off by | acceptance at batch 32 | less the same mixture's | the same answers |",
        "|---|---|---|---|",
    ]
    sound = mixtures()["0.3"][32]
    lines.append(f"| 0 | {_rate(sums(sound))} | — | — |")
    for file in sorted(EVIDENCE.glob("cpu-mixture-noise-*.json"), key=_spread):
        row = _of(read(file))[32]
        beside = _difference(sums(row), sums(sound))
        lines.append(f"| {_spread(file):g} | {_rate(sums(row))} | {beside} | {same(row, sound)} |")
    return lines


def delays() -> list[str]:
    """What the alert said of each stretch."""
    told = json.loads((EVIDENCE / "cpu-drift-delay.json").read_text(encoding="utf-8"))
    known = sums(_stretch("baseline"))
    lines = [
        "| stretch | s | drafts | acceptance | less the baseline's | seen | warning or worse |",
        "|---|--:|--:|---|---|---|---|",
    ]
    for each in [told["baseline"], *told["phases"]]:
        name = each["phase"]
        own = sums(_stretch(name))
        cells = [f"{each['seconds']:.0f}", f"{each['drafts']:,}", _rate(own)]
        first = name == "baseline"
        cells += ["—"] * 3 if first else [_difference(own, known), *map(_said, _both(each))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _stretch(phase: str) -> Row:
    (row,) = read(EVIDENCE / f"cpu-drift-{phase}.json").rows
    return row


def _both(each: Mapping[str, Any]) -> tuple[Any, Any]:
    return each["seen"], each["fired"]


def _said(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "no"
    return f"{found['severity']}, {found['after_s']:.0f} s, {found['after_drafts']:,} drafts"


def kinds() -> list[str]:
    """Acceptance of a few prompts of many kinds, the lowest first."""
    told = json.loads((EVIDENCE / "cpu-kinds.json").read_text(encoding="utf-8"))["kinds"]
    named = {
        each["kind"]: dict(
            zip(each["prompt"], zip(each["accepted"], each["drafted"], strict=True), strict=True)
        )
        for each in told
    }
    cells = [f"{name} | {_rate(each)}" for name, each in sorted(named.items(), key=_by_rate)]
    left, right = cells[: (len(cells) + 1) // 2], cells[(len(cells) + 1) // 2 :]
    right += ["— | —"] * (len(left) - len(right))
    lines = ["| prompts | acceptance | prompts | acceptance |", "|---|---|---|---|"]
    return lines + [f"| {a} | {b} |" for a, b in zip(left, right, strict=True)]


def _by_rate(named: tuple[str, Sums]) -> float:
    return rate(named[1])


def partings() -> list[str]:
    """Greedy answers with the head beside those without, and each beside its own."""
    result = read(EVIDENCE / "cpu-lossless.json")
    base, ours = _of_arm(result, "baseline"), _of_arm(result, "eagle3")
    text = (EVIDENCE / "cpu-lossless-verdict.json").read_text(encoding="utf-8")
    (arm,) = json.loads(text)["arms"]
    found = {each["prompt"].partition("/")[2]: each for each in arm["partings"]}
    lines = [
        "| answers | beside | same to the letter | part at a near tie | wrong | cannot be told |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for batch in sorted(ours):
        mine, known = (_answers(rows[batch]) for rows in (ours, base))
        kinds = [found[p]["kind"] if p in found else "unknown" for p in mine if mine[p] != known[p]]
        cells = [str(kinds.count(kind)) for kind in ("numeric", "wrong", "unknown")]
        alike = same(ours[batch], base[batch])
        lines.append(f"| EAGLE-3, {batch} | none, {batch} | {alike} | {' | '.join(cells)} |")
    for name, rows in (("none", base), ("EAGLE-3", ours)):
        lines.append(f"| {name}, 1 | {name}, 32 | {same(rows[1], rows[32])} | — | — | — |")
    return lines


def _answers(row: Row) -> dict[str, str]:
    return dict(zip(row.samples.prompt, row.samples.text_sha, strict=True))


def _of_arm(result: Result, arm: str) -> dict[int, Row]:
    return {row.batch: row for row in result.rows_of(arm) if row.batch}


TABLES: Mapping[str, Callable[[], list[str]]] = {
    "routing": routing,
    "noise": noise,
    "delays": delays,
    "kinds": kinds,
    "partings": partings,
}

if __name__ == "__main__":
    run("counted", main)
