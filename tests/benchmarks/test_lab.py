"""The lab's lines are what was meant, and its phases say what they did."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from driver import main as lab
from driver import measure, phases, servers, up
from driver.groups import GROUPS, Bench, Group
from driver.places import Places
from stand_in import shapes

ROOT = Path(__file__).parents[2]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "work", tmp_path / "out", 600)


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS.keys())
def test_benches_ask_arms_that_are_there_as_often_as_they_have_loads(group: Group) -> None:
    names = {arm.name for arm in group.arms}
    assert len(names) == len(group.arms)
    for bench in group.benches:
        assert set(bench.arms) <= names
        assert len(bench.batches.split(",")) == len(bench.requests.split(","))


def test_a_servers_line_has_its_draft_and_its_share_of_the_gpu(places: Places) -> None:
    group = GROUPS["8b"]
    arm = next(arm for arm in group.arms if arm.name == "p-eagle")
    line = servers.command(places, group, arm, 9000)
    told = json.loads(line[line.index("--speculative-config") + 1])
    assert told["method"] == "eagle3"
    assert told["parallel_drafting"] is True
    assert told["model"].endswith("8b-bf16/p-eagle")
    assert line[line.index("--kv-cache-memory-bytes") + 1] == str(6 << 30)
    assert "--load-format" in line


def test_a_schedule_that_was_measured_is_what_the_server_gets(places: Places) -> None:
    group = GROUPS["8b-graphs"]
    arm = next(arm for arm in group.arms if arm.schedule)
    guessed = servers.speculation(places, group, arm)
    rows = [[1, 20, 7], [21, 128, 2]]
    file = places.work / "results" / "schedule.json"
    file.parent.mkdir(parents=True)
    config = {"num_speculative_tokens": 7, "num_speculative_tokens_per_batch_size": rows}
    file.write_text(json.dumps({"speculative_config": config}))
    told = servers.speculation(places, group, arm)
    assert guessed is not None
    assert told is not None
    assert told["num_speculative_tokens_per_batch_size"] == rows
    assert told["num_speculative_tokens"] == 7
    assert guessed["num_speculative_tokens_per_batch_size"][0][0] == 1
    assert guessed["num_speculative_tokens"] == arm.k
    file.write_text(json.dumps({"speculative_config": {"num_speculative_tokens": 4}}))
    assert servers.schedule(places, group, 5) == [[1, group.max_num_seqs, 4]]


def test_a_sweep_in_two_groups_gives_one_schedule(places: Places) -> None:
    whole = json.loads((ROOT / "docs/evidence/bench-cpu-135m-k.json").read_text())
    names = [arm["name"] for arm in whole["arms"] if arm["name"] != "baseline"]
    (places.work / "results").mkdir(parents=True)
    for file, own in (("8b-k-sweep", names[:2]), ("8b-k2-sweep", names[2:])):
        half = dict(whole)
        for part, key in (("arms", "name"), ("rows", "arm")):
            half[part] = [dict(each) for each in whole[part] if each[key] in ("baseline", *own)]
        for row in half["rows"] if own == names[2:] else ():
            row["duration_s"] += 0.001  # of a baseline of its own
        (places.work / "results" / f"{file}.json").write_text(json.dumps(half))
    assert phases.schedule(places) == 0
    told = json.loads((places.work / "results/schedule.json").read_text())
    asked = {arm["k"] for arm in whole["arms"] if arm.get("k")}
    assert {int(k) for k in told["measured"][0]["output_tokens_per_s"]} == {0, *asked}


def test_only_a_schedule_is_served_on_the_first_runner() -> None:
    group = GROUPS["8b-graphs"]
    first = [
        arm.name
        for arm in group.arms
        if "VLLM_USE_V2_MODEL_RUNNER" in servers.environment(group, arm)
    ]
    assert first == ["scheduled"]


def test_a_bench_asks_the_arms_it_names_and_says_what_it_stands_in_for(places: Places) -> None:
    group = GROUPS["70b"]
    bench = next(bench for bench in group.benches if bench.name == "int4")
    line = measure.line(places, group, bench)
    arms = [line[i + 1] for i, word in enumerate(line) if word == "--arm"]
    assert arms == [f"baseline=http://127.0.0.1:{up.PORT + 1}"]
    words = line[line.index("--stand-in") + 1]
    assert "70B" in words
    assert "INT4" in words
    assert "FP8" not in words
    assert "--resume" not in line


def test_what_was_begun_is_gone_on_with(places: Places) -> None:
    group = GROUPS["8b"]
    file = measure.result(places, group, group.benches[0])
    file.parent.mkdir(parents=True)
    file.write_text('{"complete": false}')
    assert "--resume" in measure.line(places, group, group.benches[0])


def test_a_bench_without_time_is_left_for_the_next_call(places: Places) -> None:
    assert measure.measure(replace(places, budget_s=0), GROUPS["8b"]) == 1


def test_a_rehearsal_is_the_same_in_small() -> None:
    small = measure.rehearsed(Bench("x", 1))
    assert (small.batches, small.requests, small.max_tokens) == ("1,3", "2,4", 16)


def test_an_unknown_group_is_said_with_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.main(["serve", "9b", "--work", str(tmp_path)]) == 64
    assert "8b-graphs" in capsys.readouterr().err


def test_a_server_over_two_gpus_is_split_and_keeps_off_multicast(places: Places) -> None:
    group = GROUPS["70b-tp2"]
    line = servers.command(places, group, group.arms[0], 8101)
    assert line[line.index("--tensor-parallel-size") + 1] == "2"
    assert json.loads(line[line.index("--compilation-config") + 1]) == {
        "pass_config": {"fuse_allreduce_rms": False}
    }
    asked = measure.line(places, group, group.benches[0])
    assert asked[asked.index("--gpus-per-engine") + 1] == "2"
    one = GROUPS["70b"]
    assert "--tensor-parallel-size" not in servers.command(places, one, one.arms[0], 8101)


@pytest.mark.parametrize(
    ("shape", "billions"), [("8b", 8.03), ("32b", 32.8), ("70b", 70.6), ("1b", 1.14)]
)
def test_shapes_have_the_parameters_of_what_they_stand_for(shape: str, billions: float) -> None:
    assert shapes.SHAPES[shape].params / 1e9 == pytest.approx(billions, rel=0.03)


@pytest.mark.parametrize("shape", ["8b", "32b", "70b", "1b", "tiny"])
def test_norms_are_scaled_by_a_power_of_two(shape: str) -> None:
    config = json.loads((ROOT / "tests/data/smollm2-135m-eagle3/config.json").read_text())
    at = shapes.place(config | {"num_hidden_layers": 30}, shapes.SHAPES[shape])
    mean_square = at.small * (1 + at.copy**2) / at.shape.hidden
    assert mean_square == pytest.approx(at.norm**2)
    assert len(set(at.layers)) == 30
    assert at.norm in (1.0, 0.5, 0.25)


def test_a_shape_that_is_too_small_is_refused() -> None:
    config = json.loads((ROOT / "tests/data/smollm2-135m-eagle3/config.json").read_text())
    with pytest.raises(shapes.Unfit, match="layers 32"):
        shapes.place(config | {"num_hidden_layers": 40}, shapes.SHAPES["8b"])


@pytest.mark.parametrize(
    ("most", "last"), [(128, [65, 128, 1]), (48, [17, 48, 3]), (16, [1, 16, 5])]
)
def test_a_schedule_not_measured_yet_ends_at_the_engines_largest_batch(
    places: Places, most: int, last: list[int]
) -> None:
    group = replace(GROUPS["8b-graphs"], max_num_seqs=most)
    guess = servers.schedule(places, group, 5)
    assert guess[0][0] == 1
    assert guess[-1] == last
    assert all(first <= end for first, end, _ in guess)
