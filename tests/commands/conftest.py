from __future__ import annotations

import os
from pathlib import Path

import pytest

_ELSEWHERE = {"SPECCTL_VLLM_PYTHON", "SPECCTL_REQUIRE_REAL"}


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, file or width of the machine that runs the tests takes part."""
    for name in os.environ:
        if name.startswith("SPECCTL_") and name not in _ELSEWHERE:
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
