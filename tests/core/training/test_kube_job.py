"""The Job: what the API servers' schemas take, and what its script does when it is run."""

import base64
import gzip
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubernetes.utils.quantity import parse_quantity

from speccli.core.errors import SpecctlError, UsageError
from speccli.core.training.job import Wanted, prepare
from speccli.core.training.kube_job import Request, apply, objects, objects_for
from speccli.core.training.lock import alone

kubernetes_validate = pytest.importorskip("kubernetes_validate")


def _wanted(folder: Path, prompts: int = 40) -> Wanted:
    rows = [{"id": str(i), "prompt": f"question {i}"} for i in range(prompts)]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Wanted("t", folder / "head-one", data=(str(folder / "q.jsonl"),), steps=5)


def _made(folder: Path, **more: Any) -> list[dict[str, Any]]:
    wanted = _wanted(folder)
    return objects(Request.of(wanted, "vllm:x", "ml", **more), prepare(wanted))


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_every_object_is_valid(tmp_path: Path, version: str) -> None:
    made = _made(tmp_path, models_claim="models", storage_class="fast")
    assert [each["kind"] for each in made] == [
        "PersistentVolumeClaim",
        "ConfigMap",
        "ConfigMap",
        "Job",
    ]
    for each in made:
        kubernetes_validate.validate(each, version, strict=True)
        assert each["metadata"]["namespace"] == "ml"


def test_the_prompts_travel_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speccli.core.training.kube_job._PART", 100)
    made = _made(tmp_path)
    parts = [each for each in made if "-prompts-" in each["metadata"]["name"]]
    assert len(parts) > 1
    packed = b"".join(
        base64.b64decode(data) for part in parts for data in part["binaryData"].values()
    )
    sent = gzip.decompress(packed)
    assert sent == (tmp_path / "head-one" / "work" / "prompts.jsonl").read_bytes()


def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str) -> Any:
    """The container's command, where what it mounts is folders of ours."""
    monkeypatch.setattr("speccli.core.training.kube_job._CODE", str(tmp_path / "job"))
    monkeypatch.setattr("speccli.core.training.kube_job._PROMPTS", str(tmp_path / "prompts"))
    monkeypatch.setattr("speccli.core.training.kube_job._OUT", str(tmp_path / "out"))
    *config, job = _made(tmp_path)
    for folder, kind in (("job", "-code"), ("prompts", "-prompts-")):
        (tmp_path / folder).mkdir()
        for each in config:
            if kind in each["metadata"]["name"]:
                for name, data in each.get("binaryData", {}).items():
                    (tmp_path / folder / name).write_bytes(base64.b64decode(data))
                for name, text in each.get("data", {}).items():
                    (tmp_path / folder / name).write_text(text)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "python3").write_text(f"#!/bin/sh\n{python}")
    (bin_ / "python3").chmod(0o755)
    container = job["spec"]["template"]["spec"]["containers"][0]
    return subprocess.run(
        container["command"],
        env={"HOME": str(tmp_path / "home"), "PATH": f"{bin_}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )


def test_the_script_runs_the_stages_on_what_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = _run(tmp_path, monkeypatch, f'exec {sys.executable} "$@"')
    # The first stage finds no transformers here: the script must end with its failure.
    last = json.loads(ran.stdout.splitlines()[-1])
    assert (ran.returncode, last["event"], last["stage"]) == (1, "failed", "prompts")
    text = (tmp_path / "out" / "work" / "prompts.jsonl").read_text()
    rows = map(json.loads, text.splitlines())
    assert Counter(row.get("test") for row in rows) == {None: 32, "q": 8}


def test_every_stage_is_told_what_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "asked"
    stub = f'test "$2" = draft_training || exec {sys.executable} "$@"\nshift 2; echo "$@" >> {log}'
    assert _run(tmp_path, monkeypatch, stub).returncode == 0
    stages = ["prompts", "answers", "train", "export"]
    asked = [line.split() for line in log.read_text().splitlines()]
    assert [[words[0], *words[2:]] for words in asked] == [stages[at:] for at in range(4)]


@pytest.mark.parametrize(
    ("out", "image", "words"), [("head-one", None, "needs an image"), ("9", "i", "no name")]
)
def test_what_makes_no_job_is_refused(
    tmp_path: Path, out: str, image: str | None, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        Request.of(Wanted("t", tmp_path / out), image, None)


class Plane:
    """A cluster with a Job in some state."""

    namespace = "ml"

    def __init__(self, job: dict[str, Any] | None) -> None:
        self.job, self.applied = job, list[str]()

    def get(self, *what: str) -> dict[str, Any] | None:
        return self.job

    def delete(self, *what: str) -> bool:
        self.job = None
        return True

    def apply(self, each: dict[str, Any]) -> dict[str, Any]:
        self.applied.append(each["kind"])
        return each


def _ended(kind: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": "True"}]}}


@pytest.mark.parametrize("job", [None, _ended("Complete"), _ended("Failed")])
def test_a_job_that_has_ended_makes_room(tmp_path: Path, job: dict[str, Any] | None) -> None:
    plane = Plane(job)
    assert apply(_made(tmp_path), plane) == "ml/head-one"  # type: ignore[arg-type]
    assert plane.job is None
    assert plane.applied[-1] == "Job"


def test_what_a_running_job_reads_is_not_changed_under_it(tmp_path: Path) -> None:
    plane = Plane({"status": {"active": 1}})
    with pytest.raises(UsageError, match="is running"):
        apply(_made(tmp_path), plane)  # type: ignore[arg-type]
    assert plane.applied == []


def test_the_deadline_leaves_room_for_the_minutes(tmp_path: Path) -> None:
    wanted = replace(_wanted(tmp_path), steps=None, minutes=600.0)
    request = Request.of(wanted, "i", "ml")
    assert request.deadline_s > 600 * 60 + 3600


def test_what_lies_on_this_machine_is_refused(tmp_path: Path) -> None:
    wanted = replace(_wanted(tmp_path), target=str(tmp_path))
    with pytest.raises(UsageError, match="pods have none"):
        Request.of(wanted, "i", "ml")
    with pytest.raises(UsageError, match="--init .* pods have none") as caught:
        Request.of(replace(_wanted(tmp_path), init=tmp_path), "i", "ml")
    assert "/models/… with --models-claim" in str(caught.value.hint)


@pytest.mark.parametrize(
    "changes", [{"init": Path("/models/heads/one")}, {"target": "/models/llama"}]
)
def test_what_lies_on_a_claim_needs_the_claim(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="lies on a claim, and none is named"):
        Request.of(replace(_wanted(tmp_path), **changes), "i", "ml")


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_a_head_on_the_claim_is_gone_on_from(tmp_path: Path, version: str) -> None:
    wanted = replace(_wanted(tmp_path), init=Path("/models/heads/one"))
    made = objects_for(Request.of(wanted, "vllm:x", "ml", models_claim="models"), wanted)
    for each in made:
        kubernetes_validate.validate(each, version, strict=True)
    code = next(each for each in made if each["metadata"]["name"].endswith("-code"))
    assert json.loads(code["data"]["job.json"])["init"] == "/models/heads/one"
    pod = made[-1]["spec"]["template"]["spec"]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in pod["containers"][0][
        "volumeMounts"
    ]
    claims = [
        v["persistentVolumeClaim"]["claimName"]
        for v in pod["volumes"]
        if "persistentVolumeClaim" in v
    ]
    assert claims == ["head-one", "models"]


@pytest.mark.parametrize(
    "storage",
    [
        "",
        "0",
        "-5Gi",
        "much",
        "50 Gi",
        "0Gi",
        "0.0Ti",
        "50K",
        "50ki",
        "50GB",
        "1.5.1Ti",
        ".",
        "Gi",
        "1e",
        "1Ee3",
        "inf",
        "NaN",
        "1_0",
        "٥Gi",
        "50Gi\n",
    ],
)
def test_a_claim_has_a_size(tmp_path: Path, storage: str) -> None:
    with pytest.raises(UsageError, match="no size"):
        Request.of(_wanted(tmp_path), "i", "ml", storage=storage)


@pytest.mark.parametrize(
    "storage",
    [
        "50Gi",
        "50k",
        "1.5Ti",
        "1Ei",
        "1E",
        "1P",
        "500M",
        "0.5Gi",
        ".5Gi",
        "5.",
        "1e12",
        "1E12",
        "53687091200",
        "007Gi",
        "1000m",
    ],
)
def test_a_size_is_whatever_kubernetes_takes_for_one(tmp_path: Path, storage: str) -> None:
    assert parse_quantity(storage) > 0
    assert Request.of(_wanted(tmp_path), "i", "ml", storage=storage).storage == storage


def test_a_job_is_not_made_of_a_folder_in_which_another_trains(tmp_path: Path) -> None:
    wanted = _wanted(tmp_path)
    with alone(wanted.out), pytest.raises(SpecctlError, match="is training in"):
        objects_for(Request.of(wanted, "i", "ml"), wanted)
