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

from speccli.core.errors import UsageError
from speccli.core.training.job import Wanted, prepare
from speccli.core.training.kube_job import Request, apply, objects

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


def test_the_script_runs_the_stages_on_what_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    (bin_ / "python3").symlink_to(sys.executable)
    container = job["spec"]["template"]["spec"]["containers"][0]
    ran = subprocess.run(
        container["command"],
        env={"HOME": str(tmp_path / "home"), "PATH": f"{bin_}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    # The first stage finds no transformers here: the script must end with its failure.
    last = json.loads(ran.stdout.splitlines()[-1])
    assert (ran.returncode, last["event"], last["stage"]) == (1, "failed", "prompts")
    text = (tmp_path / "out" / "work" / "prompts.jsonl").read_text()
    rows = map(json.loads, text.splitlines())
    assert Counter(row.get("test") for row in rows) == {None: 32, "q": 8}


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
    with pytest.raises(UsageError, match="--init"):
        Request.of(replace(_wanted(tmp_path), init=tmp_path), "i", "ml")
