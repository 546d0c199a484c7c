from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from speccli.core.bench.compare import compare
from speccli.core.bench.merge import read_all
from speccli.core.bench.results import Result
from speccli.core.errors import UsageError
from speccli.core.plan import Plan, plan
from speccli.core.plan.measured import is_gpu
from speccli.core.recipes.load import load
from speccli.core.views import plan as view
from tests.support.benches import PLAIN, Noise, Planted, bench, sweep

RECIPE = "llama-3.3-70b-eagle3-h200"
QUIET = Noise(run=0.004, prompt=0.03)
CURVE = {1: 1.9, 32: 1.5, 128: 0.8}


def of_it(result: Result) -> Result:
    """As if the recipe's own model had been measured on its own GPU."""
    arms = tuple(replace(arm, model=load(RECIPE).target.model) for arm in result.arms)
    came = replace(result.provenance, gpu={"name": "NVIDIA H200"})
    return replace(result, arms=arms, provenance=came, simulated=False, stand_in=None)


def measured(change: Any = of_it, *, most: int = 128) -> Plan:
    result = bench([PLAIN, Planted("eagle3", CURVE)], batches=(1, 32, 128), noise=QUIET, prompts=40)
    return plan(load(RECIPE, [f"serving.max_num_seqs={most}"]), change(result))


def test_what_was_measured_stands_beside_what_was_estimated() -> None:
    made = measured()
    assert made.measured is not None
    assert [row.batch for row in made.measured.rows] == [1, 32, 128]
    first = made.measured.rows[0]
    assert first.speedup.value == pytest.approx(1.9, rel=0.03)
    assert first.verdict == "PASS"
    assert first.estimated.speedup is not None
    assert first.error_speedup == pytest.approx(first.estimated.speedup / first.speedup.value - 1)  # type: ignore[operator]
    assert first.error_without == pytest.approx(
        first.estimated.tokens_per_s_without / first.tokens_per_s_without - 1  # type: ignore[operator]
    )


def test_the_estimate_is_the_plans_own_at_its_batches() -> None:
    made = measured()
    assert made.measured is not None
    assert made.estimate is not None
    ours = {row.batch: row.estimated.tokens_per_s for row in made.measured.rows}
    theirs = {level.batch: level.tokens_per_s for level in made.estimate.levels}
    assert {b: ours[b] for b in (1, 32)} == pytest.approx({b: theirs[b] for b in (1, 32)})


def test_a_measured_crossover_replaces_the_estimated_one_in_advice() -> None:
    made = measured()
    worth = next(v for v in made.verdicts if v.code == "R-WORTH" or v.rule == "R-WORTH")
    assert "at batch 128 (measured)" in worth.evidence
    assert "(estimate)" not in worth.evidence


def test_a_batch_that_the_recipe_never_reaches_is_no_advice() -> None:
    (worth,) = (v for v in measured(most=64).verdicts if v.rule == "R-WORTH")
    assert "over 1.1 times none at batch 1, 32 (measured)" in worth.evidence


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param({"simulated": True}, "a simulator", id="simulated"),
        pytest.param({"gpu": "NVIDIA H100 80GB HBM3"}, "NVIDIA H100 80GB HBM3", id="gpu"),
        pytest.param({"model": "smollm2-135m"}, "smollm2-135m", id="model"),
        pytest.param({"gpus": 4}, "4 GPUs a server, not 1", id="gpus"),
    ],
)
def test_what_is_not_of_this_recipe_decides_nothing(change: dict[str, Any], told: str) -> None:
    def other(result: Result) -> Result:
        found = of_it(result)
        if "model" in change:
            arms = tuple(replace(arm, model=change["model"]) for arm in found.arms)
            found = replace(found, arms=arms, provenance=replace(found.provenance, gpu=None))
        if "gpu" in change:
            found = replace(
                found, provenance=replace(found.provenance, gpu={"name": change["gpu"]})
            )
        if "gpus" in change:
            arms = tuple(replace(arm, gpu_count=change["gpus"]) for arm in found.arms)
            found = replace(found, arms=arms)
        return replace(found, simulated=change.get("simulated", False))

    made = measured(other)
    (unlike,) = (v for v in made.verdicts if v.rule == "R-MEASURED")
    assert unlike.severity == "warning"
    assert f"the bench is of {told}" in unlike.evidence
    assert all("(estimate)" in v.evidence for v in made.verdicts if v.rule == "R-WORTH")
    assert made.measured is not None
    assert made.measured.schedule is None


def test_a_served_name_is_the_recipes_model() -> None:
    def served(result: Result) -> Result:
        found = of_it(result)
        return replace(found, arms=tuple(replace(arm, model="llama") for arm in found.arms))

    result = served(bench([PLAIN, Planted("eagle3", CURVE)], noise=QUIET, prompts=20))
    told = plan(load(RECIPE, ["engine.served_model_name=llama"]), result).verdicts
    assert "R-MEASURED" not in {v.rule for v in told}
    alias = plan(load(RECIPE), result)
    assert "R-MEASURED" in {v.rule for v in alias.verdicts}
    assert alias.measured is not None
    assert any("the same weights, quantization" in note for note in alias.measured.notes)


def test_the_json_holds_both_and_the_error() -> None:
    told = view.plan(measured())["measured"]
    assert told["crossover"]["state"] == "between"
    row = told["rows"][0]
    assert set(row["estimate_error"]) == {"tokens_per_s_without", "tokens_per_s", "speedup"}
    assert row["estimate"]["speedup"] == pytest.approx(
        row["speedup"]["value"] * (1 + row["estimate_error"]["speedup"])
    )
    assert view.plan(plan(load(RECIPE)))["measured"] is None


def test_a_sweep_gives_k_by_batch_where_the_recipe_has_none() -> None:
    curves = {3: CURVE, 1: {1: 1.5, 32: 1.3, 128: 0.9}}
    result = sweep(curves, batches=(1, 32, 128), prompts=20, noise=QUIET)
    told = view.plan(plan(load(RECIPE), of_it(result)))
    assert told["k_schedule_source"] == "measured"
    assert [k for _, _, k in told["k_schedule"]] == [3, 0]


def test_what_is_not_just_this_recipe_is_said() -> None:
    def elsewhere(result: Result) -> Result:
        arms = tuple(
            replace(a, model="other/model", engine={"kind": "vllm", "version": "0.31.0"})
            for a in result.arms
        )
        came = replace(result.provenance, gpu={"name": "NVIDIA H100 80GB HBM3"})
        return replace(result, arms=arms, provenance=came, simulated=False, stand_in=None)

    made = measured(elsewhere)
    assert made.measured is not None
    notes = "\n".join(made.measured.notes)
    for words in ("measured on other/model", "H100", "measured with vllm 0.31.0"):
        assert words in notes
    assert made.measured.how == "measured on other/model"


def test_the_recipes_own_draft_is_taken_and_another_is_said() -> None:
    own = load(RECIPE).draft.model

    def two(result: Result, draft: str) -> Result:
        eagle = result.arm("eagle3")
        arms = (result.arm("none"), replace(eagle, name="other"), replace(eagle, draft=draft))
        rows = (*result.rows, *(replace(r, arm="other") for r in result.rows_of("eagle3")))
        return replace(result, arms=arms, rows=rows)

    ours = measured(lambda result: two(result, f"/models/{own}")).measured
    assert ours is not None
    assert ours.arm == "eagle3"
    assert not any("measured with" in note and "draft" in note for note in ours.notes)
    theirs = measured(lambda result: two(result, "another-head")).measured
    assert theirs is not None
    assert theirs.arm == "other"
    assert any(f"the recipe has {own}" in note for note in theirs.notes)


@pytest.mark.parametrize(
    ("told", "wanted", "same"),
    [
        ("NVIDIA H200", "h200", True),
        ("NVIDIA GH200 480GB", "h200", False),
        ("NVIDIA H200 NVL", "h200", False),
        ("NVIDIA H100 80GB HBM3", "h100", True),
        ("NVIDIA H100 NVL", "h100", False),
        ("NVIDIA H100 NVL", "h100-nvl", True),
        ("NVIDIA H100 PCIe", "h100", False),
        ("NVIDIA A100-SXM4-80GB", "a100", True),
        ("NVIDIA A100-SXM4-40GB", "a100", False),
    ],
)
def test_a_gpu_is_known_by_its_whole_name(told: str, wanted: str, same: bool) -> None:
    assert is_gpu(told, wanted) is same


EVIDENCE = Path(__file__).parents[3] / "docs/evidence/lab-h200"


def _evidence(recipe: str, *names: str, k: int = 5) -> Plan:
    result = read_all([EVIDENCE / f"{name}.json" for name in names])
    return plan(load(recipe, [f"draft.K={k}"]), result)


@pytest.mark.parametrize(
    ("recipe", "weights", "without", "with_"),
    [
        (RECIPE, "fp8", [47.7, 352.6, 995.1, 1992.3], [87.3, 660.7, 1384.3, 1679.9]),
        (
            "llama-3.3-70b-awq-eagle3-h200",
            "int4",
            [49.9, 359.1, 1031.0, 1353.9],
            [118.9, 554.7, 916.6, 1074.5],
        ),
    ],
)
def test_arms_of_two_files_are_one_bench_of_the_plan(
    recipe: str, weights: str, without: list[float], with_: list[float]
) -> None:
    """Each file marks its own arm as the baseline; the numbers are means of the files' rows."""
    made = _evidence(recipe, f"70b-{weights}", f"70b-eagle3-{weights}").measured
    assert made is not None
    assert (made.baseline, [row.batch for row in made.rows]) == ("baseline", [1, 8, 32, 64])
    assert [row.tokens_per_s_without for row in made.rows] == pytest.approx(without, abs=0.06)
    assert [row.tokens_per_s for row in made.rows] == pytest.approx(with_, abs=0.06)
    assert abs(made.rows[0].error_without or 1) < 0.2
    (told,) = (note for note in made.notes if "of prompt" in note)
    assert told.endswith("the estimate is of 1,024 and 512 (workload)")


@pytest.mark.parametrize(("names", "k"), [(("8b-arms", "8b-sets"), 3), (("32b-arms",), 5)])
def test_a_bench_of_a_smaller_model_is_refused(names: tuple[str, ...], k: int) -> None:
    with pytest.raises(UsageError, match=r"stands in for another model: smollm2-.* at batch 1 "):
        _evidence(RECIPE, *names, k=k)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("70b-fp8", "holds no arm of eagle3 with K = 5"),
        ("70b-eagle3-fp8", "there is no arm beside the baseline eagle3"),
        ("servers-70b", "is not a bench result"),
    ],
)
def test_a_file_without_the_rows_is_refused(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        _evidence(RECIPE, name)


def test_an_arm_without_a_load_of_the_baseline_is_refused() -> None:
    def apart(result: Result) -> Result:
        arms = (*result.arms, replace(result.arm("eagle3"), name="other", k=9))
        rows = [replace(r, arm="other") for r in result.rows_of("eagle3") if r.batch == 1]
        left = [r for r in result.rows if r.arm != "eagle3" or r.batch != 1]
        kept = [r for r in left if r.arm != "eagle3" and r.batch != 8]
        eagle = [replace(r, batch=8) for r in result.rows_of("eagle3") if r.batch == 32]
        return replace(result, arms=arms, rows=(*kept, *eagle, *rows))

    with pytest.raises(UsageError, match="no load was measured both in eagle3 and in none"):
        measured(apart)


def test_verdicts_are_those_of_the_benchs_own_table() -> None:
    """Left alone with its baseline an arm has fewer comparisons, and passes sooner."""
    arms = [PLAIN, Planted("eagle3", CURVE), Planted("ngram", {1: 1.1}, "ngram", 4)]
    result = bench(arms, batches=(1, 32, 128), noise=Noise(run=0.05, prompt=0.03), prompts=40)
    made = plan(load(RECIPE), result).measured
    assert made is not None
    whole = compare(result)
    for row in made.rows:
        (cell,) = whole.of("eagle3", (row.batch, None))
        assert row.verdict == cell.verdict.word
        assert row.speedup.low == pytest.approx(cell.speedup.low)


def test_a_bench_of_another_method_is_refused() -> None:
    result = bench([PLAIN, Planted("ngram", {}, "ngram", 4)], batches=(1,), prompts=5)
    with pytest.raises(UsageError, match="no arm of eagle3 with K = 3") as caught:
        plan(load(RECIPE), result)
    assert "ngram (ngram, K=4)" in str(caught.value.hint)
