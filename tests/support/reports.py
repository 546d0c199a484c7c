"""Reports of benches that never ran."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from speccli.core.bench.results import Result
from speccli.core.prices import PriceBook
from speccli.core.report.build import Report, build
from tests.support.benches import PLAIN, Noise, Planted, bench

MADE = datetime(2026, 11, 29, 13, 0, tzinfo=UTC)
CURVES = [
    PLAIN,
    Planted("eagle3", {1: 1.92, 8: 1.72, 32: 1.54, 64: 1.24, 128: 0.77}),
    Planted(
        "p-eagle",
        {1: 1.55, 8: 1.5, 32: 1.38, 64: 1.12, 128: 0.83},
        "p-eagle",
        3,
        (0.67, 0.18, 0.04),
    ),
    Planted("ngram", {32: 0.98, 64: 0.9, 128: 0.82}, "ngram", 4, (0.3, 0.25, 0.2, 0.15)),
]


def whole(**options: Any) -> Result:
    """Four arms, five batches, two datasets: what a real bench is like."""
    chosen: dict[str, Any] = {
        "datasets": ("sharegpt", "humaneval"),
        "prompts": 100,
        "noise": Noise(run=0.008),
    }
    return bench(CURVES, **(chosen | options))


def report(result: Result, **options: Any) -> Report:
    book = PriceBook.bundled(datetime(2026, 11, 29, tzinfo=UTC))
    return build(result, ["planted.json"], book, made=MADE, **options)
