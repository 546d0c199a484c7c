"""Pairs that would fail, or quietly not work: each refused for its own reason, from files."""

from __future__ import annotations

import json
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from speccli.core.errors import SpecctlError, UsageError
from speccli.core.preflight import RULES, Model, Pair, Verdict, check_pair
from speccli.core.preflight.ask import looks_like, pair_from
from speccli.core.preflight.files import read_model

TARGET = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
}
HEAD = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
}
WEIGHTS = ("fc.weight", "midlayer.self_attn.q_proj.weight", "norm.weight", "lm_head.weight")


def folder(path: Path, config: dict[str, Any], weights: tuple[str, ...] = ()) -> str:
    """A model's folder; weights are names only."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    if weights:
        head = json.dumps(
            {name: {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]} for name in weights}
        ).encode()
        (path / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head)
    return str(path)


class Bench:
    """Makes two folders and asks."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.asked = 0

    def __call__(
        self,
        draft: dict[str, Any],
        target: dict[str, Any] | None = None,
        *,
        weights: tuple[str, ...] = (),
        **options: Any,
    ) -> list[Verdict]:
        self.asked += 1
        base = self.where / str(self.asked)
        asked: dict[str, Any] = {"method": "eagle3", "version": "0.32.0", "gpu": None} | options
        pair = pair_from(
            folder(base / "target", TARGET | (target or {})),
            folder(base / "draft", HEAD | draft, weights),
            **asked,
        )
        return check_pair(pair)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refused)
    return Bench(tmp_path)


def critical(verdicts: list[Verdict]) -> list[str]:
    return [verdict.rule for verdict in verdicts if verdict.severity == "critical"]


def test_a_sound_pair_has_nothing_against_it(check: Bench) -> None:
    assert check({}) == []


SPECULATORS = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "speculators_version": "0.5.0",
    "transformer_layer_config": HEAD,
    "speculators_config": {
        "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "x"}
    },
}
T17: list[Any] = [
    pytest.param({"hidden_size": 4096}, {}, {}, "P-HIDDEN", id="a-hidden-size-4096"),
    pytest.param({"draft_vocab_size": 32000}, {}, {}, "P-D2T", id="b-32000-ids-and-no-d2t"),
    pytest.param(SPECULATORS, {}, {}, "P-VERIFIER", id="c-verifier-is-a-llama"),
    pytest.param(
        {"norm_before_fc": True, "eagle_aux_hidden_state_layer_ids": [2, 46, 91, 93]},
        {},
        {},
        "P-AUX",
        id="d-aux-layers-beyond-the-last",
    ),
    pytest.param(
        {"max_position_embeddings": 2048},
        {},
        {"max_model_len": 65536},
        "P-LENGTH",
        id="e-2048-positions-for-65536-tokens",
    ),
    pytest.param(
        {},
        {
            "architectures": ["LlamaForCausalLM"],
            "quantization_config": {"quant_method": "fp8"},
        },
        {"version": "0.11.0"},
        "P-QUANT",
        id="f-fp8-target-before-the-fix",
    ),
    pytest.param(
        {"architectures": ["LlamaForCausalLMEagle3"]}, {}, {}, "P-CLASS", id="g-a-foreign-class"
    ),
    pytest.param({}, {}, {"method": "p-eagle"}, "P-MASK", id="h-parallel-without-a-mask-token"),
]


@pytest.mark.parametrize(("draft", "target", "options", "rule"), T17)
def test_a_mismatched_pair_is_refused_with_its_own_cause_and_change(
    check: Bench,
    draft: dict[str, Any],
    target: dict[str, Any],
    options: dict[str, Any],
    rule: str,
) -> None:
    started = time.monotonic()
    verdicts = check(draft, target, **options)
    assert time.monotonic() - started < 5
    assert critical(verdicts) == [rule]
    verdict = verdicts[0]
    assert verdict.code == f"PAIR_{rule.removeprefix('P-').replace('-', '_')}"
    assert verdict.thread
    assert len(verdict.action) > 10


def test_the_mismatches_have_distinct_rules() -> None:
    rules = [case.values[3] for case in T17]
    assert len(set(rules)) == len(rules) == 8


def test_an_older_engine_is_also_refused_the_target_it_cannot_read_states_from(
    check: Bench,
) -> None:
    verdicts = check({}, {"quantization_config": {"quant_method": "fp8"}}, version="0.11.0")
    assert critical(verdicts) == ["P-QUANT", "P-TARGET"]


@pytest.mark.parametrize(
    ("draft", "weights", "options", "rules"),
    [
        pytest.param(
            {"draft_vocab_size": 32000}, (*WEIGHTS, "d2t"), {}, [], id="d2t-among-the-weights"
        ),
        pytest.param({"draft_vocab_size": 32000}, WEIGHTS, {}, ["P-D2T"], id="weights-without-d2t"),
        pytest.param({"vocab_size": 32000}, (), {}, ["P-VOCAB"], id="another-vocabulary"),
        pytest.param(
            {"architectures": ["LlamaForCausalLMEagle3"]}, WEIGHTS, {}, [], id="sglang-head-fits"
        ),
        pytest.param(
            {"architectures": ["Eagle3Qwen3ForCausalLM"]},
            (),
            {"version": "0.20.2"},
            ["P-CLASS"],
            id="class-newer-than-engine",
        ),
        pytest.param(
            {"architectures": ["NoSuchHead"]}, WEIGHTS, {}, ["P-CLASS"], id="class-of-nobody"
        ),
        pytest.param({"ptd_token_id": 7}, (), {}, ["P-PARALLEL"], id="p-eagle-head-one-by-one"),
        pytest.param(
            {}, (*WEIGHTS, "mask_hidden"), {}, ["P-PARALLEL"], id="mask-hidden-one-by-one"
        ),
        pytest.param(
            {"ptd_token_id": 7},
            (*WEIGHTS, "mask_hidden"),
            {"method": "p-eagle"},
            [],
            id="p-eagle-as-it-should-be",
        ),
        pytest.param(
            {"ptd_token_id": 7}, WEIGHTS, {"method": "p-eagle"}, ["P-MASK"], id="no-mask-hidden"
        ),
        pytest.param(
            {"ptd_token_id": 7},
            (),
            {"method": "p-eagle", "version": "0.12.0"},
            ["P-METHOD"],
            id="p-eagle-before-0.16",
        ),
        pytest.param(
            {"norm_before_fc": True}, (), {"version": "0.16.0"}, ["P-NORM-FC"], id="norm-left-out"
        ),
        pytest.param(
            {"norm_before_fc": True, "speculators_version": "0.8.0.dev0"},
            (),
            {"version": "0.28.0"},
            ["P-SPECULATORS"],
            id="speculators-1065",
        ),
        pytest.param(
            {"speculators_model_type": "dflash"}, (), {}, ["P-METHOD"], id="dflash-as-eagle3"
        ),
        pytest.param({"num_hidden_layers": 48}, (), {}, ["P-METHOD"], id="a-whole-model-as-a-head"),
        pytest.param(
            {}, (), {"kv_cache_dtype": "fp8", "gpu": "h100", "k": 3}, ["P-KV"], id="fp8-kv-triple"
        ),
        pytest.param(
            {}, (), {"kv_cache_dtype": "fp8", "gpu": "h100", "k": 2}, [], id="fp8-kv-with-k-2"
        ),
        pytest.param(
            {"num_attention_heads": 14, "num_key_value_heads": 2, "hidden_size": 2048},
            (),
            {"tensor_parallel": 4},
            ["P-TP"],
            id="draft-heads-do-not-divide",
        ),
        pytest.param(
            {},
            (),
            {"tensor_parallel": 4, "draft_tensor_parallel": 2},
            ["P-TP"],
            id="draft-tp-neither-1-nor-the-targets",
        ),
        pytest.param(
            {"num_hidden_layers": 28},
            (),
            {"method": "ngram", "lora": True},
            ["P-LORA"],
            id="lora-with-ngram",
        ),
    ],
)
def test_rules(
    check: Bench,
    draft: dict[str, Any],
    weights: tuple[str, ...],
    options: dict[str, Any],
    rules: list[str],
) -> None:
    assert critical(check(draft, weights=weights, **options)) == rules


@pytest.mark.parametrize(
    ("draft", "target", "options", "rule", "severity"),
    [
        ({"max_position_embeddings": 16384}, {}, {"max_model_len": 32768}, "P-LENGTH", "warning"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 24]}, {}, {}, "P-AUX", "warning"),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 20, 40]}},
            {},
            {},
            "P-AUX-NESTED",
            "warning",
        ),
        ({}, {"architectures": ["NewForCausalLM"]}, {}, "P-TARGET", "warning"),
        (
            {},
            {},
            {"tensor_parallel": 2, "draft_tensor_parallel": 1},
            "P-DRAFT-TP",
            "info",
        ),
        ({}, {}, {"tensor_parallel": 8}, "P-TP", "info"),
        ({}, {}, {"lora": True}, "P-LORA", "warning"),
        ({}, {}, {"kv_cache_dtype": "fp8", "gpu": "a100"}, "P-KV", "warning"),
        ({}, {}, {"method": "suffix"}, "P-METHOD", "warning"),
    ],
)
def test_what_is_doubtful_is_said_and_not_refused(
    check: Bench,
    draft: dict[str, Any],
    target: dict[str, Any],
    options: dict[str, Any],
    rule: str,
    severity: str,
) -> None:
    found = {verdict.rule: verdict.severity for verdict in check(draft, target, **options)}
    assert found[rule] == severity


def test_a_shallow_target_needs_its_aux_layers_written_down(check: Bench) -> None:
    assert critical(check({}, {"num_hidden_layers": 4})) == ["P-AUX"]


def test_every_rule_has_its_id_in_its_words_and_in_the_docs() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text()
    for rule in RULES:
        assert rule.__doc__ is not None
        for name in rule.__doc__.partition(":")[0].split(", "):
            assert name.startswith("P-")
            assert f"`{name}`" in docs


@pytest.mark.parametrize(
    ("draft", "method"),
    [
        ({}, "eagle3"),
        ({"ptd_token_id": 5}, "p-eagle"),
        ({"speculators_model_type": "peagle"}, "p-eagle"),
        ({"num_hidden_layers": 28}, "draft_model"),
    ],
)
def test_the_method_is_told_by_the_draft(
    tmp_path: Path, draft: dict[str, Any], method: str
) -> None:
    target = read_model(folder(tmp_path / "t", TARGET))
    assert looks_like(target, read_model(folder(tmp_path / "d", HEAD | draft))) == method


def test_files_that_are_not_what_they_should_be_are_named(tmp_path: Path) -> None:
    for name, text in (("none", None), ("broken", "{"), ("list", "[]")):
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "config.json").write_text(text)
        with pytest.raises(UsageError, match=name):
            read_model(str(tmp_path / name))
    bad = folder(tmp_path / "weights", HEAD)
    (Path(bad) / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(UsageError, match="no safetensors file"):
        read_model(bad)
    with pytest.raises(UsageError, match="no folder"):
        read_model("/no/such/folder")


def test_a_name_on_the_hub_without_the_hub_is_unknown_not_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SpecctlError) as raised:
        read_model("org/model")
    assert raised.value.exit_code == 3
    assert raised.value.hint is not None
    assert "config.json" in raised.value.hint


@pytest.mark.parametrize(
    ("config", "method", "rules"),
    [
        ({"layer_types": ["linear_attention", "full_attention"]}, "ngram", ["P-HYBRID"]),
        ({"layers_block_type": ["mamba", "attention"]}, "ngram_gpu", ["P-HYBRID"]),
        ({"hybrid_override_pattern": "M-M*-"}, "ngram", ["P-HYBRID"]),
        ({"text_config": {"mamba_d_state": 128}}, "ngram", ["P-HYBRID"]),
        ({"layer_types": ["linear_attention", "full_attention"]}, "eagle3", []),
        ({"layer_types": ["linear_attention", "full_attention"]}, "none", []),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "ngram", []),
    ],
)
def test_a_lookup_corrupts_what_recurrent_layers_remember(
    config: dict[str, Any], method: str, rules: list[str]
) -> None:
    pair = Pair(target=Model("target", config), draft=None, method=method)
    assert [v.rule for v in check_pair(pair) if v.severity == "critical"] == rules
