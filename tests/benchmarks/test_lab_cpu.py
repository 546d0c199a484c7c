"""The lab without a GPU: its servers, its prompts, and when a recorded shift was told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import delay
import pytest
import shifts

from driver import main as lab
from driver import measure, phases, servers
from driver.groups import GROUPS, Group, Traffic
from driver.places import Places
from speccli.core.errors import UsageError


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("LAB_DATA", str(tmp_path / "data"))
    return Places(tmp_path / "work", tmp_path / "out", 600)


@pytest.mark.parametrize("name", ["cpu", "cpu-float32", "cpu-mixture"])
def test_servers_without_a_gpu_are_asked_for_nothing_of_one(places: Places, name: str) -> None:
    group = GROUPS[name]
    for arm in group.arms:
        line = servers.command(places, group, arm, 9000)
        assert not [word for word in line if word.startswith(("--gpu", "--kv-cache-memory"))]
        assert "--enforce-eager" in line
        drafts = "--speculative-config" in line
        assert drafts == ("--per-request-spec-decode-metrics" in line), "vLLM wants both"
        assert ("float32" in line) == (name == "cpu-float32")
    for bench in group.benches:
        assert "--nvml" not in measure.line(places, group, bench)


def test_where_there_is_room_for_one_its_bench_ends_before_the_next(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def does(_: Places, group: Group, only: str | None) -> int:
        asked.append([arm.name for arm in group.arms])
        assert only == group.benches[0].name
        return 1 if len(asked) == 2 else 0

    monkeypatch.setattr(lab, "_do", does)
    assert lab._do_all(places, GROUPS["cpu-mixture"], None) == 1
    assert asked == [["dense"], ["spread-0"]], "the second's server is up still"


def test_stretches_of_the_same_set_ask_different_prompts(places: Places) -> None:
    places.data.mkdir()
    (places.data / "sharegpt.jsonl").write_text("".join(f"{n}\n" for n in range(1000)))
    parts = [phases._part(places, Traffic("x", "sharegpt.jsonl", part=n)) for n in range(3)]
    read = [set(Path(part).read_text().split()) for part in parts]
    assert [len(each) for each in read] == [phases.PART] * 3
    assert not read[0] & read[1]
    assert not read[1] & read[2]


def test_shifts_are_the_same_each_time_and_no_prompt_is_twice(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        assert shifts.main([str(tmp_path / folder)]) == 0
    for name in ("german", "chinese", "translate", "logs"):
        one, other = (tmp_path / folder / f"{name}.jsonl" for folder in ("one", "other"))
        assert one.read_bytes() == other.read_bytes()
        prompts = [json.loads(line)["prompt"] for line in one.read_text().splitlines()]
        assert len(set(prompts)) == len(prompts) == shifts.COUNT


def recorded(results: Path, phases_: list[tuple[str, str, float]]) -> None:
    """A recording of 10 drafts of 3 tokens a second, 60 s a phase."""
    results.mkdir()
    told, lines, drafts, accepted = [], [], 0.0, 0.0
    at = 1_795_975_200.0
    for name, dataset, rate in phases_:
        told.append({"phase": name, "dataset": dataset, "began": at, "ended": at + 60})
        for _ in range(61):
            counts = {"drafts": drafts, "draft_tokens": 3 * drafts, "accepted_tokens": accepted}
            body = "".join(
                f'vllm:spec_decode_num_{key}_total{{engine="0"}} {value}\n'
                for key, value in counts.items()
            )
            lines.append({"at": at, "target": "t", "status": 200, "body": body})
            at, drafts, accepted = at + 1, drafts + 10, accepted + 30 * rate
    with gzip.open(results / "cpu-drift.jsonl.gz", "wt") as file:
        header = {"schema": "specctl.recording/v1", "interval_s": 1.0, "source": "scrape"}
        file.write("".join(json.dumps(each) + "\n" for each in [header, *lines]))
    (results / "cpu-drift.json").write_text(json.dumps({"phases": told}))


def test_a_shift_is_cut_out_with_what_was_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path / "r", [("base", "s", 0.5), ("known", "s", 0.5), ("shift", "x", 0.2)])
    first = 1_795_975_200.0 + 122

    def says(_: Path, *words: str) -> str:
        if words[0] == "baseline":
            assert words[2].endswith("cpu-drift-base.json")
            return ""
        lines = delay.recorded(Path(words[3]))[1]
        begins.add(lines[0].at)
        found = {"code": "ACCEPTANCE_DRIFT", "evidence": "e", "cause": "c"}
        late = lines[-1].at - first
        severity = "critical" if late >= 20 else "info" if late >= 8 else None
        return json.dumps({"findings": [found | {"severity": severity}] if severity else []})

    begins: set[float] = set()
    monkeypatch.setattr(delay, "specctl", says)
    told = delay.judged(tmp_path / "r", "cpu")
    assert begins == {first - 61}, "the shift has the known stretch before it"
    known, shift = told["phases"]
    assert (known["seen"], known["fired"]) == (None, None)
    assert (known["drafts"], known["accepted"]) == (600, 900)
    assert (shift["drafts"], shift["accepted"]) == (600, 360)
    assert (shift["seen"]["severity"], shift["seen"]["after_s"]) == ("info", 8)
    assert (shift["fired"]["severity"], shift["fired"]["after_s"]) == ("critical", 20)
    assert shift["fired"]["after_drafts"] == 200


def test_a_recording_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cpu-drift"):
        delay.judged(tmp_path, "cpu")
