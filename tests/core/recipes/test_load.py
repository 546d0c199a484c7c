"""Recipes: every built-in one loads, files extend them, what is wrong is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from speccli.core.errors import UsageError
from speccli.core.recipes import catalog
from speccli.core.recipes.load import load, plain

GPUS = ("h100", "h100-nvl", "h200")
FOUR = ("eagle3", "ngram", "draft-model", "none")
FAMILIES = {
    "llama-3.3-70b": (FOUR, GPUS),
    "llama-3.3-70b-awq": (FOUR, GPUS),
    "llama-3.3-70b-bf16": (FOUR, ("h200",)),
    "qwen3-coder-30b": ((*FOUR, "p-eagle"), GPUS),
    "gpt-oss-120b": ((*FOUR, "p-eagle"), GPUS),
}


def test_every_target_method_and_gpu_is_a_recipe_with_a_name() -> None:
    wanted = {
        f"{family}-{method}-{gpu}"
        for family, (methods, gpus) in FAMILIES.items()
        for method in methods
        for gpu in gpus
    }
    assert set(catalog.names()) == wanted
    assert len(wanted) == 58


@pytest.mark.parametrize("name", catalog.names())
def test_a_built_in_recipe_says_what_it_is_and_why(name: str) -> None:
    recipe, cell = load(name), catalog.names()[name]
    assert recipe.name == name
    assert recipe.hardware.gpu == cell.gpu
    assert recipe.draft.method.replace("_", "-") == cell.method
    assert recipe.summary
    assert {"target", "hardware"} <= set(recipe.evidence)
    if recipe.speculates:
        assert {"draft.model", "draft.method"} & set(recipe.evidence)
        assert recipe.draft.k > 0
    if recipe.draft.acceptance_length:
        assert recipe.draft.acceptance_k
        assert "draft.acceptance_length" in recipe.evidence
    for model in filter(None, (recipe.target.model, recipe.draft.model)):
        known = catalog.models()[model]
        assert known["source"]
        assert known["read"] or known["assumed"]


@pytest.mark.parametrize("name", ["llama-3.3-70b-eagle3-h100", "gpt-oss-120b-p-eagle-h200"])
def test_what_show_prints_is_a_recipe_that_loads_to_the_same(name: str, tmp_path: Path) -> None:
    file = tmp_path / "again.yaml"
    file.write_text(yaml.safe_dump(plain(load(name)), sort_keys=False))
    assert load(str(file)) == load(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pool.yaml"


def test_a_file_extends_a_built_in_recipe_and_another_file(file: Path) -> None:
    (file.parent / "base.yaml").write_text(
        "extends: llama-3.3-70b-eagle3-h200\nserving: {max_num_seqs: 48}\ndraft: {K: 5}\n"
    )
    file.write_text("extends: base.yaml\ndraft:\n  schedule: [[1, 16, 5], [17, 48, 2]]\n")
    recipe = load(str(file), ["serving.max_model_len=16384", "engine.version=0.30"])
    assert recipe.name == "pool"
    assert recipe.draft.model == "RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3"
    assert (recipe.draft.k, recipe.serving.max_num_seqs) == (5, 48)
    assert recipe.draft.schedule == ((1, 16, 5), (17, 48, 2))
    assert recipe.serving.max_model_len == 16384
    assert recipe.engine.version == "0.30"


def test_null_puts_the_default_back(file: Path) -> None:
    file.write_text("extends: qwen3-coder-30b-eagle3-h200\nserving: {max_num_seqs: null}\n")
    assert load(str(file)).serving.max_num_seqs == 128
    by_set = load("qwen3-coder-30b-eagle3-h100", ["serving.max_model_len=null"])
    assert by_set.serving.max_model_len == 32768


BASE = "name: x\ntarget: {model: m}\nhardware: {gpu: h100}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BASE + "servign: {}\n", "pool.yaml:4: unknown key servign; did you mean serving?"),
        (BASE + "draft:\n  k: 3\n", "pool.yaml:5: unknown key draft.k; did you mean K?"),
        (
            BASE + "draft: {K: three}\n",
            "pool.yaml:4: draft.K is 'three'; it must be a whole number",
        ),
        (BASE + "draft: {K: true}\n", "pool.yaml:4: draft.K is True; it must be a whole number"),
        (BASE + "draft: {K: 99}\n", "pool.yaml:4: draft.K is 99; at most 64"),
        (BASE + "serving: {max_num_seqs: 65537}\n", "serving.max_num_seqs is 65537; at most 65536"),
        (BASE + "pools: {canary: {max_num_seqs: 65537}}\n", "max_num_seqs is 65537; at most 65536"),
        (BASE + "serving: {tensor_parallel: 1025}\n", "tensor_parallel is 1025; at most 1024"),
        (BASE + "draft: {tensor_parallel: 1025}\n", "tensor_parallel is 1025; at most 1024"),
        (
            BASE + "scaling: {queue_wait_ms_target: .inf}\n",
            "scaling.queue_wait_ms_target is inf; it must be a finite number",
        ),
        (
            BASE + "cost: {gpu_hour_usd: .nan}\n",
            "pool.yaml:4: cost.gpu_hour_usd is nan; it must be a finite number",
        ),
        (
            BASE + f"scaling: {{queue_wait_ms_target: 1{'0' * 400}}}\n",
            "scaling.queue_wait_ms_target has 401 digits",
        ),
        (
            BASE + "engine: {version: 0.32}\n",
            "engine.version is the number 0.32; write it in quotes",
        ),
        (BASE + "draft: {method: eagle-3}\n", "one of none, eagle, eagle3"),
        (BASE + "serving: 3\n", "pool.yaml:4: serving must hold keys of its own"),
        (
            BASE + "draft: {schedule: [[1, 2]]}\n",
            "draft.schedule.0 is [1, 2]; it must have 3 values",
        ),
        (BASE + "name: y\n", "pool.yaml:4: name stands there twice"),
        ("name: x\nhardware: {gpu: h100}\n", "target is missing"),
        ("name: x\ntarget: {}\nhardware: {gpu: h100}\n", "pool.yaml:2: target.model is missing"),
        ("name: [x\n", "pool.yaml:2: not YAML"),
        ("- a\n", "holds no mapping"),
        ("", "is empty"),
        ("extends: no-such\n", "pool.yaml:1: no recipe 'no-such'"),
        ("extends: pool.yaml\n", "goes round or too deep"),
        ("extends: 3\n", "pool.yaml:1: extends is 3"),
        ("schema: specctl.recipe/v2\n" + BASE, "schema is 'specctl.recipe/v2'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError) as raised:
        load(str(file))
    assert message in raised.value.message
    assert raised.value.exit_code == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("draft.k=3", "--set draft.k: unknown key draft.k; did you mean K?"),
        ("draft.K=x", "draft.K is 'x'"),
        ("draft.K", "is not KEY=VALUE"),
        ("serving=3", "serving must hold keys of its own"),
        ("engine.kind=vlm", "did you mean vllm?"),
        ("draft.schedule=[[1,", "is no value"),
    ],
)
def test_a_change_that_cannot_be_is_named(change: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        load("llama-3.3-70b-eagle3-h100", [change])
    assert message in raised.value.message


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError) as raised:
        load("llama-3.3-70b-eagle-h100")
    assert raised.value.hint == "did you mean llama-3.3-70b-eagle3-h100?"


def test_a_file_that_unfolds_is_refused(file: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    file.write_text("\n".join(lines))
    with pytest.raises(UsageError, match="too many values"):
        load(str(file))
