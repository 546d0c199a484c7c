"""Settings that cannot work: one line, and nothing written; those at the edge are taken."""

import json
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from draft_training import bounds
from draft_training import job as stage_job
from speccli.core.bench.progress import Progress
from speccli.core.errors import UsageError
from speccli.core.training import flow, job
from speccli.core.training.job import Wanted
from speccli.main import app


def _wanted(folder: Path, *changes: str, **more: object) -> Wanted:
    rows = [{"id": str(i), "prompt": f"question {i}"} for i in range(40)]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    length: dict[str, object] = {} if "minutes" in more else {"steps": 5}
    data = (str(folder / "q.jsonl"),)
    return Wanted("t", folder / "out", data=data, changes=changes, **{**length, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["0", "-1", ".nan", "inf", "1e99", "two", "", "true", "[1]"])
@pytest.mark.parametrize(
    "name",
    [f"answers.{name}" for name in bounds.ANSWERS]
    + [f"training.{name}" for name in bounds.TRAINING]
    + ["seed"],
)
def test_what_cannot_be_is_refused_by_its_name(tmp_path: Path, name: str, value: str) -> None:
    """Zero is taken where it means none of it; None where that is the default."""
    section, _, short = name.rpartition(".")
    if value == "" and short in {"seconds", "at_once", "minutes"}:
        return
    if value == "0" and short in {
        "samples", "decay", "head_lr", "warmup", "weight_decay", "validation", "mask_token", "seed",
    }:  # fmt: skip
        assert job.checked(_wanted(tmp_path, f"{name}={value}"))
        return
    with pytest.raises(UsageError, match=f"{short}|how long"):
        flow.train(
            _wanted(tmp_path, f"{name}={value}"), Path(sys.executable), None, print, Progress()
        )
    assert not (tmp_path / "out").exists()


def test_every_number_has_bounds_and_every_default_is_within_them() -> None:
    for kind, known in ((stage_job.Answers, bounds.ANSWERS), (stage_job.Training, bounds.TRAINING)):
        numbers = {f.name for f in fields(kind) if f.type != "bool"}
        assert numbers == set(known)
    bounds.check(stage_job.Job("t", Path("o")))


@pytest.mark.parametrize(
    "changes",
    [
        ("answers.greedy=false", "answers.samples=0"),
        ("answers.eager=1",),
        ("aux_layers=[0, 2, 5]",),
        ("aux_layers=[2, 2, 5]",),
        ("aux_layers=5",),
        ("out=/tmp/elsewhere",),
        ("answers=3",),
        ("training.minutes=2",),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, changes: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        job.prepare(_wanted(tmp_path, *changes))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("minutes", [0.0, -3.0, float("nan"), float("inf"), 1e7, 7 * 1440 + 1.0])
def test_minutes_are_at_most_a_week(tmp_path: Path, minutes: float) -> None:
    with pytest.raises(UsageError, match=r"--minutes .*at most 10,080"):
        job.checked(_wanted(tmp_path, minutes=minutes))
    assert job.checked(_wanted(tmp_path, minutes=7 * 1440.0))


def test_whole_numbers_may_be_written_as_powers_of_ten(tmp_path: Path) -> None:
    made = job.prepare(_wanted(tmp_path, "training.batch_tokens=2e3"))
    assert stage_job.read(made.file).training.batch_tokens == 2000


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["--steps", "5", "--set", "answers.seconds=0"], "--set answers.seconds=0: wants a number"),
        (["--minutes", "nan"], "nan is not a finite number"),
        (["--minutes", "99999"], "--minutes 99999: wants a number above 0"),
        (["--steps", "5", "--seed", "-1"], "--seed -1: wants a whole number"),
        (
            ["--minutes", "2e4", "--to", "kubernetes", "--image", "i", "--dry-run"],
            "--minutes 20000: wants a number above 0",
        ),
    ],
)
def test_the_command_says_it_in_a_line_and_writes_nothing(
    tmp_path: Path, typed: list[str], words: str
) -> None:
    wanted = _wanted(tmp_path)
    ran = CliRunner().invoke(
        app,
        ["draft", "train", "org/t", "--out", str(wanted.out), "--data", wanted.data[0]]
        + ["--python", sys.executable, *typed],
    )
    assert (ran.exit_code, ran.stdout) == (64, "")
    assert words in ran.stderr
    assert len(ran.stderr.splitlines()) <= 2
    assert not wanted.out.exists()


_CLUSTER = {
    "--dry-run": (),
    "--image": ("x",),
    "--models-claim": ("c",),
    "--storage": ("9Gi",),
    "--namespace": ("n",),
    "--context": ("c",),
    "--kubeconfig": ("f",),
}


def _train(folder: Path, *options: str) -> tuple[int, str]:
    data = str(_wanted(folder).data[0])
    said = CliRunner().invoke(
        app, ["draft", "train", "t", "--out", str(folder / "out"), "--data", data, *options]
    )
    return said.exit_code, said.stderr


@pytest.mark.parametrize("backend", ["speculators", "specforge"])
@pytest.mark.parametrize("option", _CLUSTER)
def test_what_is_for_a_cluster_trains_nothing_here(
    tmp_path: Path, option: str, backend: str
) -> None:
    """A dry run that trains is the opposite of what was asked for."""
    code, said = _train(
        tmp_path, "--steps", "5", "--backend", backend, "--python", sys.executable,
        option, *_CLUSTER[option],
    )  # fmt: skip
    assert code == 64
    assert f"{option}: for --to kubernetes" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "how long to train?"),
        (("--steps", "5", "--minutes", "1"), "how long to train?"),
        (("--steps", "5", "--set", "answers.seconds=-5"), "answers.seconds=-5"),
        (("--steps", "5", "--test", "nowhere.jsonl"), "cannot read nowhere.jsonl"),
        (("--steps", "5", "--data-folder", "/nowhere", "--test", "sharegpt"), "--data-folder DIR"),
        (("--steps", "5", "--against", "x"), "--against 'x' is not NAME=DIR"),
    ],
)
def test_what_is_mistyped_is_said_before_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], told: str
) -> None:
    monkeypatch.setattr("speccli.core.training.options.find_vllm_python", lambda: None)
    code, said = _train(tmp_path, *options)
    assert code == 64
    assert told in said
    assert _train(tmp_path, "--steps", "5")[0] == 3
    assert not (tmp_path / "out").exists()
