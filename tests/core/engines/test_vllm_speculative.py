"""A speculative configuration is checked by version, and a schedule as vLLM checks it."""

from __future__ import annotations

from typing import Any

import pytest

from speccli.core.engines import vllm_graphs
from speccli.core.engines.vllm_speculative import check, schedule_problems

GOOD = {"method": "eagle3", "model": "head", "num_speculative_tokens": 3}


def refused(change: dict[str, Any], version: tuple[int, ...]) -> list[tuple[str, str]]:
    config = {key: value for key, value in (GOOD | change).items() if value is not None}
    return [(refusal.key, refusal.action) for refusal in check(config, version)]


@pytest.mark.parametrize("version", [(0, 8, 5), (0, 16, 0), (0, 32, 0), (0, 33, 0)])
def test_a_plain_configuration_is_taken_by_every_version(version: tuple[int, ...]) -> None:
    assert refused({}, version) == []


@pytest.mark.parametrize(
    ("change", "version", "key", "action"),
    [
        ({"parallel_drafting": True}, (0, 12, 0), "parallel_drafting", "newer engine"),
        ({"disable_by_batch_size": 32}, (0, 17, 1), "disable_by_batch_size", "per_batch_size"),
        (
            {"ngram_prompt_lookup_max": 4},
            (0, 32, 0),
            "ngram_prompt_lookup_max",
            "prompt_lookup_max",
        ),
        (
            {"num_speculative_token": 4},
            (0, 32, 0),
            "num_speculative_token",
            "num_speculative_tokens",
        ),
        ({"tensor_parallel_size": 1}, (0, 32, 0), "tensor_parallel_size", "draft_tensor_parallel"),
        ({"method": "p-eagle"}, (0, 32, 0), "method", '"parallel_drafting": true'),
        ({"method": "Eagle-3"}, (0, 32, 0), "method", "did you mean eagle3?"),
        ({"method": None}, (0, 32, 0), "method", "write the method"),
        ({"method": "dspark"}, (0, 24, 0), "method", "newer engine"),
        ({"method": "medusa"}, (0, 33, 0), "method", "older engine"),
        ({"model": None}, (0, 32, 0), "model", "name the draft"),
        ({"num_speculative_tokens": None}, (0, 32, 0), "num_speculative_tokens", "write"),
        ({"num_speculative_tokens": 0}, (0, 32, 0), "num_speculative_tokens", "at least 1"),
        ({"num_speculative_tokens": True}, (0, 32, 0), "num_speculative_tokens", "write a int"),
        ({"rejection_sample_method": "strict"}, (0, 32, 0), "rejection_sample_method", "standard"),
        ({"draft_sample_method": "x"}, (0, 32, 0), "draft_sample_method", "greedy"),
        ({"prompt_lookup_min": 5, "prompt_lookup_max": 2}, (0, 32, 0), "prompt_lookup_min", "most"),
    ],
)
def test_what_a_version_refuses_is_said_with_what_to_write(
    change: dict[str, Any], version: tuple[int, ...], key: str, action: str
) -> None:
    found = refused(change, version)
    assert [name for name, _ in found] == [key]
    assert action in found[0][1]


def test_a_key_that_is_taken_and_not_obeyed_is_told_apart() -> None:
    (refusal,) = check(GOOD | {"disable_by_batch_size": 32}, (0, 12, 0))
    assert refusal.ignored


@pytest.mark.parametrize(
    ("schedule", "wrong"),
    [
        ([[1, 16, 5], [17, 64, 3], [65, 256, 0]], None),
        ([[1, 16, 5], [32, 64, 3]], None),
        ([], "must be a list"),
        ([[2, 16, 5]], "must start at 1"),
        ([[1, 16, 5], [16, 20, 3]], "overlap"),
        ([[1, 16]], "three whole numbers"),
        ([[1, 16, -1]], "K at least 0"),
        ([[1, 16, 2.5]], "three whole numbers"),
        ("1-16:5", "must be a list"),
    ],
)
def test_schedules_are_judged_as_vllm_judges_them(schedule: Any, wrong: str | None) -> None:
    found = schedule_problems(schedule)
    assert (found == []) if wrong is None else (wrong in found[0])


@pytest.mark.parametrize(
    ("version", "method", "parallel", "architecture", "moe", "runner", "dispatch"),
    [
        ((0, 16, 0), "eagle3", False, "LlamaForCausalLM", False, "V1", "rounded"),
        ((0, 24, 0), "eagle3", False, "LlamaForCausalLM", False, "V2", "rounded"),
        ((0, 25, 1), "eagle3", False, "LlamaForCausalLM", False, "V2", "nearest"),
        ((0, 28, 0), "eagle3", False, "Qwen3MoeForCausalLM", True, "V1", "rounded"),
        ((0, 29, 0), "eagle3", False, "Qwen3MoeForCausalLM", True, "V2", "uniform"),
        ((0, 31, 0), "ngram", False, "LlamaForCausalLM", False, "V1", "rounded"),
        ((0, 32, 0), "ngram", False, "LlamaForCausalLM", False, "V2", "uniform"),
        ((0, 32, 0), "eagle3", True, "LlamaForCausalLM", False, "V1", "rounded"),
        ((0, 32, 0), "none", False, "GptOssForCausalLM", True, "V2", "uniform"),
    ],
)
def test_the_runner_is_the_versions_own(
    version: tuple[int, ...],
    method: str,
    parallel: bool,
    architecture: str,
    moe: bool,
    runner: str,
    dispatch: str,
) -> None:
    rules = vllm_graphs.rules(
        version,
        method=method,
        parallel=parallel,
        architecture=architecture,
        moe=moe,
        quantized=False,
        scheduled=False,
    )
    assert rules is not None
    assert (rules.runner, rules.dispatch) == (runner, dispatch)


@pytest.mark.parametrize(
    ("version", "method", "rows", "fails"),
    [
        ((0, 24, 0), "eagle3", ((1, 8, 3), (9, 64, 1)), False),
        ((0, 25, 0), "eagle3", ((1, 8, 3), (9, 64, 1)), True),
        ((0, 31, 0), "mtp", ((1, 8, 3), (9, 64, 2)), True),
        ((0, 32, 0), "eagle3", ((1, 8, 3), (9, 64, 1)), False),
        ((0, 25, 1), "p-eagle", ((1, 8, 3), (9, 64, 1)), False),
        ((0, 25, 1), "ngram", ((1, 8, 3), (9, 64, 1)), False),
        ((0, 25, 1), "eagle3", ((1, 64, 3),), False),
        ((0, 25, 1), "dspark", ((1, 8, 3), (9, 64, 1)), False),
        ((0, 25, 1), "dspark", ((1, 8, 3), (9, 64, 0)), True),
        ((0, 28, 0), "eagle3", ((1, 64, 3), (65, 128, 1)), True),
        ((0, 29, 0), "eagle3", ((1, 64, 3), (65, 128, 1)), False),
    ],
)
def test_where_a_schedule_ends_the_server(
    version: tuple[int, ...], method: str, rows: tuple[tuple[int, int, int], ...], fails: bool
) -> None:
    assert vllm_graphs.schedule_fails(version, method, rows, 3, 64) is fails


@pytest.mark.parametrize(
    ("version", "method", "parallel", "scheduled", "forced", "runner", "in_vain"),
    [
        ((0, 24, 0), "eagle3", False, False, None, "V2", False),
        ((0, 24, 0), "eagle3", False, True, None, "V1", False),
        ((0, 24, 0), "eagle3", False, True, "1", "V2", True),
        ((0, 25, 0), "eagle3", False, True, "0", "V1", False),
        ((0, 25, 0), "eagle3", True, False, "1", "V2", True),
        ((0, 31, 0), "ngram", False, False, "1", "V2", True),
        ((0, 32, 0), "ngram", False, False, "1", "V2", False),
    ],
)
def test_the_runner_that_is_asked_for(
    version: tuple[int, ...],
    method: str,
    parallel: bool,
    scheduled: bool,
    forced: str | None,
    runner: str,
    in_vain: bool,
) -> None:
    rules = vllm_graphs.rules(
        version,
        method=method,
        parallel=parallel,
        architecture="LlamaForCausalLM",
        moe=False,
        quantized=False,
        scheduled=scheduled,
        forced=forced,
    )
    assert rules is not None
    assert (rules.runner, rules.forced_in_vain) == (runner, in_vain)


def test_versions_that_were_not_read_have_no_rules() -> None:
    assert (
        vllm_graphs.rules(
            (0, 12, 0),
            method="none",
            parallel=False,
            architecture="",
            moe=False,
            quantized=False,
            scheduled=False,
        )
        is None
    )
