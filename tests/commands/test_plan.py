"""`recipes`, `plan` and `draft check` as they are typed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from speccli.main import app

HEAD = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 512}
TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "vocab_size": 512,
}


def specctl(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    for name, config in (("target", TARGET), ("draft", HEAD)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    return str(tmp_path / "target"), str(tmp_path / "draft")


def test_recipes_are_listed_by_name_and_by_word() -> None:
    rows = json.loads(specctl("recipes", "list", "-o", "json").stdout)
    assert len(rows) == 58
    assert set(rows[0]) == {"name", "target", "method", "gpu", "summary"}
    table = specctl("recipes", "list", "awq")
    assert table.exit_code == 0
    assert "llama-3.3-70b-awq-eagle3-h100" in table.stdout
    assert "gpt-oss" not in table.stdout


def test_show_prints_the_whole_recipe_with_its_changes() -> None:
    answer = specctl("recipes", "show", "llama-3.3-70b-eagle3-h100", "--set", "draft.K=5")
    told = yaml.safe_load(answer.stdout)
    assert (told["draft"]["K"], told["schema"]) == (5, "specctl.recipe/v1")
    assert "draft.model" in told["evidence"]
    table = specctl("recipes", "show", "llama-3.3-70b-eagle3-h100", "-o", "table")
    assert "draft.method" in table.stdout


def test_plan_json_is_the_contracts() -> None:
    answer = specctl("plan", "llama-3.3-70b-eagle3-h100", "-o", "json")
    told = json.loads(answer.stdout)
    assert answer.exit_code == 1  # the draft's config.json was not read
    assert told["schema"] == "specctl.plan/v1"
    assert told["command"][:2] == ["vllm", "serve"]
    assert told["needed_capture_size"] == 256
    assert told["memory"]["kv_tokens"] > 32768
    assert told["memory"]["concurrent_requests"] >= 1
    assert told["cuda_graphs"][3] == {"batch": 8, "tokens": 32, "captured": 32, "mode": "full"}
    assert "H200" in told["estimate"]["error"]
    (finding,) = told["findings"]
    assert set(finding) == {
        *("code", "rule", "severity", "subject", "evidence", "cause", "action", "thread", "since"),
    }
    assert (finding["code"], finding["rule"]) == ("PAIR_UNREAD", "P-UNREAD")


def test_the_error_is_of_the_rates_that_were_used() -> None:
    """The A100 does not multiply FP8: its estimate is BF16's."""
    for gpu, of_fp8 in (("h100", True), ("a100", False)):
        words = ("plan", "llama-3.3-70b-none-h100", "--set", f"hardware.gpu={gpu}")
        told = json.loads(specctl(*words, "-o", "json").stdout)["estimate"]["error"]
        assert ("roofline for FP8" in told) == of_fp8
        assert ("roofline for FP8" in specctl(*words).stdout) == of_fp8


def test_the_engine_line_can_be_copied_from_the_table() -> None:
    answer = specctl("plan", "gpt-oss-120b-eagle3-h200")
    line = answer.stdout[answer.stdout.index("vllm serve") :]
    words = shlex.split(line.replace(" \\\n", " "))
    told = json.loads(specctl("plan", "gpt-oss-120b-eagle3-h200", "-o", "json").stdout)
    assert words == told["command"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("llama-3.3-70b-none-h100",), 0),
        (("llama-3.3-70b-eagle3-h100",), 1),
        (("llama-3.3-70b-eagle3-h100", "--set", "serving.kv_cache_dtype=fp8"), 2),
        (("llama-3.3-70b-none-h100", "--set", "target.model=org/unknown"), 3),
        (("no-such-recipe",), 64),
        (("llama-3.3-70b-none-h100", "--set", "draft.k=3"), 64),
        ((), 64),
    ],
)
def test_plan_exits_by_its_worst_finding(words: tuple[str, ...], code: int) -> None:
    answer = specctl("plan", *words)
    assert answer.exit_code == code
    assert (answer.stdout == "") == (code == 64)


def check(pair: tuple[str, str], *words: str) -> tuple[int, dict[str, Any]]:
    answer = specctl("draft", "check", *pair, "-o", "json", *words)
    return answer.exit_code, json.loads(answer.stdout)


def test_a_pair_that_fits_is_ok(pair: tuple[str, str]) -> None:
    code, told = check(pair)
    assert (code, told["verdict"], told["method"]) == (0, "ok", "eagle3")
    assert told["schema"] == "specctl.pair/v1"
    table = specctl("draft", "check", *pair)
    assert "nothing speaks against it" in table.stdout


def test_a_pair_that_does_not_fit_is_critical_and_says_what_to_change(
    pair: tuple[str, str],
) -> None:
    code, told = check(pair, "--method", "p-eagle", "--engine-version", "0.32.0")
    assert (code, told["verdict"]) == (2, "critical")
    assert told["findings"][0]["rule"] == "P-MASK"
    table = specctl("draft", "check", *pair, "--method", "p-eagle")
    assert table.exit_code == 2
    assert "→ use a P-EAGLE head, or drop parallel_drafting" in table.stdout


def test_doubts_are_warnings(pair: tuple[str, str]) -> None:
    assert check(pair, "--lora")[0] == 1


@pytest.mark.parametrize(
    ("words", "code", "words_of_it"),
    [
        (("--method", "eagle-3"), 64, "did you mean eagle3?"),
        (("--gpu", "h300"), 64, "one of h100"),
        (("--engine-version", "latest"), 64, "is no version"),
    ],
)
def test_a_mistyped_option_is_a_usage_error(
    pair: tuple[str, str], words: tuple[str, ...], code: int, words_of_it: str
) -> None:
    answer = specctl("draft", "check", *pair, *words)
    assert (answer.exit_code, answer.stdout) == (code, "")
    assert words_of_it in answer.stderr


def test_a_hub_name_that_cannot_be_asked_is_unknown(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    answer = specctl("draft", "check", pair[0], "org/draft")
    assert (answer.exit_code, answer.stdout) == (3, "")
    assert "huggingface_hub is not installed" in answer.stderr
    assert specctl("draft", "check", pair[0], "./nothing").exit_code == 64
