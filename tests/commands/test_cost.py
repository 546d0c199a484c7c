"""`specctl cost`, over a recording of simulated engines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from speccli.core.sim import build_fleet
from speccli.main import app

Run = Callable[..., Result]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Eleven scrapes, a second apart, of two engines that serve."""
    now = 1_795_000_000.0
    fleet = build_fleet(2, model="org/model", clock=lambda: now, warmup_s=30)
    head = {"schema": "specctl.recording/v1", "created": "2026-11-18T00:00:00Z"}
    lines = [head | {"interval_s": 1.0, "source": "scrape", "simulated": True}]
    for _ in range(11):
        for i, replica in enumerate(fleet.replicas):
            scrape = {"at": now, "target": f"http://engine-{i}:8000", "status": 200}
            lines.append(scrape | {"body": replica.metrics().decode()})
        now += 1.0
        fleet.advance(now)
    path = tmp_path / "fleet.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def cost(recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str, replay: bool = True) -> Result:
        source = ["--replay", str(recording)] if replay else []
        return CliRunner().invoke(app, ["cost", *source, *words])

    return run


def test_the_cost_and_what_others_charge(cost: Run) -> None:
    result = cost("--gpu-hour-usd", "2.5", "--gpus-per-engine", "4", "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    said = json.loads(result.stdout)
    assert said["schema"] == "specctl.cost/v1"
    assert said["simulated"] is True
    pool = said["pool"]
    assert (pool["engines"], pool["gpus"], pool["usd_per_hour"]["value"]) == (2, 8, 20.0)
    out, in_ = pool["output_tokens_per_s"]["value"], pool["input_tokens_per_s"]["value"]
    assert pool["cost_per_1m_output_usd"]["value"] == pytest.approx(20 / out / 3600 * 1e6)
    assert pool["cost_per_1m_total_usd"]["value"] == pytest.approx(20 / (out + in_) / 3600 * 1e6)
    assert pool["input_per_output"]["value"] == pytest.approx(in_ / out)
    assert said["prices"]["source"] == "genai-prices"
    assert said["prices"]["version"]
    assert [each["provider"] for each in said["hosted"]] == ["anthropic"] * 3 + ["openai"] * 3
    for each in said["hosted"]:
        bill = (each["output_per_1m_usd"] * out + each["input_per_1m_usd"] * in_) * 3600 / 1e6
        assert each["ratio"]["value"] == pytest.approx(20 / bill)
        assert each["break_even_output_tokens_per_s"]["value"] == pytest.approx(out * 20 / bill)
        assert each["break_even_utilisation"]["state"] == "unknown"


def test_the_table_says_cost_speculation_and_the_date_of_prices(cost: Run) -> None:
    words = ("--gpu-hour-usd", "2.5", "--gpus-per-engine", "4", "--baseline-cost", "9.5")
    result = cost(*words, "--model", "claude-sonnet-5", "--capacity", "99999")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("SIMULATED  ")
    assert "USD per 1M output tokens" in lines[0]
    assert lines[1] == "2 engines × 4 GPUs × 2.50 USD/h = 20.00 USD/h"
    assert "% of full load" in lines[2]
    assert lines[3].startswith("9.50 USD per 1M output without speculation: speculation saves")
    (row,) = [line for line in lines if line.startswith("claude-sonnet-5")]
    assert "cheaper" in row or "dearer" in row
    assert any(line.startswith("prices: genai-prices ") and " as of " in line for line in lines)


def test_eighty_columns_cut_no_number(cost: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = cost("--gpu-hour-usd", "2.5", "--capacity", "9999")
    assert "…" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_tiers_are_said(cost: Run) -> None:
    result = cost("--gpu-hour-usd", "2.5", "--model", "anthropic:claude-haiku-5-5")
    assert "in / " in result.stdout
    assert "out for prompts over 100,000 tokens" in result.stdout


def test_a_name_that_was_matched_to_another_says_so(cost: Run) -> None:
    result = cost("--gpu-hour-usd", "2.5", "--model", "claude-sonnet-5.0")
    assert "claude-sonnet-5: is what 'claude-sonnet-5.0' was taken for" in result.stdout


def test_yaml_has_the_same(cost: Run) -> None:
    result = cost("--gpu-hour-usd", "2.5", "--model", "claude-sonnet-5", "-o", "yaml")
    assert yaml.safe_load(result.stdout)["hosted"][0]["asked"] == "claude-sonnet-5"


def test_without_a_gpu_price_the_cost_is_unknown_and_the_even_price_is_told(cost: Run) -> None:
    result = cost("--model", "claude-sonnet-5", "-o", "json")
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        "specctl: error: no cost: no GPU price given (--gpu-hour-usd)",
        "hint: give --gpu-hour-usd, what one GPU costs for an hour",
    ]
    said = json.loads(result.stdout)
    assert said["pool"]["cost_per_1m_output_usd"]["state"] == "unknown"
    assert said["hosted"][0]["break_even_gpu_hour_usd"]["value"] > 0
    table = cost("--model", "claude-sonnet-5").stdout
    assert "— cost, ratio: no GPU price given (--gpu-hour-usd)" in table


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(("--model", "claude-sonet-5"), "no price for a model", id="unknown-model"),
        pytest.param(("--model", "whisper-1"), "not sold by the token", id="no-text-model"),
        pytest.param(("--capacity", "0"), "--capacity", id="no-capacity"),
        pytest.param(("--gpu-hour-usd", "-1"), "--gpu-hour-usd", id="negative-price"),
    ],
)
def test_what_is_mistyped_is_refused_before_anything_is_read(
    cost: Run, words: tuple[str, ...], says: str
) -> None:
    result = cost(*words)
    assert (result.exit_code, result.stdout) == (64, "")
    assert says in result.stderr
    assert "hint: " in result.stderr


def test_no_source_is_a_usage_error(cost: Run) -> None:
    result = cost(replay=False)
    assert (result.exit_code, result.stdout) == (64, "")
    assert "no source of metrics" in result.stderr


def test_an_engine_that_is_down_says_so_and_prices_are_still_told(cost: Run) -> None:
    result = cost("-e", "http://127.0.0.1:9", "--gpu-hour-usd", "2.5", replay=False)
    assert result.exit_code == 3
    assert "no engine could be read (http://127.0.0.1:9: connect refused)" in result.stderr
    assert "claude-" in result.stdout


def test_the_price_list_is_loaded_by_this_command_alone() -> None:
    code = (
        "import speccli.main, sys; print(sorted({'genai_prices', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
