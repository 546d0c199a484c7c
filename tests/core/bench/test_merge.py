from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from speccli.core.bench.compare import compare
from speccli.core.bench.form import write
from speccli.core.bench.merge import read_all
from speccli.core.bench.results import Result, Samples
from speccli.core.errors import UsageError
from speccli.core.values import Number
from tests.support.benches import PLAIN, Noise, Planted, bench

QUIET = Noise(run=0.005, prompt=0.03)


def files(tmp_path: Path, *results: Result) -> list[Path]:
    paths = [tmp_path / f"{i}.json" for i in range(len(results))]
    for path, result in zip(paths, results, strict=True):
        write(path, result)
    return paths


def one(**options: Any) -> Result:
    planted = Planted("eagle3", {8: 1.5})
    return bench([PLAIN, planted], batches=(8,), prompts=30, noise=QUIET, **options)


def only(result: Result, arm: str) -> Result:
    return replace(
        result,
        arms=tuple(a for a in result.arms if a.name == arm),
        rows=tuple(r for r in result.rows if r.arm == arm),
    )


def test_arms_of_two_files_are_compared_and_it_is_said_that_they_were_apart(
    tmp_path: Path,
) -> None:
    whole = one()
    merged = read_all(files(tmp_path, only(whole, "none"), only(whole, "eagle3")))
    found = compare(merged)
    assert found.cells[0].verdict.word == "PASS"
    assert any("several files" in note for note in found.notes)


def in_turns(result: Result) -> Result:
    order = "interleaved, rotating arms"
    return replace(result, provenance=replace(result.provenance, order=order))


def test_files_whose_arms_took_turns_at_each_load_are_no_blocks(tmp_path: Path) -> None:
    """Other batches, or the same arms again: no comparison crosses from file to file."""
    planted = Planted("eagle3", {32: 1.2})
    more = bench([PLAIN, planted], batches=(32,), prompts=30, noise=QUIET)
    given = [in_turns(each) for each in (one(seed=1), more, one(seed=2))]
    merged = read_all(files(tmp_path, *given))
    assert str(merged.provenance.order).startswith("interleaved within each of several files")
    assert not any("not in turns" in note for note in compare(merged).notes)


def test_arms_of_two_versions_may_have_taken_turns_all_the_same(tmp_path: Path) -> None:
    def upgraded(result: Result) -> Result:
        arms = (
            replace(a, engine={"kind": "vllm", "version": v})
            for a, v in zip(result.arms, "12", strict=True)
        )
        return in_turns(replace(result, arms=tuple(arms)))

    merged = read_all(files(tmp_path, upgraded(one(seed=1)), upgraded(one(seed=2))))
    assert str(merged.provenance.order).startswith("interleaved within each of several files")


def test_what_two_files_differ_in_is_not_told_again_of_the_third(tmp_path: Path) -> None:
    few, many = (
        bench([PLAIN, Planted("eagle3", {8: 1.5})], batches=(8,), prompts=n) for n in (8, 30)
    )
    more = bench([PLAIN], batches=(8,), prompts=30, seed=5)
    merged = read_all(files(tmp_path, *map(in_turns, (many, few, more))))
    assert str(merged.provenance.order).startswith("blocks: several files")
    assert str(merged.provenance.order).count("requests a row") == 1


def test_a_further_arm_of_another_file_was_not_in_turns(tmp_path: Path) -> None:
    whole = in_turns(one())
    merged = read_all(files(tmp_path, whole, only(in_turns(one(seed=2)), "none")))
    assert any("not in turns" in note for note in compare(merged).notes)


def test_the_same_loads_again_are_further_repeats(tmp_path: Path) -> None:
    merged = read_all(files(tmp_path, one(seed=1), one(seed=2)))
    assert compare(merged).cells[0].repeats == 6
    assert len(merged.rows) == 12


def test_a_single_file_stays_as_it_is(tmp_path: Path) -> None:
    result = one()
    assert read_all(files(tmp_path, result)) == result


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"simulated": False}, "is not simulated", id="simulated"),
        pytest.param({"dataset": "other"}, "dataset sharegpt is not the one", id="prompts"),
        pytest.param({"model": "another"}, "model of arm none is 'another'", id="arm"),
        pytest.param({"kind": "open"}, "is an open loop", id="load"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    other = one()
    if "simulated" in change:
        other = replace(other, simulated=False)
    if "dataset" in change:
        other = replace(other, datasets=(replace(other.datasets[0], sha256="00"),))
    if "model" in change:
        other = replace(other, arms=tuple(replace(a, model="another") for a in other.arms))
    if "kind" in change:
        other = replace(other, load=replace(other.load, kind="open"))
    with pytest.raises(UsageError, match="1.json") as caught:
        read_all(files(tmp_path, one(), other))
    assert words in caught.value.message


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_all([tmp_path / "none.json"])


def test_a_file_given_twice_is_no_further_repeat(tmp_path: Path) -> None:
    path, copy = files(tmp_path, one(), one())
    with pytest.raises(UsageError, match="given twice"):
        read_all([path, path])
    with pytest.raises(UsageError, match=r"1\.json: none, batch 8, sharegpt, repeat 1 is in the"):
        read_all([path, copy])


def test_rows_of_one_file_stay_paired_with_each_other(tmp_path: Path) -> None:
    first, second = one(seed=1), one(seed=2)
    lacking = replace(
        first, rows=tuple(r for r in first.rows if (r.arm, r.repeat) != ("eagle3", 2))
    )
    merged = read_all(files(tmp_path, lacking, second))
    theirs = {row.key: row for row in merged.rows if row.samples in _samples(second)}
    assert {(arm, repeat) for arm, *_, repeat in theirs} == {
        (arm, repeat) for arm in ("none", "eagle3") for repeat in (3, 4, 5)
    }
    assert compare(merged).cells[0].repeats == 5


def _samples(result: Result) -> list[Samples]:
    return [row.samples for row in result.rows]


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("load", {"window": "whole"}),
        ("load", {"endpoint": "completions"}),
        ("load", {"max_tokens": 7}),
        ("load", {"output_tokens": 7}),
        ("provenance", {"temperature": 0.7}),
        ("provenance", {"top_p": 0.9}),
        (None, {"stand_in": "a small model for the large one"}),
    ],
)
def test_files_that_were_asked_for_different_things_are_refused(
    tmp_path: Path, part: str | None, change: dict[str, Any]
) -> None:
    other = one(seed=2)
    if part is None:
        other = replace(other, **change)
    else:
        other = replace(other, **{part: replace(getattr(other, part), **change)})
    with pytest.raises(UsageError, match=rf"1\.json: {next(iter(change))} is "):
        read_all(files(tmp_path, one(), other))


def test_another_gpu_or_engine_is_noted(tmp_path: Path) -> None:
    first, other = one(), one(seed=2)
    newer = replace(
        other,
        provenance=replace(other.provenance, gpu={"name": "NVIDIA L4"}),
        arms=tuple(replace(a, engine={"kind": "vllm", "version": "9.9"}) for a in other.arms),
        load=replace(other.load, requests=7),
    )
    merged = read_all(files(tmp_path, first, newer))
    assert (merged.provenance.gpu, merged.provenance.gpu_reason) == (
        None,
        "the files are of several GPUs",
    )
    notes = " ".join(compare(merged).notes)
    assert "and NVIDIA L4" in notes
    assert "vllm 9.9" in notes
    assert "and 7" in notes


def unhashed(result: Result, tokens: float) -> Result:
    mean = Number.known(tokens)
    datasets = tuple(replace(d, sha256=None, prompt_tokens_mean=mean) for d in result.datasets)
    return replace(result, datasets=datasets)


def test_prompts_without_a_hash_are_noted_and_refused_where_they_are_longer(
    tmp_path: Path,
) -> None:
    first, other = unhashed(one(), 100.0), unhashed(one(seed=2), 110.0)
    notes = " ".join(compare(read_all(files(tmp_path, first, other))).notes)
    assert "prompts of sharegpt not known to be the same" in notes
    with pytest.raises(UsageError, match="have 400 tokens on average"):
        read_all(files(tmp_path, first, unhashed(other, 400.0)))


def test_requests_and_warm_up_keep_to_their_loads(tmp_path: Path) -> None:
    first = one()
    many = replace(first.load, batches=(8, 64), requests=64, requests_by_load=(64, 512), warmup=8)
    few = replace(first.load, batches=(1,), requests=20, warmup=2)
    other = replace(one(seed=2), load=few)
    merged = read_all(files(tmp_path, replace(first, load=many), other)).load
    assert merged.batches == (1, 8, 64)
    assert [merged.requests_of(batch, None) for batch in merged.batches] == [20, 64, 512]
    assert [merged.warmup_of(batch, None) for batch in merged.batches] == [2, 8, 8]


@pytest.mark.parametrize("part", ["requests", "duration_s"])
@pytest.mark.parametrize(("said", "read"), [("NaN", "nan"), ("9" * 401, "inf")])
def test_what_is_no_number_is_named_with_its_place(
    tmp_path: Path, part: str, said: str, read: str
) -> None:
    (path,) = files(tmp_path, one())
    text = re.sub(rf'"{part}": [\d.]+', f'"{part}": {said}', path.read_text(), count=1)
    path.write_text(text)
    with pytest.raises(UsageError, match=f"{part} is {read}; it must be a"):
        read_all([path])


def test_a_baseline_of_another_file_is_in_a_comparison_and_not_left_over() -> None:
    whole = bench([PLAIN, Planted("a", {8: 1.5}), Planted("b", {8: 1.4})], batches=(8,), prompts=5)
    apart = tuple(
        row for row in whole.rows if row.arm == "none" or (row.repeat == 0) == (row.arm == "a")
    )
    assert compare(replace(whole, rows=apart)).excluded == ()
    alone = tuple(row for row in apart if row.arm != "none" or row.repeat == 0)
    left = compare(replace(whole, rows=alone)).excluded
    assert {each.label for each in left} == {
        r.label for r in whole.rows if r.arm == "b" and r.repeat
    }


def test_the_ks_of_one_draft_stand_in_order_whichever_file_they_are_of(tmp_path: Path) -> None:
    def of(*ks: int) -> Result:
        arms = [Planted(f"k{k}", {8: 1.5}, k=k) for k in ks]
        made = bench([PLAIN, *arms], batches=(8,), prompts=20, seed=ks[0])
        return replace(
            made, arms=tuple(replace(a, draft="head" if a.k else None) for a in made.arms)
        )

    merged = read_all(files(tmp_path, of(1, 5), of(3, 2)))
    assert [arm.name for arm in merged.arms] == ["none", "k1", "k2", "k3", "k5"]
