"""Files that the other tools wrote themselves; tests/data/bench/README.md says how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speccli.core.bench.compare import compare
from speccli.core.bench.form import from_json, to_json
from speccli.core.bench.imports import import_files, read_levels
from speccli.core.errors import UsageError

DATA = Path(__file__).parents[2] / "data" / "bench"
VLLM, AIPERF, GUIDELLM = (
    DATA / "vllm-bench-0.32.0.json",
    DATA / "aiperf-0.13.0",
    DATA / "guidellm-0.8.1.json",
)


def vllm(tmp_path: Path, name: str = "run.json", **changes: Any) -> Path:
    """vLLM's file with other values; None leaves a key out."""
    document = json.loads(VLLM.read_text()) | changes
    path = tmp_path / name
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not None}))
    return path


def test_vllm_bench_numbers_are_those_it_prints() -> None:
    (level,) = read_levels(VLLM)
    document = json.loads(VLLM.read_text())
    assert (level.batch, level.requests, level.errors) == (4, 24, 0)
    assert level.output_tokens_per_s == document["output_throughput"]
    told = level.latencies
    for name, spread in (("ttft", told.ttft_s), ("tpot", told.tpot_s), ("e2el", told.e2e_s)):
        mean = document.get(f"mean_{name}_ms")
        if mean is not None:
            assert spread.mean.value == pytest.approx(mean / 1000, rel=1e-6)
            assert spread.p50.value == pytest.approx(document[f"median_{name}_ms"] / 1000)
    assert told.chunk_gap_s.mean.value == pytest.approx(document["mean_itl_ms"] / 1000)


def test_vllm_says_the_rate_in_percent_and_positions_as_fractions() -> None:
    (level,) = read_levels(VLLM)
    assert json.loads(VLLM.read_text())["spec_decode_acceptance_rate"] == pytest.approx(59.03, 1e-3)
    acceptance = level.acceptance
    assert acceptance.rate.value == pytest.approx(379 / 642)
    assert acceptance.length.value == pytest.approx(1 + 379 / 214)
    positions = [each.value for each in acceptance.by_position]
    assert positions == pytest.approx([171 / 214, 119 / 214, 89 / 214])
    assert "other traffic" in str(acceptance.rate.reason)


def test_aiperf_numbers_are_those_it_prints() -> None:
    (level,) = read_levels(AIPERF)
    document = json.loads((AIPERF / "profile_export_aiperf.json").read_text())
    assert (level.batch, level.requests, level.version) == (4, 24, "0.13.0")
    assert level.output_tokens_per_s == document["output_token_throughput"]["avg"]
    for name, spread in (
        ("time_to_first_token", level.latencies.ttft_s),
        ("inter_token_latency", level.latencies.tpot_s),
        ("request_latency", level.latencies.e2e_s),
    ):
        assert spread.mean.value == pytest.approx(document[name]["avg"] / 1000, rel=1e-3)
        assert spread.p50.value == pytest.approx(document[name]["p50"] / 1000, rel=1e-3)
    assert level.acceptance.rate.value == pytest.approx(3986 / 7089)
    assert len(level.acceptance.by_position) == 3
    assert level.started == "2026-11-29T23:40:08+00:00"


def test_aiperf_without_its_records_is_summaries_without_intervals(tmp_path: Path) -> None:
    alone = tmp_path / "profile_export_aiperf.json"
    alone.write_text((AIPERF / alone.name).read_text())
    (level,) = read_levels(alone)
    assert level.samples.prompt == ()
    assert level.latencies.ttft_s.p99.value == pytest.approx(0.327378, rel=1e-4)
    assert level.latencies.ttft_s.p99.low is None
    assert level.acceptance.rate.value is None


def test_guidellm_tpot_does_not_hold_the_first_token() -> None:
    (level,) = read_levels(GUIDELLM)
    requests = json.loads(GUIDELLM.read_text())["benchmarks"][0]["requests"]["successful"]
    theirs = sum(each["time_per_output_token_ms"] for each in requests) / len(requests) / 1000
    itl = sum(each["inter_token_latency_ms"] for each in requests) / len(requests) / 1000
    ours = level.latencies.tpot_s.mean.value
    assert ours == pytest.approx(itl, rel=0.01)
    assert ours is not None
    assert theirs > ours * 1.01
    assert (level.batch, level.requests) == (4, 24)
    assert level.output_tokens_per_s == pytest.approx(336.94, rel=1e-3)


@pytest.mark.parametrize("path", [AIPERF, GUIDELLM], ids=["aiperf", "guidellm"])
def test_the_same_prompt_has_the_same_id_in_every_run(path: Path) -> None:
    one, other = (read_levels(path)[0].samples.prompt for _ in range(2))
    assert len(set(one)) == 24
    assert one == other
    assert not any(each.isdigit() for each in one)


def test_imported_files_are_a_bench_that_reads_back_and_compares(tmp_path: Path) -> None:
    faster = {
        "output_throughput": 450.0,
        "latencies": [0.6 * each for each in json.loads(VLLM.read_text())["latencies"]],
    }
    plain = [vllm(tmp_path, f"plain{i}.json", method=None, date=f"2026112{i}") for i in (0, 1)]
    fast = [vllm(tmp_path, f"fast{i}.json", date=f"2026112{i}", **faster) for i in (0, 1)]
    result = import_files([*(f"none={each}" for each in plain), *(f"eagle3={e}" for e in fast)])
    assert from_json(json.loads(json.dumps(to_json(result)))) == result
    assert result.simulated, "the model's name says that it is"
    assert [(arm.name, arm.baseline, arm.method, arm.k) for arm in result.arms] == [
        ("none", True, "none", 3),
        ("eagle3", False, "eagle3", 3),
    ]
    (cell,) = compare(result).cells
    assert cell.repeats == 2
    assert cell.speedup.value == pytest.approx(450 / 299.4795, rel=1e-3)
    assert cell.contrast is not None
    assert cell.contrast.prompts == 24, "paired by place: the prompts are as long"


def test_a_file_given_twice_is_no_further_repeat(tmp_path: Path) -> None:
    copy = vllm(tmp_path, "copy.json")
    copy.write_bytes(VLLM.read_bytes())
    for pair in ([str(VLLM), str(VLLM)], [f"none={VLLM}", f"eagle3={copy}"]):
        with pytest.raises(UsageError, match="holds the very numbers of"):
            import_files(pair)


def test_prompts_of_other_lengths_are_not_taken_for_the_same(tmp_path: Path) -> None:
    lengths = json.loads(VLLM.read_text())["input_lens"]
    other = vllm(tmp_path, input_lens=[n + 1 for n in lengths])
    result = import_files([f"none={VLLM}", f"eagle3={other}"])
    ours, theirs = (set(row.samples.prompt) for row in result.rows)
    assert not ours & theirs


def test_prompts_that_a_file_does_not_hold_have_no_hash(tmp_path: Path) -> None:
    (placed,) = import_files([str(VLLM)]).datasets
    assert placed.sha256 is None
    assert "holds no prompts" in str(placed.note)
    (named,) = import_files([str(AIPERF)]).datasets
    assert named.sha256 is not None
    assert import_files([str(AIPERF)]).datasets[0].sha256 == named.sha256
    tokens = json.loads(VLLM.read_text())["total_input_tokens"]
    longer = vllm(tmp_path, total_input_tokens=2 * tokens)
    (mixed,) = import_files([f"none={VLLM}", f"eagle3={longer}"]).datasets
    assert "prompts of other lengths" in str(mixed.note)


def test_what_the_model_stands_in_for_is_kept() -> None:
    assert import_files([str(VLLM)], stand_in="a small one").stand_in == "a small one"
    (row,) = import_files([str(VLLM)]).rows
    assert row.contaminated is None
    assert row.contaminated_reason


def test_the_arm_is_named_by_its_metadata_or_its_file(tmp_path: Path) -> None:
    nameless = vllm(tmp_path, "plain-8.json", method=None)
    assert import_files([str(VLLM)]).arms[0].name == "eagle3"
    assert import_files([str(nameless)]).arms[0].name == "plain-8"


def test_failed_requests_are_counted_and_left_out(tmp_path: Path) -> None:
    errors = ["", "Traceback\nConnectionResetError: gone"] + [""] * 22
    path = vllm(tmp_path, errors=errors, completed=23, failed=1)
    row = import_files([str(path)]).rows[0]
    assert (row.state, row.requests, row.errors) == ("partial", 23, 1)
    assert row.error_kinds == {"ConnectionResetError: gone": 1}
    assert "1" not in row.samples.prompt


def test_several_runs_appended_to_one_file_are_repeats(tmp_path: Path) -> None:
    line = json.dumps(json.loads(VLLM.read_text()))
    path = tmp_path / "runs.json"
    path.write_text(f"{line}\n{line}\n{line}\n")
    assert [row.repeat for row in import_files([f"eagle3={path}"]).rows] == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"max_concurrency": "x"}, "without --max-concurrency", id="no-load"),
        pytest.param({"duration": "long"}, "duration is 'long', not a number", id="no-number"),
        pytest.param({"output_lens": [1, 2]}, "output_lens is not a list of 24", id="cut-list"),
        pytest.param({"spec_decode_accepted_tokens": 900}, "900 tokens accepted", id="impossible"),
        pytest.param(
            {"spec_decode_per_position_acceptance_rates": [79.9]}, "outside 0..1", id="percent"
        ),
        pytest.param({"output_throughput": float("nan")}, "not a number", id="nan"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line_with_its_name(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    path = vllm(tmp_path, **changes)
    with pytest.raises(UsageError, match="run.json") as caught:
        import_files([str(path)])
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "is empty", id="empty"),
        pytest.param("{", "is not JSON", id="cut"),
        pytest.param("{}", "of no tool that is known", id="other"),
        pytest.param('{"schema": "specctl.bench/v1"}', "already", id="ours"),
        pytest.param('{"metadata": {"guidellm_version": "1"}}', "no benchmarks", id="guidellm"),
    ],
)
def test_files_of_another_form_are_usage_errors(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        import_files([str(path)])


def test_a_missing_file_and_an_unknown_baseline_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        import_files([str(tmp_path / "none.json")])
    with pytest.raises(UsageError, match="no arm plain"):
        import_files([str(VLLM)], baseline="plain")
