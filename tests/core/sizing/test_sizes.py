"""Sizes against what others have measured: parameters, loaded weights, what did not fit."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from speccli.core.plan.build import gather, plan
from speccli.core.recipes import catalog
from speccli.core.recipes.load import load
from speccli.core.sizing.gpus import GIB, GPUS
from speccli.core.sizing.memory import Demand, memory
from speccli.core.sizing.shape import Shape, ShapeError, quantization_of, shape_of


def shape(name: str, quantization: str | None = None) -> Shape:
    return shape_of(catalog.models()[name]["config"], quantization)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", 70.55),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8", 30.53),
        ("openai/gpt-oss-120b", 116.8),
        ("openai/gpt-oss-20b", 20.9),
        ("meta-llama/Llama-3.2-1B-Instruct", 1.236),
        ("Qwen/Qwen3-0.6B", 0.596),
    ],
)
def test_parameters_are_the_published_ones(name: str, billions: float) -> None:
    assert shape(name).params / 1e9 == pytest.approx(billions, rel=0.003)


@pytest.mark.parametrize(
    ("name", "quantization", "bytes_"),
    [
        pytest.param("meta-llama/Llama-3.3-70B-Instruct", "fp8", 72.7e9, id="fp8-as-inventoried"),
        pytest.param("meta-llama/Llama-3.3-70B-Instruct", "awq", 39.8e9, id="awq-as-published"),
        pytest.param("meta-llama/Llama-3.3-70B-Instruct", "bf16", 141.1e9, id="bf16"),
        pytest.param("openai/gpt-oss-120b", None, 64.4 * GIB, id="mxfp4-as-loaded-vllm-33155"),
    ],
)
def test_weights_take_what_others_saw_them_take(
    name: str, quantization: str | None, bytes_: float
) -> None:
    assert shape(name, quantization).weight_bytes() == pytest.approx(bytes_, rel=0.005)


def test_tensor_parallel_splits_weights_and_cache_and_copies_spare_kv_heads() -> None:
    llama = shape("meta-llama/Llama-3.3-70B-Instruct", "fp8")
    assert llama.weight_bytes(4) == pytest.approx(llama.weight_bytes() / 4, rel=1e-6)
    assert llama.kv_bytes_per_token(1, "auto") == 327_680
    assert llama.kv_bytes_per_token(8, "auto") == 40_960
    assert llama.kv_bytes_per_token(16, "auto") == 40_960
    assert llama.kv_bytes_per_token(1, "fp8") == 163_840


def test_a_mixture_touches_more_experts_the_more_tokens_a_step_has() -> None:
    qwen = shape("Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8")
    touched = [qwen.active_mlp_params(tokens) / qwen.mlp_params for tokens in (1, 8, 64, 512)]
    assert touched[0] == pytest.approx(8 / 128)
    assert touched == sorted(touched)
    assert touched[-1] > 0.99


def test_layers_with_a_window_take_a_share_per_request_not_per_token() -> None:
    oss = shape("openai/gpt-oss-120b")
    assert oss.kv_bytes_per_token(1, "auto") == 18 * 2 * 8 * 64 * 2
    assert oss.kv_window_bytes(1, "auto") == 18 * 144 * 2 * 8 * 64 * 2


@pytest.mark.parametrize(
    ("config", "quantization"),
    [
        ({}, "bf16"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "fbgemm_fp8"}}, "fp8"),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
                }
            },
            "fp8",
        ),
    ],
)
def test_quantization_is_read_from_the_configuration(
    config: dict[str, Any], quantization: str
) -> None:
    assert quantization_of(config) == quantization


def test_a_configuration_without_a_width_is_no_shape() -> None:
    with pytest.raises(ShapeError, match="hidden_size"):
        shape_of({"num_hidden_layers": 3})


def demand(target: Shape, **changes: Any) -> Demand:
    return replace(
        Demand(
            target=target,
            draft=None,
            draft_params=None,
            k=0,
            tensor_parallel=1,
            draft_tensor_parallel=1,
            max_model_len=8192,
            max_num_seqs=64,
            max_num_batched_tokens=8192,
            kv_dtype="auto",
            utilization=0.9,
            graphs=80,
        ),
        **changes,
    )


def test_gpt_oss_120b_does_not_fit_one_h100_by_default_as_others_found() -> None:
    """vllm#23278: 66 GiB of weights, -2.14 GiB left for the cache at default settings."""
    oss = shape("openai/gpt-oss-120b")
    assert memory(GPUS["h100"], demand(oss, max_num_seqs=1024)).kv_cache < 0
    made = plan(
        load(
            "gpt-oss-120b-none-h100",
            ["serving.tensor_parallel=1", "hardware.count=1", "serving.max_num_seqs=1024"],
        )
    )
    assert "R-MEMORY" in [v.rule for v in made.verdicts if v.severity == "critical"]


def test_the_items_and_what_is_left_are_the_budget() -> None:
    made = memory(GPUS["h200"], demand(shape("meta-llama/Llama-3.3-70B-Instruct", "fp8")))
    assert sum(item.bytes for item in made.items) + made.kv_cache == made.budget
    assert made.budget == int(GPUS["h200"].memory_bytes * 0.9)
    assert all(item.formula for item in made.items)
    assert made.kv_tokens % 16 == 0
    assert made.kv_tokens <= made.kv_cache // made.kv_per_token
    assert [count for _, count in made.concurrent_at] == sorted(
        (count for _, count in made.concurrent_at), reverse=True
    )


def graphs_of(gpu: str, target: Shape, **changes: Any) -> float:
    made = memory(GPUS[gpu], demand(target, **changes))
    return next((item.bytes / GIB for item in made.items if item.name == "CUDA graphs"), 0.0)


QWEN_32B = Shape("Qwen3ForCausalLM", 5120, 64, 64, 8, 128, 25600, 151936, None)


@pytest.mark.parametrize(
    ("changes", "measured"),
    [
        pytest.param({"graphs": 35 + 19, "full_tokens": 128}, 0.61, id="none"),
        pytest.param(
            {"graphs": 51 + 48, "full_tokens": 510, "draft": replace(QWEN_32B, layers=1),
             "draft_graphs": 51},
            2.00,
            id="eagle3",
        ),
    ],
)  # fmt: skip
def test_graphs_take_what_two_servers_lost_while_they_captured(
    changes: dict[str, Any], measured: float
) -> None:
    """32B FP8 on one H200, vLLM 0.25.1, captured while no other server allocated."""
    assert graphs_of("h200", QWEN_32B, **changes) == pytest.approx(measured, rel=0.15)


def test_only_hoppers_attention_allocates_for_splits_and_each_gpu_for_its_heads() -> None:
    plain = graphs_of("a100", QWEN_32B, graphs=54, full_tokens=128)
    assert plain == pytest.approx(54 * 64 * 0.12 / 1024, rel=1e-4)
    assert graphs_of("a100", QWEN_32B, graphs=54) == plain
    one, two = (
        graphs_of("h100", QWEN_32B, graphs=0, full_tokens=128, tensor_parallel=n) for n in (1, 2)
    )
    assert one == pytest.approx(2 * two)
    assert graphs_of("h100", QWEN_32B, graphs=0) == 0


WORDS = re.compile(r" (?:graphs|layers|of the draft|splits|heads|tokens)\b")


@pytest.mark.parametrize(
    "name", ["llama-3.3-70b-eagle3-h100", "llama-3.3-70b-none-h100", "gpt-oss-120b-none-h100"]
)
def test_the_formula_of_the_graphs_is_the_one_that_is_used(name: str) -> None:
    made = plan(load(name)).memory
    assert made is not None
    item = next(item for item in made.items if item.name == "CUDA graphs")
    sum_ = WORDS.sub("", item.formula).replace("0.12 MiB", "0.12 * 1048576").replace("4 B", "4")
    told = eval(sum_.replace("x", "*"), {"__builtins__": {}})
    assert item.bytes == pytest.approx(told, rel=1e-5)


def test_a_draft_takes_room_of_the_cache_and_more_of_it_with_more_k() -> None:
    small, large = (
        plan(load("llama-3.3-70b-eagle3-h100", [f"draft.K={k}"])).draft_costs_tokens for k in (3, 7)
    )
    assert small is not None
    assert large is not None
    assert 0 < small < large


def test_a_head_counts_its_wide_input_its_fusion_and_its_own_vocabulary() -> None:
    facts = gather(load("llama-3.3-70b-eagle3-h100"))
    hidden, kv = 8192, 1024
    fusion, wider = 3 * hidden * hidden, hidden * (hidden + 2 * kv)
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * 28672
    ends = 32000 * hidden + 128256 * hidden
    assert facts.draft_params == fusion + wider + layer + ends
