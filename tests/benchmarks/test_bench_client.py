"""The comparison with `vllm bench serve`: its table, and the figures that are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.bench_client import table

ROOT = Path(__file__).parents[2]
KEPT = json.loads((ROOT / "docs" / "evidence" / "bench-client.json").read_text())["rounds"]
FIGURES = ("tok/s", "TTFT ms", "TPOT ms")


def _round(ours: float, theirs: float) -> dict[str, object]:
    told = {"server": "m", "concurrency": 8, "requests": 32, "output_tokens": 16}
    return told | {"specctl": {"tok/s": ours}, "vllm": {"tok/s": theirs}, "load_average": 1.0}


def test_a_ratio_is_of_one_round_and_has_its_interval() -> None:
    rows = [_round(10.0, 10.0), _round(220.0, 200.0), _round(31.5, 30.0)]
    told = list(table(rows))
    assert told[1] == "| 8 | tok/s | 31.50 | 30.00 | 1.050 [1.000, 1.100] |"
    assert "3 rounds of 32 answers of 16 tokens" in told[2]


def test_the_table_is_of_the_rounds_that_are_kept() -> None:
    shown = (ROOT / "benchmarks" / "results.md").read_text().splitlines()
    for line in table(KEPT):
        assert line.startswith("<!--") or set(line.splitlines()) <= set(shown)


@pytest.mark.parametrize("concurrency", sorted({row["concurrency"] for row in KEPT}))
def test_the_kept_medians_agree_within_two_percent(concurrency: int) -> None:
    lines = [line for line in table(KEPT) if line.startswith(f"| {concurrency} |")]
    ratios = {line.split("|")[2].strip(): line.split("|")[5].split() for line in lines}
    for name in FIGURES:
        assert abs(float(ratios[name][0]) - 1) <= 0.02, (name, ratios[name])
    assert float(ratios["CPU ms / 1k tokens"][0]) <= 1
