"""`specctl baseline`, over recordings of simulated engines."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from speccli.core.baseline.reference import REFERENCES
from speccli.core.bench import form
from speccli.core.sim import build_fleet
from speccli.main import app
from tests.support.benches import PLAIN, Planted, bench
from tests.support.engine_page import Engine, serving

Run = Callable[..., Result]
NOW = 1_795_000_000.0


def recording(path: Path, **fleet: Any) -> Path:
    """Ten minutes of two engines, ten seconds apart."""
    made = build_fleet(2, clock=lambda: NOW, warmup_s=30, fluid=True, **fleet)
    head = {"schema": "specctl.recording/v1", "created": "2026-11-18T00:00:00Z"}
    lines: list[dict[str, Any]] = [head | {"interval_s": 10.0, "source": "scrape"}]
    for step in range(61):
        made.advance(NOW + 10 * step)
        for replica in made.replicas:
            scrape = {"at": NOW + 10 * step, "target": f"http://{replica.name}:8000", "status": 200}
            lines.append(scrape | {"body": replica.metrics().decode()})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def baseline(tmp_path: Path) -> Run:
    def run(*words: object) -> Result:
        return CliRunner().invoke(app, ["baseline", *map(str, words), "--state", str(tmp_path)])

    return run


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return recording(tmp_path / "good.jsonl")


def test_record_show_list(baseline: Run, good: Path, tmp_path: Path) -> None:
    words = ("--replay", good, "--target-revision", "a1", "-o", "json")
    result = baseline("record", "prod", *words)
    assert result.exit_code == 0, result.stderr
    kept = json.loads(result.stdout)
    assert kept["schema"] == "specctl.baseline/v1"
    assert (kept["key"]["target"], kept["key"]["target_revision"]) == (
        "SIMULATED/llama-3.3-70b",
        "a1",
    )
    assert kept["simulated"] is True
    assert kept["acceptance"]["rate"] == pytest.approx(0.564, abs=0.01)
    assert len(kept["acceptance"]["by_position"]) == 3
    assert kept["dispersion"]["fleet"]["looks"] >= 8
    assert kept["by_prompt"][0]["drafts"] > 0
    assert kept["speed"]["self"][0]["output_tokens_per_s"] > 100
    assert json.loads((tmp_path / "baselines" / "prod.json").read_text()) == kept
    shown = baseline("show", "prod", "-o", "json")
    assert json.loads(shown.stdout) == kept
    table = baseline("show", "prod")
    assert "SIMULATED" in table.stdout
    listed = baseline("list")
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == [
        "prod",
        "reference/llama-3.1-8b",
        "reference/qwen3-8b",
        "reference/gpt-oss-20b",
    ]


def test_a_record_overwrites_a_baseline_only_by_force(
    baseline: Run, good: Path, tmp_path: Path
) -> None:
    assert baseline("record", "prod", "--replay", good).exit_code == 0
    file = tmp_path / "baselines" / "prod.json"
    kept = file.read_text()
    # Refused before anything is read: a watch takes up to a day.
    refused = baseline("record", "prod", "--replay", tmp_path / "none.jsonl")
    assert (refused.exit_code, refused.stdout) == (64, "")
    assert f"error: baseline prod exists in {file.parent}" in refused.stderr
    assert "--force overwrites it" in refused.stderr
    assert file.read_text() == kept
    other = recording(tmp_path / "other.jsonl", k=4)
    assert baseline("record", "prod", "--replay", other, "--force").exit_code == 0
    assert json.loads(file.read_text())["key"]["k"] == 4


def test_an_import_overwrites_a_baseline_only_by_force(baseline: Run, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(BENCH))
    assert baseline("import", path, "--name", "b").exit_code == 0
    file = tmp_path / "baselines" / "b.json"
    kept = file.read_text()
    path.write_text(json.dumps(BENCH | {"num_prompts": 25}))
    refused = baseline("import", path, "--name", "b")
    assert (refused.exit_code, refused.stdout) == (64, "")
    assert "error: baseline b exists" in refused.stderr
    assert file.read_text() == kept
    assert baseline("import", path, "--name", "b", "--force").exit_code == 0
    assert "25 prompts" in file.read_text()


def test_a_canary_is_not_run_where_its_name_is_taken(baseline: Run, tmp_path: Path) -> None:
    path = tmp_path / "sound.json"
    path.write_text(json.dumps(BENCH))
    assert baseline("import", path).exit_code == 0
    # No server is asked, or this were 3: nothing listens there.
    words = ["alert", "canary", "-e", "http://127.0.0.1:9", "--record", "sound"]
    words += ["--state", str(tmp_path)]
    refused = CliRunner().invoke(app, words)
    assert (refused.exit_code, refused.stdout) == (64, "")
    assert "error: baseline sound exists" in refused.stderr
    assert CliRunner().invoke(app, [*words, "--force"]).exit_code == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("prod", "no baseline 'prod'", id="none"),
        pytest.param(REFERENCES[0].name, "is a public reference", id="a-reference"),
    ],
)
def test_plain_is_not_watched_for_where_there_is_nothing_to_add_it_to(
    baseline: Run, name: str, said: str
) -> None:
    # No server is asked, or this were 3: nothing listens there.
    words = ("record", name, "--plain", "-e", "http://127.0.0.1:9", "--for", "1s")
    refused = baseline(*words)
    assert (refused.exit_code, refused.stdout) == (64, "")
    assert said in refused.stderr


@pytest.mark.parametrize("words", [("record",), ("show",)])
def test_a_name_is_shown_as_other_commands_show_it(words: tuple[str, ...]) -> None:
    usage = CliRunner().invoke(app, ["baseline", *words, "--help"]).stdout
    assert "{NAME}" in usage
    assert "{name}" not in usage


def test_speed_without_speculation_is_added(baseline: Run, good: Path, tmp_path: Path) -> None:
    assert baseline("record", "prod", "--replay", good).exit_code == 0
    plain = recording(tmp_path / "plain.jsonl", method="none")
    result = baseline("record", "prod", "--replay", plain, "--plain", "-o", "json")
    assert result.exit_code == 0, result.stderr
    speed = json.loads(result.stdout)["speed"]
    assert speed["plain"]
    assert speed["self"]


@pytest.mark.slow
@pytest.mark.parametrize(("drafts_per_s", "code"), [(5000.0, 0), (1.0, 130)])
def test_what_was_seen_before_ctrl_c_is_kept_if_it_is_enough(
    tmp_path: Path, drafts_per_s: float, code: int
) -> None:
    engine = Engine(drafts_per_s=drafts_per_s)
    with serving(engine):
        command = [sys.executable, "-m", "speccli", "baseline", "record", "early", "--for", "1h"]
        command += ["-e", engine.url, "--interval", "100ms", "--state", str(tmp_path)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        ends = time.monotonic() + 120
        while engine.asked < 15:
            assert time.monotonic() < ends
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == code, said
    assert (tmp_path / "baselines" / "early.json").is_file() == (code == 0)
    if code:
        assert "error: nothing kept, stopped after" in said
    else:
        assert re.search(r"baseline early kept in .*, stopped after \d+ s of 1h", said)


def test_too_little_is_no_baseline(baseline: Run, tmp_path: Path) -> None:
    idle = recording(tmp_path / "idle.jsonl", method="none")
    result = baseline("record", "prod", "--replay", idle)
    assert result.exit_code == 3
    assert "0 drafts seen; a baseline needs 2,000" in result.stderr
    assert result.stdout == ""


BENCH = {
    "model_id": "m", "completed": 24, "total_input_tokens": 480, "total_output_tokens": 960,
    "max_concurrency": 4, "output_throughput": 263.0, "duration": 40.0, "num_prompts": 24,
    "spec_decode_num_drafts": 429, "spec_decode_draft_tokens": 1287,
    "spec_decode_accepted_tokens": 537,
    "spec_decode_per_position_acceptance_rates": [0.718, 0.380, 0.154],
}  # fmt: skip


def test_a_bench_run_becomes_a_baseline(baseline: Run, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(BENCH))
    result = baseline("import", path, "--name", "b", "--dataset", "gsm8k", "-o", "json")
    assert result.exit_code == 0, result.stderr
    kept = json.loads(result.stdout)
    assert (kept["key"]["k"], kept["key"]["dataset"], kept["tolerance"]) == (3, "gsm8k", 0.02)
    assert kept["acceptance"]["length"] == pytest.approx(1 + 537 / 429)
    path.write_text(json.dumps({k: v for k, v in BENCH.items() if "spec" not in k}))
    result = baseline("import", path, "--plain", "b", "-o", "json")
    assert json.loads(result.stdout)["speed"]["plain"] == [
        {"batch": 4.0, "output_tokens_per_s": 263.0, "seconds": 40.0}
    ]


def test_of_several_arms_the_one_that_is_named_becomes_the_baseline(
    baseline: Run, tmp_path: Path
) -> None:
    path = tmp_path / "bench.json"
    form.write(path, bench([PLAIN, Planted("a", {}), Planted("b", {})], batches=(8,), prompts=5))
    refused = baseline("import", path)
    assert (refused.exit_code, refused.stdout) == (64, "")
    assert "--arm, one of a, b" in refused.stderr
    result = baseline("import", path, "--arm", "b", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["key"]["draft"] == "simulated-b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is neither a baseline nor a bench result"),
        ('{"schema": "specctl.baseline/v1"}', "is not a whole baseline"),
        (json.dumps(BENCH | {"spec_decode_accepted_tokens": 9999}), "acceptance outside 0..1"),
    ],
)
def test_a_file_that_is_none_is_a_usage_error(
    baseline: Run, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    result = baseline("import", path)
    assert (result.exit_code, result.stdout) == (64, "")
    assert words in result.stderr


def test_names(baseline: Run) -> None:
    assert "did you mean reference/qwen3-8b?" in baseline("show", "reference/qwen-8b").stderr
    assert baseline("show", "../../etc/passwd").exit_code == 64


def test_a_broken_file_does_not_hide_the_others(baseline: Run, good: Path, tmp_path: Path) -> None:
    assert baseline("record", "prod", "--replay", good).exit_code == 0
    (tmp_path / "baselines" / "bad.json").write_text("{")
    result = baseline("list")
    assert result.exit_code == 64
    assert "prod" in result.stdout
    assert "bad.json is not JSON" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("baseline", "record", "prod", "--for", "24h"),
        ("alert", "canary", "--record", "prod"),
    ],
    ids=lambda words: words[1],
)
def test_a_folder_that_cannot_be_written_is_said_before_anything_is_watched(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    # No server is asked, or this were 3: nothing listens there.
    source = ("-e", "http://127.0.0.1:9", "--state", str(blocked / "x"))
    result = CliRunner().invoke(app, [*words, *source])
    assert (result.exit_code, result.stdout) == (64, "")
    assert f"error: cannot write {blocked}/x/baselines/prod.json: Not a directory" in result.stderr
    assert "give --state DIR" in result.stderr
