"""`specctl report`, over a bench that never ran."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from speccli.core.bench.form import write
from speccli.main import app
from tests.support.benches import PLAIN, Noise, Planted, bench


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["report", *words])


@pytest.fixture
def file() -> str:
    arms = [PLAIN, Planted("eagle3", {8: 1.5, 128: 0.8})]
    write(Path("a.json"), bench(arms, batches=(8, 128), prompts=30, noise=Noise(run=0.005)))
    return "a.json"


def test_it_writes_four_files_and_prints_their_names(file: str) -> None:
    result = run(file)
    assert (result.exit_code, result.stderr) == (0, "")
    names = result.stdout.split()
    assert names == [
        "outputs/report.md",
        "outputs/report.html",
        "outputs/report.json",
        "outputs/skill-inference-server.md",
    ]
    assert all(Path(name).stat().st_size for name in names)


def test_options_reach_the_report(file: str) -> None:
    words = [
        "--target-speedup",
        "2",
        "--gpu-hour-usd",
        "5",
        "--model",
        "anthropic:claude-sonnet-5-5",
    ]
    result = run(file, "--out", "here", *words)
    assert result.exit_code == 0, result.stderr
    told = json.loads(Path("here/report.json").read_text())
    assert told["comparison"]["target_speedup"] == 2
    assert told["cost"]["gpu_hour_usd"] == 5
    assert {each["model"] for each in told["cost"]["hosted"]} == {"claude-sonnet-5-5"}
    assert told["files"] == ["a.json"]


def test_a_file_beside_it_is_the_same_bench(file: str) -> None:
    arms = [PLAIN, Planted("ngram", {8: 1.2, 128: 0.9}, "ngram", 4)]
    other = bench(arms, batches=(8, 128), prompts=30)
    write(
        Path("b.json"),
        replace(
            other,
            arms=tuple(a for a in other.arms if a.name == "ngram"),
            rows=tuple(r for r in other.rows if r.arm == "ngram"),
        ),
    )
    assert run(file, "b.json").exit_code == 0
    assert "| batch | eagle3 | ngram |" in Path("outputs/report.md").read_text()


@pytest.mark.parametrize("words", [[], ["none.json"], ["a.json", "--model", "no-such-model"]])
def test_what_is_missing_is_a_usage_error(file: str, words: list[str]) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (64, "")
    assert not Path("outputs").exists()


def test_a_text_that_speaks_of_specctl_is_somebody_elses_too(file: str) -> None:
    Path("mine").mkdir()
    Path("mine/report.md").write_text("notes: the old page was *made by specctl*, I think\n")
    assert run(file, "--out", "mine").exit_code == 64
    assert run(file, "--out", "new").exit_code == 0
    assert run(file, "--out", "new").exit_code == 0  # its own it replaces


@pytest.mark.parametrize(
    "name", ["report.md", "report.html", "report.json", "skill-inference-server.md"]
)
def test_what_somebody_else_wrote_is_not_overwritten(file: str, name: str) -> None:
    Path("mine").mkdir()
    Path("mine", name).write_text("# A report of ours, made by hand\n")
    refused = run(file, "--out", "mine")
    assert (refused.exit_code, refused.stdout) == (64, "")
    assert f"mine/{name} is not of specctl's making" in refused.stderr
    assert [path.name for path in Path("mine").iterdir()] == [name]
    forced = run(file, "--out", "mine", "--force")
    assert forced.exit_code == 0, forced.stderr
    assert "made by hand" not in Path("mine", name).read_text()
    again = run(file, "--out", "mine")
    assert again.exit_code == 0, again.stderr


def test_a_full_disk_is_said_and_leaves_nothing_half_written(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *_: object, **__: object) -> None:
        self.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    result = run(file, "--out", "there")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == (
        "specctl: error: cannot write there/report.md: No space left on device\n"
        "hint: is the disk full?\n"
    )
    assert list(Path("there").iterdir()) == []
