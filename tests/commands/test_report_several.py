"""`specctl report --each`: several models under one first page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from speccli.core.bench.form import read, write
from speccli.main import app
from tests.support.benches import PLAIN, Noise, Planted, bench


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["report", *words])


@pytest.fixture
def files() -> tuple[str, str]:
    """One that crosses over and is a stand-in, one that does not and is what it is."""
    noise = Noise(run=0.005)
    first = bench(
        [PLAIN, Planted("eagle3", {8: 1.5, 128: 0.8})], batches=(8, 128), prompts=30, noise=noise
    )
    write(Path("a.json"), replace(first, simulated=False, stand_in="a model of the same cost"))
    second = bench([PLAIN, Planted("ngram", {8: 1.4})], batches=(8,), prompts=30, noise=noise)
    write(Path("b.json"), replace(second, simulated=False))
    return "8b=a.json", "70b=b.json"


def both(files: tuple[str, str], *more: str) -> Result:
    return run("--each", files[0], "--each", files[1], "--out", "here", *more)


def test_each_model_has_its_report_and_all_one_first_page(files: tuple[str, str]) -> None:
    result = both(files)
    assert (result.exit_code, result.stderr) == (0, "")
    assert {"here/README.md", "here/index.html", "here/8b/report.md", "here/70b/report.html"} < set(
        result.stdout.split()
    )


def test_the_first_page_answers_for_each_and_marks_the_stand_in(files: tuple[str, str]) -> None:
    both(files)
    text = Path("here/README.md").read_text()
    assert "**8b: Yes, at batch 8: eagle3 yields 1." in text
    assert "**70b: Yes, at batch 8: ngram yields 1." in text
    assert "> **STAND-IN: a model of the same cost**" in text
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    assert "◐ 8b" in rows
    assert "● 70b" in rows
    assert "◐ measured on a stand-in" in text


def test_what_stand_ins_have_in_common_is_said_once(files: tuple[str, str]) -> None:
    for name, shape in (("a", "an 8B, BF16"), ("b", "a 70B, FP8")):
        told = f"a 135M in the shape of {shape}: the cost is that model's"
        write(Path(f"{name}.json"), replace(read(Path(f"{name}.json")), stand_in=told))
    both(files)
    badges = [x for x in Path("here/README.md").read_text().splitlines() if x.startswith("> ")]
    assert badges == [
        "> **STAND-IN: a 135M in the shape of (8b) an 8B, BF16; (70b) a 70B, FP8: "
        "the cost is that model's**"
    ]


def test_every_model_of_a_stand_in_is_named_beside_it(files: tuple[str, str]) -> None:
    for name, shape in (("a", "an 8B, BF16"), ("b", "a 70B, FP8")):
        told = f"a 135M in the shape of {shape}: the cost is that model's"
        write(Path(f"{name}.json"), replace(read(Path(f"{name}.json")), stand_in=told))
    write(Path("c.json"), replace(read(Path("a.json")), name="c"))
    run("--each", files[0], "--each", files[1], "--each", "again=c.json", "--out", "here")
    text = Path("here/README.md").read_text()
    assert "in the shape of (8b, again) an 8B, BF16; (70b) a 70B, FP8: the cost" in text


def test_a_batch_that_was_not_measured_is_a_dash(files: tuple[str, str]) -> None:
    both(files)
    text = Path("here/README.md").read_text()
    (row,) = (line for line in text.splitlines() if line.startswith("| ● 70b | ngram"))
    assert row.rstrip(" |").endswith("—")


def test_a_dataset_has_a_row_of_its_own_the_one_of_most_batches_first() -> None:
    """Batches of different datasets in one row would read as a curve that nobody measured."""
    arms = [PLAIN, Planted("eagle3", {1: 2.0, 8: 1.5})]
    few = bench(arms, batches=(1,), datasets=("humaneval",), prompts=30)
    many = bench(arms, batches=(1, 8), datasets=("sharegpt",), prompts=30)
    for name, each in (("few", few), ("many", many)):
        write(Path(f"{name}.json"), replace(each, simulated=False))
    run("--each", "8b=few.json", "--each", "8b=many.json", "--out", "here")
    lines = Path("here/README.md").read_text().splitlines()
    rows = [line.split("|")[1:] for line in lines if line.startswith("| ● 8b | eagle3")]
    assert [row[2].strip() for row in rows] == ["sharegpt", "humaneval"]
    assert [row[4].strip() != "—" for row in rows] == [True, False]
    told = "batch 8 on sharegpt alone, the others on 2 datasets"
    assert [line for line in lines if line.startswith("- **8b: ") and f"Measured: {told}." in line]
    assert f"<sub>8b: {told}</sub><br>" in lines, "in the table too"


def test_a_bench_that_was_cut_short_is_said_on_the_first_page(files: tuple[str, str]) -> None:
    both(files)
    assert "did not finish" not in Path("here/README.md").read_text()
    cut = json.loads(Path("b.json").read_text()) | {"complete": False}
    Path("b.json").write_text(json.dumps(cut))
    both(files)
    assert "70b: the bench did not finish" in Path("here/README.md").read_text()


def test_a_model_has_a_line_with_where_it_pays_and_where_to_turn_it_off(
    files: tuple[str, str],
) -> None:
    both(files)
    text = Path("here/README.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith(("| ◐ 8b |", "| ● 70b |"))]
    first, second = ([cell.strip() for cell in line.split("|")[2:7]] for line in lines[:2])
    assert first[:2] == ["at batch 8", "eagle3"]
    assert first[2].startswith("1.")
    assert first[3].startswith("at batch 128, the largest measured: 0.8")
    assert first[4].startswith("~ ")
    assert second[:2] == ["at batch 8", "ngram"]
    assert second[3:] == ["not seen", "not up to 8"]


def _again(speedup: float, seed: int = 7) -> str:
    arms = [PLAIN, Planted("eagle3", {8: speedup})]
    made = bench(arms, batches=(8,), prompts=30, noise=Noise(run=0.005), seed=seed)
    stood = replace(made, simulated=False, stand_in="a model of the same cost")
    write(Path("again.json"), stood)
    return "8b=again.json"


def test_another_run_that_disagrees_is_told_where_nobody_misses_it(files: tuple[str, str]) -> None:
    both(files, "--again", _again(1.2))
    for page in ("README.md", "index.html"):
        text = Path(f"here/{page}").read_text()
        assert "Another run had eagle3 at 1.19 at batch 8 on sharegpt, where 1.54 stands" in text
        assert "take the intervals of eagle3 as too narrow" in text
        assert "APART" in text
    both(files, "--again", _again(1.5))
    text = Path("here/README.md").read_text()
    assert "Another run" not in text
    assert "| agree | again.json |" in text


def test_a_run_of_something_else_is_no_other_run(files: tuple[str, str]) -> None:
    for given, words in (
        ("70b=a.json", "measured something else"),
        ("9b=a.json", "no model of that name is compared"),
        ("a.json", "--again 'a.json' is not NAME=FILE"),
    ):
        result = both(files, "--again", given)
        assert (result.exit_code, result.stdout) == (64, "")
        assert words in result.stderr
        assert not Path("here").exists()


def test_pages_link_to_each_report(files: tuple[str, str]) -> None:
    both(files)
    page = Path("here/index.html").read_text()
    assert 'href="8b/report.html"' in page
    assert 'class="badge"' in page
    assert "(70b/report.md)" in Path("here/README.md").read_text()


def test_estimates_stand_beside_measurements_with_their_own_mark(files: tuple[str, str]) -> None:
    line = {"shape": "8b", "arm": "none", "what": "tokens/s (x)", "batch": 8, "unit": "/s"}
    lines = [line | {"estimated": 90.0, "measured": each} for each in (95.0, 105.0)]
    lines.append(line | {"what": "tokens/s (y)", "estimated": 50.0, "measured": 50.0})
    weights = {"shape": "8b", "arm": "none", "what": "weights", "batch": None, "unit": "GiB"}
    lines.append(weights | {"estimated": 15.0, "measured": 15.1})
    told = {"schema": "specctl.lab.estimate/v1", "lines": lines, "fitted": "Some was fitted."}
    Path("e.json").write_text(json.dumps(told))
    both(files, "--estimates", "e.json")
    text = Path("here/README.md").read_text()
    assert "| 8b | none | tokens/s | x | △ 90 / 100, −10 % |" in text
    assert "| 8b | none | tokens/s | y | △ 50 / 50, 0 % |" in text
    assert "| model | arm | weights, GiB |" in text
    assert "| 8b | none | △ 15 / 15.1, −1 % |" in text
    assert "△ estimated by" in text
    assert "Some was fitted." in text
    assert 'class="kind planned"' in Path("here/index.html").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param((), "which bench?", id="none"),
        pytest.param(("a.json", "--each", "8b=a.json"), "which bench?", id="both-ways"),
        pytest.param(("--each", "a.json"), "is not NAME=FILE", id="no-name"),
        pytest.param(("--each", "../x=a.json"), "is not NAME=FILE", id="a-path-for-a-name"),
        pytest.param(("--each", "8b=a.json", "--estimates", "a.json"), "is no", id="no-estimates"),
    ],
)
def test_what_cannot_be_told_is_refused(
    files: tuple[str, str], words: tuple[str, ...], told: str
) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (64, "")
    assert told in result.stderr


@pytest.mark.parametrize("name", ["README.md", "index.html", "8b/report.md"])
def test_no_page_replaces_what_somebody_else_wrote(files: tuple[str, str], name: str) -> None:
    there = Path("here", name)
    there.parent.mkdir(parents=True)
    there.write_text("# My project\n")
    refused = both(files)
    assert (refused.exit_code, refused.stdout) == (64, "")
    assert f"here/{name} is not of specctl's making" in refused.stderr
    assert [path for path in Path("here").rglob("*") if path.is_file()] == [there]
    assert both(files, "--force").exit_code == 0
    assert both(files).exit_code == 0
