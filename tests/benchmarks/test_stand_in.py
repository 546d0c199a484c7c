"""A stand-in computes what the small model computes: transformers and plain torch say so."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from speccli.core.engines.local import find_vllm_python

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    python = find_vllm_python()
    if python is None:
        pytest.skip("no torch: run scripts/install-vllm-cpu")
    script = Path(__file__).with_name("stand_in_numbers.py")
    done = subprocess.run(
        [python, script, tmp_path_factory.mktemp("stand-in")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "benchmarks" / "lab")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.slow
@pytest.mark.parametrize("what", ["target", "head"])
def test_logits_are_the_small_models_to_float_rounding(numbers: dict[str, Any], what: str) -> None:
    told = numbers[what]
    assert told["difference"] < 2e-5 * told["largest"]
    assert told["same"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["target", "head"])
def test_tokens_that_do_not_exist_are_never_drawn(numbers: dict[str, Any], what: str) -> None:
    assert numbers[what]["others"] < -50


@pytest.mark.slow
def test_filler_is_silent_in_the_stream_and_of_normal_size_where_kernels_see_it(
    numbers: dict[str, Any],
) -> None:
    assert 0 < numbers["quiet"] < 1e-9
    assert 0.01 < numbers["loud"] < 100


@pytest.mark.slow
def test_the_parameters_are_those_of_the_shape(numbers: dict[str, Any]) -> None:
    assert numbers["params"] == numbers["said"]


@pytest.mark.slow
def test_quantized_weights_come_back_to_half_a_step(numbers: dict[str, Any]) -> None:
    assert numbers["fp8"] <= 16 / 448 + 1e-6
    assert numbers["int4"] <= 1 / 14 + 1e-6


@pytest.mark.slow
def test_experts_are_copies_apart_by_the_spread(numbers: dict[str, Any]) -> None:
    assert numbers["spread 0.0"] == 0
    assert numbers["spread 0.1"] == pytest.approx(0.1, rel=0.05)
