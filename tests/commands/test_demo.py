from __future__ import annotations

import re

import pytest

from tests.support.processes import started


@pytest.mark.slow
def test_the_demo_shows_a_draft_go_bad_and_finds_it() -> None:
    with started("demo", "--headless") as process:
        stdout, stderr = process.communicate(timeout=300)
    assert (process.returncode, stderr) == (0, "")
    assert stdout.startswith("SIMULATED fleet of 4 engines")
    before, after = stdout.split("\nafter ", 1)
    assert "4 engines" in before
    assert re.search(r"FOUND (WARNING|CRITICAL) LOW_ACCEPTANCE: accepted [\d,]+ of", before)
    assert "LOW_ACCEPTANCE" in after
    assert "low acc" in after
    assert stdout.count("SIMULATED") >= 3
