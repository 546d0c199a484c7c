from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """No settings of the machine that runs the tests take part."""
    monkeypatch.chdir(str(tmp_path))
