"""The rungs of a recipe: which there are, in which order, and which are refused for what."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from speccli.core.fallback.rungs import (
    Step,
    draft_of,
    draft_words,
    lessened,
    standby_draft,
    steps,
    with_draft,
)
from speccli.core.plan import plan
from speccli.core.recipes import catalog
from speccli.core.recipes.load import load
from speccli.core.recipes.model import Draft, Fallback, Pool, Recipe, Rung

EAGLE = load("llama-3.3-70b-eagle3-h200")
"""K = 3."""


def _with(recipe: Recipe = EAGLE, **parts: Any) -> Recipe:
    """The recipe with fields of its parts changed: `serving={"lora": True}`."""
    return replace(
        recipe, **{name: replace(getattr(recipe, name), **told) for name, told in parts.items()}
    )


def _names(found: tuple[Step, ...]) -> list[str]:
    return [step.name for step in found]


def _refused(found: tuple[Step, ...]) -> dict[str, str]:
    return {step.name: step.refusals[0] for step in found if step.refusals}


@pytest.mark.parametrize("name", catalog.names())
def test_every_built_in_ladder_is_taken_by_its_plan_or_refused_for_a_reason(name: str) -> None:
    recipe = load(name)
    found = steps(recipe)
    assert bool(found) == recipe.speculates
    for step in found:
        told = {(v.rule, v.severity) for v in step.plan.verdicts}
        critical = {rule for rule, severity in told if severity == "critical"}
        if step.refusals:
            assert all(len(reason) > 10 for reason in step.refusals)
        else:
            assert not critical, f"{step.name} would be refused by its own plan: {critical}"
    assert not found or found[-1].method == "none"
    assert all(step.recipe.target == recipe.target for step in found)
    assert standby_draft(recipe) in [step.recipe.draft for step in found] or not found


@pytest.mark.parametrize(
    ("draft", "names"),
    [
        pytest.param({}, ["k1", "ngram", "none"], id="half-of-3-is-1"),
        pytest.param({"k": 7}, ["k3", "ngram", "none"], id="half-of-7-is-3"),
        pytest.param({"k": 1}, ["ngram", "none"], id="of-1-there-is-no-half"),
        pytest.param({"method": "ngram", "model": None}, ["none"], id="under-ngram-only-off"),
        pytest.param({"method": "none", "model": None, "k": 0}, [], id="under-none-nothing"),
    ],
)
def test_the_default_ladder(draft: dict[str, Any], names: list[str]) -> None:
    assert _names(steps(_with(draft=draft))) == names


def test_a_schedule_of_a_bench_stands_in_for_half_of_k() -> None:
    ranges = ((1, 32, 3), (33, 128, 1))
    found = steps(EAGLE, ranges)
    assert _names(found) == ["schedule", "ngram", "none"]
    assert found[0].recipe.draft.schedule == ranges
    assert found[0].recipe.draft.k == 3
    assert found[0].words == "eagle3, K = 3 … 1 by batch"


def test_where_the_engine_takes_no_schedule_it_is_half_of_k_again() -> None:
    for version in ("0.22.0", "0.25.1"):  # that has none; that does not start with one
        engine = _with(engine={"version": version})
        assert _names(steps(engine, ((1, 32, 3), (33, 128, 1)))) == ["k1", "ngram", "none"]


def test_rungs_of_the_recipe_are_taken_as_they_stand() -> None:
    rungs = (Rung(k=2), Rung(k=1), Rung(method="ngram", k=5), Rung(method="ngram"), Rung("none"))
    found = steps(_with(fallback={"rungs": rungs}))
    assert _names(found) == ["k2", "k1", "ngram", "ngram-k3", "none"]
    assert [step.own for step in found] == [True, True, False, False, False]
    assert found[2].recipe.draft.k == 5


def test_less_of_a_draft_is_the_same_draft() -> None:
    step = steps(EAGLE)[0]
    draft = step.recipe.draft
    assert (draft.method, draft.model, draft.revision) == (
        EAGLE.draft.method,
        EAGLE.draft.model,
        EAGLE.draft.revision,
    )
    assert draft.acceptance_k == EAGLE.draft.acceptance_k, "it was measured at that K, not at 1"
    assert step.plan.line.speculative is not None
    assert step.plan.line.speculative["num_speculative_tokens"] == 1


def test_a_length_measured_at_k_stays_of_that_k() -> None:
    recipe = _with(draft={"acceptance_k": None})
    assert draft_of(recipe, Rung(k=1)).acceptance_k == 3


def test_a_schedule_of_its_own_is_kept_under_the_smaller_k() -> None:
    recipe = _with(draft={"k": 5, "schedule": ((1, 16, 5), (17, 64, 3), (65, 128, 1))})
    assert draft_of(recipe, Rung(k=2)).schedule == ((1, 16, 2), (17, 64, 2), (65, 128, 1))
    assert draft_of(recipe, Rung(k=1)).schedule is None


def test_lora_keeps_ngram_out_and_not_off() -> None:
    found = steps(_with(serving={"lora": True}))
    refused = _refused(found)
    assert list(refused) == ["ngram"]
    assert "LoRA with ngram: vLLM crashes (vllm#20284)" in refused["ngram"]


def test_recurrent_layers_keep_ngram_out(tmp_path: Path) -> None:
    config = {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "intermediate_size": 5120,
        "vocab_size": 151936,
        "max_position_embeddings": 262144,
        "layer_types": [
            "linear_attention",
            "linear_attention",
            "linear_attention",
            "full_attention",
        ],
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    hybrid = _with(target={"model": "a/hybrid", "config": str(tmp_path), "quantization": "bf16"})
    refused = _refused(steps(hybrid))
    assert "reads a stale state" in refused["ngram"]
    assert "none" not in refused
    assert standby_draft(hybrid) == Draft(), "a standby that corrupts answers is none"


def test_a_grammar_keeps_heads_out_and_takes_ngram() -> None:
    refused = _refused(steps(_with(serving={"structured_output": True})))
    assert list(refused) == ["k1"]
    assert "vllm#27969" in refused["k1"]


def test_an_old_engine_refuses_the_method_it_has_not() -> None:
    rungs = (Rung(method="ngram_gpu"), Rung(method="none"))
    refused = _refused(steps(_with(engine={"version": "0.16.0"}, fallback={"rungs": rungs})))
    assert list(refused) == ["ngram_gpu"]
    assert "0.18.0" in refused["ngram_gpu"]


def test_what_is_wrong_with_the_target_is_not_held_against_a_rung() -> None:
    tight = _with(serving={"gpu_memory_utilization": 0.3})
    assert any(v.severity == "critical" for v in plan(tight).verdicts)
    assert _refused(steps(tight)) == {}


def test_a_bad_draft_is_in_no_pool_of_a_rung_and_the_standby_keeps_its_own() -> None:
    lookup = draft_of(EAGLE, Rung(method="ngram"))
    pools: Any = {"canary": Pool(draft=EAGLE.draft), "standby": Pool(draft=lookup)}
    lesser = with_draft(replace(EAGLE, pools=pools), Draft())
    assert lesser.pools["canary"].draft is None
    assert lesser.pools["standby"].draft == lookup


@pytest.mark.parametrize(
    ("recipe", "method"),
    [
        pytest.param(EAGLE, "ngram", id="ngram-by-default"),
        pytest.param(_with(serving={"lora": True}), "none", id="off-where-ngram-crashes"),
        pytest.param(lessened(EAGLE, "ngram"), "none", id="off-under-ngram"),
        pytest.param(_with(fallback={"standby": "none"}), "none", id="as-the-recipe-says"),
        pytest.param(
            replace(EAGLE, fallback=Fallback(rungs=(Rung(k=1),), standby="eagle3")),
            "eagle3",
            id="less-of-the-same",
        ),
        pytest.param(
            replace(EAGLE, pools={"standby": Pool(draft=Draft("suffix", k=8))}),
            "suffix",
            id="a-draft-of-its-own",
        ),
    ],
)
def test_what_a_standby_drafts_with(recipe: Recipe, method: str) -> None:
    draft = standby_draft(recipe)
    assert draft.method == method
    if method == "eagle3":
        assert draft.k == 1


def test_drafts_in_words() -> None:
    assert draft_words(Draft()) == "no speculation"
    assert draft_words(EAGLE.draft) == "eagle3, K = 3"
    assert draft_words(Draft("mtp", k=0)) == "mtp"
