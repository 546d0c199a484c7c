"""Whether a second run says what the first one said."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import again
import pytest

from speccli.core.bench.again import Pair
from speccli.core.bench.form import read, write
from speccli.core.bench.results import Arm, Result, Statistic
from speccli.core.errors import UsageError
from tests.support.benches import PLAIN, Noise, Planted, bench

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs/evidence/lab-h200"


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


def test_files_of_two_models_are_refused() -> None:
    files = [str(EVIDENCE / f"{size}-arms.json") for size in ("8b", "32b")]
    with pytest.raises(UsageError, match=r"stand-in: .* 8B .* 32B "):
        again.main(files)


def test_arms_that_share_but_a_name_are_refused(tmp_path: Path) -> None:
    first, second = (tmp_path / f"{k}.json" for k in (3, 5))
    for path, k in ((first, 3), (second, 5)):
        told = bench([PLAIN, Planted("eagle3", {8: 1.5})], batches=(8,), prompts=4)
        arms = tuple(a if a.baseline else replace(a, k=k) for a in told.arms)
        write(path, replace(told, arms=arms))
    with pytest.raises(UsageError, match="eagle3's k: 3 and 5"):
        again.main([str(first), str(second)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: {"provenance": replace(r.provenance, gpu={"name": "H100"})}, "GPU's name"),
        (lambda r: {"datasets": (replace(r.datasets[0], sha256="ff"),)}, "sha256 of sharegpt"),
        (lambda r: {"arms": _arms(r, engine={"version": "0.32.0"})}, "baseline's engine version"),
        (lambda r: {"arms": _arms(r, flags={"--enforce-eager": True})}, "baseline's flags"),
        (lambda r: {"arms": _arms(r, command=("vllm", "--eager"))}, "baseline's command"),
        (lambda r: {"arms": _arms(r, draft="another")}, "baseline's draft"),
    ],
)  # fmt: skip
def test_another_machine_engine_set_or_server_is_refused(
    change: Callable[[Result], dict[str, Any]], said: str, tmp_path: Path
) -> None:
    """A real difference of hardware must not be read as intervals that are too narrow."""
    told = read(EVIDENCE / "8b-lossless.json")
    told = replace(told, arms=_arms(told, flags={"--a": 1}, command=("vllm",), draft="one"))
    files = [tmp_path / f"{i}.json" for i in range(3)]
    write(files[0], told)
    write(files[1], replace(told, **change(told)))
    again_ = replace(told, arms=_arms(told, command=("vllm", "--port", "9")))
    write(files[2], again_)
    with pytest.raises(UsageError, match=said):
        again.main([str(files[0]), str(files[1])])
    assert again.main([str(files[0]), str(files[2])]) == 0, "another port is no other server"


def _arms(result: Result, **change: Any) -> tuple[Arm, ...]:
    return tuple(replace(arm, **change) for arm in result.arms)


def test_a_run_measured_once_scatters_as_the_other_does() -> None:
    """Two runs of one truth, one of them without an interval, are apart in 5 % and not in 17 %."""
    rng, known, once = (
        random.Random(7),
        Statistic(1.0, 0.9, 1 / 0.9, 2),
        Statistic(1, None, None, 1),
    )
    half, draws = math.log(1 / 0.9), 4000
    apart = 0
    for _ in range(draws):
        first, second = (math.exp(rng.gauss(0, half / 1.96)) for _ in range(2))
        one = Statistic(first, first * 0.9, first / 0.9, 2)
        pair = Pair("eagle3", (8, None), "x", one, replace(once, value=second), (8, 8))
        apart += pair.agree is False
    assert 0.04 < apart / draws < 0.06
    assert Pair("a", (8, None), "x", once, once, (8, 8)).agree is None
    assert Pair("a", (8, None), "x", replace(once, value=1.4), known, (8, 8)).agree is False


def test_a_file_compared_with_itself_agrees() -> None:
    assert again.main([str(EVIDENCE / "32b-arms.json")] * 2) == 0


@pytest.mark.parametrize("arguments", [[], ["one.json"], ["/nonexist/a.json", "/nonexist/b.json"]])
def test_a_wrong_call_is_one_line_and_64(arguments: list[str]) -> None:
    """Of 1 anybody would think that the runs differ."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/lab/again.py"), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 64
    assert "again: " in done.stderr
    assert "Traceback" not in done.stderr
