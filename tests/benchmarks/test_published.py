"""The published report is what the committed evidence makes."""

from __future__ import annotations

import json
from pathlib import Path

import published
import pytest

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs/report"


def test_the_committed_report_is_what_the_evidence_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert published.main([str(tmp_path)]) == 0
    for page in ("README.md", "more/README.md"):
        assert (tmp_path / page).read_text() == (REPORT / page).read_text(), page
    made, kept = (json.loads((at / "estimate.json").read_text()) for at in (tmp_path, REPORT))
    assert made["fitted"] == kept["fitted"]
    assert len(made["lines"]) == len(kept["lines"])
    for one, other in zip(made["lines"], kept["lines"], strict=True):
        assert one["estimated"] == pytest.approx(other["estimated"]), one
    names = {f.relative_to(tmp_path) for f in tmp_path.rglob("*") if f.is_file()}
    there = {f.relative_to(REPORT) for f in REPORT.rglob("*") if f.is_file()}
    assert there - names == {Path("surprises.md")}
