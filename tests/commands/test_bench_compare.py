"""`specctl bench compare`, `schedule`, `lossless` and `import`, over benches that never ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from speccli.core.bench import form, results
from speccli.main import app
from tests.support.benches import PLAIN, Noise, Planted, bench, sweep

Run = Callable[..., Result]
QUIET = Noise(run=0.005, prompt=0.03)
VLLM = Path(__file__).parents[1] / "data" / "bench" / "vllm-bench-0.32.0.json"


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["bench", *words])


def keep(result: results.Result, name: str = "bench.json") -> str:
    form.write(Path(name), result)
    return name


def planted(speedups: dict[int, float]) -> results.Result:
    return bench(
        [PLAIN, Planted("eagle3", speedups)], batches=tuple(speedups), prompts=40, noise=QUIET
    )


@pytest.mark.parametrize(
    ("speedups", "code"),
    [
        pytest.param({8: 1.5}, 0, id="pass"),
        pytest.param({8: 1.5, 128: 0.8}, 2, id="one-fails"),
        pytest.param({8: 1.5, 32: 1.1}, 3, id="one-cannot-be-told"),
    ],
)
def test_the_exit_code_is_the_worst_verdict(speedups: dict[int, float], code: int) -> None:
    result = run("compare", keep(planted(speedups)))
    assert result.exit_code == code, result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(("speedup", "before"), [(1.8, 0), (0.6, 2)])
@pytest.mark.parametrize("arm", ["none", "eagle3"])
def test_a_load_generator_that_was_held_up_tells_nothing(
    arm: str, speedup: float, before: int
) -> None:
    result = planted({8: speedup})
    assert run("compare", keep(result)).exit_code == before
    busy = results.RowClient(9.0, 0.99, 0.2, saturated=True, reason="it used 99 % of a core")
    first = next(row for row in result.rows if row.arm == arm)
    told = run("compare", keep(result.with_row(replace(first, client=busy))))
    assert told.exit_code == 3
    assert "○ INCONCLUSIVE" in told.stdout
    said = " ".join(told.stdout.split())
    assert "the load generator was held up in 1 of its 6 rows (it used 99 % of a core)" in said


def test_a_row_that_cannot_be_is_refused_and_not_left_out() -> None:
    name = keep(planted({8: 1.5}))
    document = json.loads(Path(name).read_text())
    document["rows"][0]["output_tokens_per_s"]["value"] = -5
    Path(name).write_text(json.dumps(document))
    result = run("compare", name)
    assert (result.exit_code, result.stdout) == (64, "")
    assert "rows[0].output_tokens_per_s.value is -5.0; it must not be" in result.stderr


def test_json_is_the_contracts_object_and_the_table_says_the_same() -> None:
    name = keep(planted({8: 1.5, 128: 0.8}))
    told = json.loads(run("compare", name, "-o", "json").stdout)
    assert told["schema"] == "specctl.compare/v1"
    assert [(c["batch"], c["verdict"]) for c in told["cells"]] == [(8, "PASS"), (128, "FAIL")]
    assert told["crossovers"][0]["state"] == "between"
    assert told["simulated"] is True
    table = run("compare", name).stdout
    assert "SIMULATED" in table
    assert "✖ FAIL" in table
    low = told["cells"][0]["speedup"]["low"]
    assert f"[{low:.2f}," in table
    assert f"crossover eagle3, sharegpt: {told['crossovers'][0]['words']}" in table


def test_only_what_was_asked_for_is_judged() -> None:
    name = keep(planted({8: 1.5, 128: 0.8}))
    assert run("compare", name, "--batch", "8").exit_code == 0
    assert run("compare", name, "--target-speedup", "3").exit_code == 2
    assert run("compare", name, "--batch", "9").exit_code == 64


def test_rows_left_out_are_listed() -> None:
    whole = planted({8: 1.5})
    rows = tuple(
        replace(row, state="failed", reason="the server died")
        if (row.arm, row.repeat) == ("eagle3", 2)
        else row
        for row in whole.rows
    )
    table = run("compare", keep(replace(whole, rows=rows))).stdout
    assert "left out: eagle3, batch 8, sharegpt, repeat 3: failed, the server died" in table


def test_a_schedule_ends_in_what_to_write() -> None:
    curves = {3: {1: 1.9, 128: 0.77}, 1: {1: 1.5, 128: 0.9}}
    name = keep(sweep(curves, batches=(1, 128), prompts=20, noise=QUIET))
    result = run("schedule", name)
    assert result.exit_code == 0
    config = json.loads(result.stdout.strip().splitlines()[-1])
    told = json.loads(run("schedule", name, "-o", "json").stdout)
    assert told["schema"] == "specctl.schedule/v1"
    assert told["speculative_config"] == config
    assert config["num_speculative_tokens"] == 3
    assert [row[2] for row in config["num_speculative_tokens_per_batch_size"]] == [3, 0]
    assert {each["batch"] for each in told["checked"]} == set(told["changes"][0]["confirm_at"])


def test_a_schedule_with_data_parallel_is_refused() -> None:
    name = keep(sweep({3: {1: 1.9, 8: 1.5}}, batches=(1, 8), prompts=5))
    result = run("schedule", name, "--data-parallel", "2")
    assert (result.exit_code, result.stdout) == (64, "")
    assert "vLLM ignores K by batch size" in result.stderr


@pytest.mark.parametrize(
    ("text", "code"),
    [pytest.param("a c", 0, id="near-tie"), pytest.param("a d", 2, id="wrong")],
)
def test_lossless_is_judged_by_the_worst_parting(text: str, code: int) -> None:
    told = {
        "text_offset": [0, 1],
        "token_logprobs": [-0.1, -0.2],
        "top_logprobs": [{"a": -0.1}, {" b": -0.2, " c": -0.3, " d": -5.0}],
    }
    texts: dict[str, dict[str, Any]] = {
        "none": {"sharegpt/1": {"text": "a b", "logprobs": told}},
        "eagle3": {"sharegpt/1": {"text": text}},
    }
    name = keep(replace(planted({8: 1.5}), simulated=False, texts=texts))
    result = run("lossless", name)
    assert result.exit_code == code
    assert "parting first at token 1" in result.stdout


def test_lossless_of_simulated_servers_is_unknown() -> None:
    result = run("lossless", keep(planted({8: 1.5})), "-o", "json")
    assert result.exit_code == 3
    assert "simulated" in json.loads(result.stdout)["why_none"]


def test_imported_files_are_written_as_a_bench() -> None:
    Path("fast.json").write_text(json.dumps(json.loads(VLLM.read_text()) | {"date": "later"}))
    result = run("import", f"none={VLLM}", "eagle3=fast.json", "--out", "got.json")
    assert (result.exit_code, result.stdout) == (0, "got.json\n")
    assert "2 rows of none, eagle3 from vllm-bench" in result.stderr
    assert form.read(Path("got.json")).name == "got"
    assert run("compare", "got.json").exit_code == 3, "measured once"


def test_an_import_of_what_cannot_be_leaves_no_file() -> None:
    told = json.loads(VLLM.read_text()) | {"output_throughput": -5.0}
    Path("bad.json").write_text(json.dumps(told))
    result = run("import", "none=bad.json", "--out", "got.json")
    assert (result.exit_code, result.stdout) == (64, "")
    assert "rows[0].output_tokens_per_s.value is -5.0" in result.stderr
    assert not Path("got.json").exists()


def test_an_import_overwrites_a_file_only_by_force() -> None:
    Path("got.json").write_text("kept")
    words = "import", f"none={VLLM}", "--out", "got.json"
    refused = run(*words)
    assert (refused.exit_code, refused.stdout) == (64, "")
    assert "error: got.json exists" in refused.stderr
    assert "--force overwrites it" in refused.stderr
    assert Path("got.json").read_text() == "kept"
    assert run(*words, "--force").exit_code == 0
    assert form.read(Path("got.json")).name == "got"


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "forced"])
@pytest.mark.parametrize(
    ("given", "out"),
    [
        pytest.param("a=vllm.json", "vllm.json", id="itself"),
        pytest.param("vllm.json", "link.json", id="by-a-link"),
        pytest.param("run", "run/profile_export_aiperf.json", id="in-a-folder"),
        pytest.param("run", "run/inputs.json", id="beside-it"),
    ],
)
def test_an_import_never_overwrites_what_it_reads(given: str, out: str, force: list[str]) -> None:
    Path("vllm.json").write_text(VLLM.read_text())
    Path("link.json").symlink_to("vllm.json")
    Path("run").mkdir()
    Path("run/profile_export_aiperf.json").write_text("{}")
    Path("run/inputs.json").write_text("{}")
    before = Path(out).read_text()
    refused = run("import", given, "--out", out, *force)
    assert (refused.exit_code, refused.stdout) == (64, "")
    assert f"error: {out} is a result that is read" in refused.stderr
    assert Path(out).read_text() == before


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "none.json"],
        ["compare"],
        ["schedule", "none.json"],
        ["lossless", "none.json"],
        ["import", "none.json", "--out", "x.json"],
        ["import", str(VLLM)],
    ],
    ids=" ".join,
)
def test_what_is_missing_is_a_usage_error(words: list[str]) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (64, "")
    assert result.stderr.startswith("specctl: error: ")
