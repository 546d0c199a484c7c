from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from speccli.commands import demo
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


@pytest.mark.parametrize(
    ("program", "on_path", "line"),
    [
        pytest.param("bin/specctl", False, "Next: bin/specctl top --endpoint ", id="make-demo"),
        pytest.param("bin/specctl", True, "Next: specctl top --endpoint ", id="activated"),
        pytest.param(
            "speccli/__main__.py", False, f"Next: {sys.executable} -m speccli top ", id="module"
        ),
    ],
)
def test_what_to_type_next_works_in_the_readers_shell(
    program: str,
    on_path: bool,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("specctl", "activate"):
        (tmp_path / "bin" / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setenv("PATH", str(tmp_path / "bin") if on_path else "/nowhere")
    demo._next()
    said = capsys.readouterr().out
    assert said.startswith(line)
    assert ("`. bin/activate`" in said) == (program == "bin/specctl" and not on_path)
