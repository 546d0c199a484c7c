"""The tables of docs/bench.md are those of the results that are kept."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

from speccli.core.bench.compare import compare
from speccli.core.bench.results import Result, Row, read

DOCS = Path(__file__).parents[3] / "docs"
H200 = DOCS / "evidence" / "bench-h200-8b.json"


def h200_lines(result: Result) -> list[str]:
    """A line a batch."""
    cells = {(cell.arm, cell.batch): cell for cell in compare(result).cells}

    def rows(arm: str, batch: int) -> list[Row]:
        return [row for row in result.rows_of(arm) if row.batch == batch]

    def tokens(arm: str, batch: int) -> str:
        return f"{mean(row.output_tokens_per_s.value or 0 for row in rows(arm, batch)):,.0f}"

    def tpot(arm: str, batch: int) -> str:
        return f"{1000 * mean(row.tpot_s.p50.value or 0 for row in rows(arm, batch)):.2f}"

    def speedup(arm: str, batch: int) -> str:
        told = cells[arm, batch].speedup
        return f"{told.value:.2f} [{told.low:.2f}, {told.high:.2f}]"

    def accepted(batch: int) -> str:
        return f"{mean(r.acceptance.rate.value or 0 for r in rows('eagle3', batch)):.3f}"

    return [
        f"| {batch} | {tokens('baseline', batch)} | {tokens('eagle3', batch)} "
        f"| {speedup('eagle3', batch)} | {tpot('baseline', batch)} → {tpot('eagle3', batch)} "
        f"| {accepted(batch)} | {tokens('ngram', batch)} | {speedup('ngram', batch)} |"
        for batch in result.load.batches
    ]


@pytest.mark.parametrize("batch", [1, 8, 32, 64, 128])
def test_the_h200_table_is_the_results(batch: int) -> None:
    result = read(H200)
    assert result.stand_in
    line = h200_lines(result)[result.load.batches.index(batch)]
    assert line in (DOCS / "bench.md").read_text().splitlines()
