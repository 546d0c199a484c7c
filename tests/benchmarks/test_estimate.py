"""What `plan` says of the lab's servers meets its goals, and is said of what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import estimate
import pytest

from driver import measure
from driver.groups import GROUPS, Arm, Bench, Group
from speccli.core.bench import results
from speccli.core.bench.form import read
from speccli.core.sizing.gpus import GPUS
from speccli.core.sizing.memory import Demand, memory

ROOT = Path(__file__).parents[2]
GPU_GIB = 139.8
SPARE_GIB = 3.0
"""What the estimate may be off by."""


def gib(group: Group, arm: Arm) -> float:
    """What `plan` says an arm's server takes, the cache as it is given."""
    if group.shape == "small":
        return 4.0 + arm.kv_gib
    drafts = arm.method in ("eagle3", "p-eagle")
    shape = estimate.shape(group.shape, arm.weights)
    draft, params = estimate.head(group.shape) if drafts else (None, None)
    told = memory(
        GPUS["h200"],
        Demand(
            shape, draft, params, arm.k if drafts else 0, group.gpus, group.gpus, 2048,
            group.max_num_seqs, 2048 if "2048" in arm.extra else 8192, "auto", 0.9, 60, drafts,
        ),
    )  # fmt: skip
    own = sum(item.bytes for item in told.items) / 2**30 + arm.kv_gib
    return own + (2.5 if arm.method == "draft_model" else 0.0)


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS.keys())
def test_the_servers_of_a_group_fit_together(group: Group) -> None:
    assert sum(gib(group, arm) for arm in group.arms) < GPU_GIB - SPARE_GIB


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS.keys())
def test_the_cache_holds_the_largest_batch_of_each_bench(group: Group) -> None:
    if group.shape == "small":
        pytest.skip("4 GiB of 23 kB a token")
    kv = estimate.shape(group.shape, "bf16").kv_bytes_per_token(group.gpus, "auto")
    for bench in group.benches:
        batch = max(map(int, bench.batches.split(",")))
        for arm in group.arms:
            if not bench.arms or arm.name in bench.arms:
                assert arm.kv_gib * 2**30 / kv > batch * 240, (bench.name, arm.name)


def test_plan_meets_its_goals_on_the_8b_that_was_measured() -> None:
    told = [f"8b={ROOT / 'docs/evidence/bench-h200-8b.json'}"]
    assert estimate.main(told) == 0


LAB = ROOT / "docs/evidence/lab-h200"


def server(name: str, method: str, k: int | None) -> results.Arm:
    return results.Arm(name, method == "none", method=method, k=k)


def told(tmp_path: Path, *benches: str) -> list[dict[str, Any]]:
    file = tmp_path / "estimate.json"
    estimate.main([*benches, "--json", str(file)])
    lines: list[dict[str, Any]] = json.loads(file.read_text())["lines"]
    return lines


def test_plan_meets_its_goals_on_what_the_lab_measured(tmp_path: Path) -> None:
    """But for a draft model at batch 32, whose two repeats differ by 30 % themselves."""
    large = ["70b-fp8", "70b-eagle3-fp8", "70b-int4", "70b-eagle3-int4"]
    found = told(
        tmp_path,
        *(f"{name}={LAB / name}-arms.json" for name in ("8b", "32b")),
        *(f"70b-{name.rpartition('-')[2]}={LAB / name}.json" for name in large),
    )
    missed = {
        (line["shape"], line["arm"], line["batch"])
        for line in found
        if line["goal"] is not None and abs(line["off"]) >= line["goal"]
    }
    assert missed == {("8b", "draft-model", 32)}
    besides = [line for line in found if line["what"] == "besides the cache"]
    assert len(besides) == 11
    assert max(abs(line["off"]) for line in besides) < 0.08


@pytest.mark.parametrize(
    ("name", "files", "off"),
    [
        ("8b", ("8b-arms",), 0.05),
        ("32b", ("32b-arms",), 0.12),
        ("70b-fp8", ("70b-fp8", "70b-eagle3-fp8"), 0.06),
    ],
)
def test_the_roofline_turns_where_the_lab_measured_it(
    tmp_path: Path, name: str, files: tuple[str, ...], off: float
) -> None:
    found = [
        line
        for line in told(tmp_path, *(f"{name}={LAB / file}.json" for file in files))
        if line["what"] == "crossover by the roofline (sharegpt)"
    ]
    assert "eagle3" in {line["arm"] for line in found}
    assert all(abs(line["off"]) < off for line in found)


def test_measured_steps_tell_where_a_draft_stops_paying(tmp_path: Path) -> None:
    """2.64 tokens a step against 1 + 5 x 0.1 plain steps at batch 1, 32 and 4 at 64: near 50."""
    ms = {"1": (10.0, 12.0), "32": (10.0, 15.0), "64": (10.0, 40.0)}
    curve = {
        "ms": {batch: {"0": plain, "5": verify} for batch, (plain, verify) in ms.items()},
        "draft_ms_per_token": dict.fromkeys(ms, 0.2),
    }
    kept = tmp_path / "cost.json"
    kept.write_text(json.dumps({"checks": [{"name": "cost.32b-fp8", "data": curve}]}))
    bench = f"32b={LAB / '32b-arms.json'}"
    found = [x for x in told(tmp_path, bench, "--cost", str(kept)) if "kernels" in x["what"]]
    assert [line["arm"] for line in found] == ["eagle3"]
    assert 45 < found[0]["estimated"] < 55
    assert found[0]["measured"] == pytest.approx(49.5, abs=0.5)


def test_the_graphs_of_servers_that_shared_a_gpu_are_not_compared(tmp_path: Path) -> None:
    """vLLM tells what the whole GPU lost while one captured."""
    shared = told(tmp_path, f"8b={LAB / '8b-arms.json'}")
    assert "CUDA graphs" not in {line["what"] for line in shared}
    kept = {"arm": "baseline", "weights": "fp8", "used": "42572 MiB"}
    (tmp_path / "servers-32b.json").write_text(json.dumps({"memory_by_server": [kept]}))
    alone = tmp_path / "32b-arms.json"
    alone.write_bytes((LAB / "32b-arms.json").read_bytes())
    found = [line for line in told(tmp_path, f"32b={alone}") if line["what"] == "CUDA graphs"]
    assert {line["arm"] for line in found} == {"baseline", "eagle3"}
    assert max(abs(line["off"]) for line in found) < 0.15


@pytest.mark.parametrize(
    ("shape", "weights", "arm", "pieces", "whole"),
    [
        ("8b", "bf16", server("baseline", "none", None), 35, 19),
        ("8b", "bf16", server("eagle3", "eagle3", 3), 51, 49),
        ("8b", "bf16", server("p-eagle", "p-eagle", 3), 49, 49),
        ("8b", "bf16", server("ngram", "ngram", 3), 49, 49),
        ("8b", "bf16", server("draft-model", "draft_model", 3), 49, 49),
        ("32b", "fp8", server("eagle3", "eagle3", 5), 51, 48),
        ("mixture", "bf16", server("spread-0", "eagle3", 3), 0, 0),
    ],
)
def test_graphs_are_as_many_as_vllm_captured_there(
    shape: str, weights: str, arm: results.Arm, pieces: int, whole: int
) -> None:
    graphs = estimate.captured(shape, weights, arm)
    assert (len(graphs.sizes), len(graphs.full)) == (pieces, whole)


@pytest.mark.parametrize(("file", "weights"), [("8b-arms.json", "bf16"), ("32b-arms.json", "fp8")])
def test_a_bench_tells_how_its_weights_were_stored(file: str, weights: str) -> None:
    assert estimate.weights_of(read(LAB / file)) == weights


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS.keys())
def test_every_group_of_stand_ins_finds_its_weights_and_its_servers(group: Group) -> None:
    for arm in group.arms if group.shape != "small" else ():
        bench = Bench("x", 1, arms=(arm.name,))
        words = measure.stand_in(group, bench)
        result = replace(read(LAB / "8b-arms.json"), stand_in=words)
        assert estimate.weights_of(result) == arm.weights
        found = estimate.group_of(group.shape, arm.weights, group.gpus)
        assert (found.shape, found.gpus) == (group.shape, group.gpus)


def test_an_estimate_over_two_gpus_is_of_each(tmp_path: Path) -> None:
    arm = server("baseline", "none", None)
    halves, whole = (
        memory(GPUS["h200"], estimate.demand("70b", "fp8", arm, gpus)).items[0].bytes
        for gpus in (2, 1)
    )
    assert halves == pytest.approx(whole / 2, rel=0.01)
    with pytest.raises(ValueError, match="32b-fp8-tp2: the lab serves .*70b-bf16-tp2"):
        estimate.group_of("32b", "fp8", 2)


@pytest.mark.parametrize(("weights", "gib"), [("bf16", 131.4), ("fp8", 67.7), ("int4", 37.1)])
def test_a_70b_is_as_large_as_its_weights_are_stored(weights: str, gib: float) -> None:
    sized = memory(GPUS["h200"], estimate.demand("70b", weights, server("x", "none", None)))
    assert sized.items[0].bytes / 2**30 == pytest.approx(gib, rel=0.01)
    assert (sized.kv_cache > 0) == (weights != "bf16")


def test_the_upcycled_model_is_larger_than_the_dense_by_its_experts() -> None:
    dense, mixed = (estimate.shape("mixture", "bf16", arm) for arm in ("dense", "spread-0.03"))
    assert dense.params == pytest.approx(134.5e6, rel=0.005)
    assert mixed.params - dense.params - mixed.router_params == 7 * dense.mlp_params


def test_a_shape_without_a_group_is_said() -> None:
    with pytest.raises(ValueError, match="32b-int4"):
        estimate.group_of("32b", "int4")


@pytest.mark.parametrize("name", ["9b", "8b-fp3"])
def test_an_unknown_shape_is_said_with_those_there_are(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert estimate.main([f"{name}={LAB / '8b-arms.json'}"]) == 64
    assert "32b" in capsys.readouterr().err


def test_memory_is_read_from_what_the_lab_kept(tmp_path: Path) -> None:
    kept = {"arm": "baseline", "weights": "int4", "used": "50000 MiB"}
    (tmp_path / "servers-70b.json").write_text(json.dumps({"memory_by_server": [kept, kept]}))
    held = estimate.held_by_server(tmp_path / "70b-int4.json")
    assert held == {("baseline", "int4"): 100_000 * 2.0**20}
    loaded = {"memory_by_server": [kept], "memory_after_load": [kept | {"used": "51000 MiB"}]}
    (tmp_path / "servers-70b.json").write_text(json.dumps(loaded))
    held = estimate.held_by_server(tmp_path / "70b-int4.json")
    assert held == {("baseline", "int4"): 51_000 * 2.0**20}
