"""Whether a second run says what the first one said."""

from __future__ import annotations

from pathlib import Path

import again
import pytest

from speccli.core.bench.form import write
from tests.support.benches import PLAIN, Noise, Planted, bench


def run(path: Path, eagle3: float, seed: int) -> str:
    arms = [PLAIN, Planted("eagle3", {8: eagle3})]
    write(path, bench(arms, batches=(8,), prompts=40, noise=Noise(run=0.01), seed=seed))
    return str(path)


def test_two_runs_of_one_truth_agree(tmp_path: Path) -> None:
    files = [run(tmp_path / f"{seed}.json", 1.5, seed) for seed in (1, 4)]
    assert again.main(files) == 0


def test_a_run_of_another_truth_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [run(tmp_path / "a.json", 1.5, 1), run(tmp_path / "b.json", 2.2, 2)]
    assert again.main(files) == 1
    assert "DIFFER" in capsys.readouterr().out


def test_files_without_a_common_arm_are_said_to_be_so(tmp_path: Path) -> None:
    other = bench([PLAIN, Planted("ngram", {8: 1.1})], batches=(8,), prompts=40)
    write(tmp_path / "b.json", other)
    assert again.main([run(tmp_path / "a.json", 1.5, 1), str(tmp_path / "b.json")]) == 3
