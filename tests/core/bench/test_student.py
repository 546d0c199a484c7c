from __future__ import annotations

import pytest

from speccli.core.bench.student import quantile, tail


@pytest.mark.parametrize(
    ("alpha", "df", "table"),
    [
        (0.025, 1, 12.7062),
        (0.025, 2, 4.3027),
        (0.025, 4, 2.7764),
        (0.005, 10, 3.1693),
        (0.05, 30, 1.6973),
        (0.0005, 1, 636.619),
        (0.025, 1e6, 1.95996),
    ],
)
def test_quantiles_are_those_of_the_tables(alpha: float, df: float, table: float) -> None:
    assert quantile(alpha, df) == pytest.approx(table, rel=1e-4)


@pytest.mark.parametrize("df", [1.0, 2.5, 7.0, 300.0])
def test_the_tail_is_the_quantiles_inverse_and_symmetric(df: float) -> None:
    assert tail(quantile(0.01, df), df) == pytest.approx(0.01, rel=1e-6)
    assert tail(-1.3, df) == pytest.approx(1 - tail(1.3, df))
    assert tail(0.0, df) == pytest.approx(0.5)
