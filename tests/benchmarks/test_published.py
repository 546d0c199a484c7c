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
    for page in ("README.md", "more/README.md", "headroom.md"):
        assert (tmp_path / page).read_text() == (REPORT / page).read_text(), page
    made, kept = (json.loads((at / "estimate.json").read_text()) for at in (tmp_path, REPORT))
    assert made["fitted"] == kept["fitted"]
    assert len(made["lines"]) == len(kept["lines"])
    for one, other in zip(made["lines"], kept["lines"], strict=True):
        assert one["estimated"] == pytest.approx(other["estimated"]), one
    names = {f.relative_to(tmp_path) for f in tmp_path.rglob("*") if f.is_file()}
    there = {f.relative_to(REPORT) for f in REPORT.rglob("*") if f.is_file()}
    assert there - names == {Path("surprises.md")}


def test_headroom_is_what_the_servers_held_less_their_cache() -> None:
    held = json.loads((ROOT / "docs/evidence/lab-h200/servers-70b-bf16.json").read_text())
    mib = float(held["memory_after_load"][0]["used"].split()[0])
    rows = [line.split(" | ") for line in (REPORT / "headroom.md").read_text().splitlines()]
    bf16 = next(row for row in rows if row[0] == "| BF16")
    assert float(bf16[2].removeprefix("◐ ")) == pytest.approx(mib / 1024 - 2.5, abs=0.05)
    assert 3.5 / 3600 / float(bf16[5].removeprefix("◐ ")) * 1e6 == pytest.approx(
        float(bf16[6].removeprefix("◐ ")), abs=0.01
    )
    assert bf16[3].startswith("△ none")
