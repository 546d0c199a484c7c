"""Quantities in the spelling that API servers write back (tests/e2e/kube asks one)."""

from __future__ import annotations

import pytest

from speccli.core.manifests.quantities import gib, plain


@pytest.mark.parametrize(
    ("number", "text"),
    [(200.0, "200"), (0.2, "200m"), (1.5, "1500m"), (1000.0, "1k"), (1200.0, "1200")],
)
def test_numbers(number: float, text: str) -> None:
    assert plain(number) == text


@pytest.mark.parametrize(("count", "text"), [(16, "16Gi"), (1024, "1Ti"), (1536, "1536Gi")])
def test_gibibytes(count: int, text: str) -> None:
    assert gib(count) == text
