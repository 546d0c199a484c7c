"""What is kept of the runs on a GPU, and what docs/kernels.md says of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from kernels_check import payoff, plot

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kernels.md").read_text()
KEPT = ROOT / "docs" / "evidence"
RUNS = ("grid", "speed", "cost", "mutants", "planted", "block-padded", "soak")
SHOWN = ((128256, 32, 3), (151936, 32, 3), (128256, 32, 7), (151936, 64, 3), (201088, 32, 7),
         (201088, 64, 7), (201088, 128, 7))  # fmt: skip


def kept(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((KEPT / f"kernels-h200-{name}.json").read_text())
    return read


def data(run: str) -> dict[str, Any]:
    """What each check of a run measured."""
    return {check["name"]: check.get("data", {}) for check in kept(run)["checks"]}


def digits(x: float) -> str:
    """Three that count, as the page writes them."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def test_the_cost_data_is_made_again_from_its_samples() -> None:
    samples = (KEPT / "kernels-h200-cost-raw.jsonl").read_text()
    assert json.loads(json.dumps(payoff.from_raw(samples))) == data("cost")


def test_the_curves_are_those_of_the_cost_data() -> None:
    assert plot.curves(kept("cost")) == (KEPT / "kernels-h200-cost.svg").read_text()


def test_what_was_measured_is_the_kernel_that_is_here() -> None:
    """Whoever changes it measures it again, or says that the figures are of another."""
    source = (ROOT / "kernels_check" / "csrc" / "verify.cu").read_bytes()
    assert hashlib.sha256(source).hexdigest()[:16] in PAGE


@pytest.mark.parametrize("shape", SHOWN)
def test_the_times_of_the_samplers_on_the_page(shape: tuple[int, int, int]) -> None:
    rows = data("speed")["speed.samplers"]["rows"]
    row = next(r for r in rows if (r["vocab"], r["batch"], r["k"]) == shape)
    us, vocab, batch, k = row["us"], *shape
    told = [
        f"{vocab:,}, {batch}, {k}", f"{row['mib']:.0f}", digits(us["own"]),
        f"{row['share']['own']:.0%}".replace("%", " %"), digits(us["copy"]),
        f"{us['copy'] / us['own']:.0%}".replace("%", " %"),
        *(digits(us[name]) for name in ("read", "vllm-v2", "flashinfer", "vllm-v1")),
    ]  # fmt: skip
    assert f"| {' | '.join(told)} |" in PAGE


@pytest.mark.parametrize("shape", ["70b-fp8-tp4", "30b-a3b-bf16", "120b-mxfp4"])
def test_the_costs_on_the_page(shape: str) -> None:
    ms = data("cost")[f"cost.{shape}"]["ms"]
    told = [" → ".join(digits(ms[b][k]) for k in "037") for b in ("1", "8", "32", "128")]
    assert f"| {' | '.join(told)} |" in PAGE


@pytest.mark.parametrize("run", RUNS)
def test_a_run_tells_where_it_was_made(run: str) -> None:
    made = kept(run)
    facts = made["environment"]
    assert (facts["gpu"], facts["driver"]) == ("NVIDIA H200", "580.159.04")
    assert facts["versions"]["vllm"] == "0.25.1"
    assert str(made["seed"]) in PAGE
    assert f"`{run}`" in PAGE


def test_the_grid_is_whole_green_and_as_fast_as_the_page_says() -> None:
    grid = kept("grid")
    assert (grid["verdict"], grid["whole"]) == ("ok", True)
    assert {check["status"] for check in grid["checks"]} == {"passed"}
    assert f"{len(grid['checks'])} checks, all green, in {grid['seconds']:.0f} s" in PAGE
