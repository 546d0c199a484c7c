import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from draft_training import events, job


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out-of-memory"),
        (ValueError("No available memory for the cache blocks."), "out-of-memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk-full"),
        (OSError("We couldn't connect to 'https://hub' to load the files"), "hub-unreachable"),
        (OSError("401 Client Error: gated repo"), "hub-denied"),
        (ModuleNotFoundError("No module named 'vllm'", name="vllm"), "not-installed"),
        (events.Failed("diverged", "the loss is nan", "lower lr"), "diverged"),
        (ZeroDivisionError("division by zero"), "failed"),
    ],
)
def test_a_failure_has_a_name_and_a_fix(error: Exception, kind: str) -> None:
    found = events.named(error)
    assert found.kind == kind
    assert found.fix


def _stage(
    tmp_path: Path, stage: str, text: str, *later: str
) -> tuple[int, list[dict[str, object]], str]:
    file = tmp_path / "job.json"
    file.write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "draft_training", stage, str(file), *later],
        capture_output=True,
        text=True,
    )
    return ran.returncode, [json.loads(line) for line in ran.stdout.splitlines()], ran.stderr


def test_a_stage_without_what_it_needs_fails_by_name_on_stdout(tmp_path: Path) -> None:
    text = json.dumps({"target": "t", "out": str(tmp_path), "training": {"steps": 1}})
    code, told, log = _stage(tmp_path, "prompts", text)
    assert code == 1
    assert told[-1]["event"] == "failed"
    assert told[-1]["kind"] in {"not-installed", "no-prompts"}
    assert "Traceback" in log


@pytest.mark.parametrize(
    ("version", "seen"), [(None, "no speculators in"), ("0.8.1", "speculators 0.8.1 in")]
)
def test_what_a_later_stage_lacks_is_said_before_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, seen: str
) -> None:
    site = tmp_path / "site"
    for name in ("transformers", "vllm", "torch", *(["speculators"] if version else [])):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text("raise SystemError('nothing is imported')")
    if version:
        (site / "speculators-1.dist-info").mkdir()
        told_version = f"Metadata-Version: 2.1\nName: speculators\nVersion: {version}\n"
        (site / "speculators-1.dist-info" / "METADATA").write_text(told_version)
    monkeypatch.setenv("PYTHONPATH", str(site))
    text = json.dumps({"target": "t", "out": str(tmp_path), "training": {"steps": 1}})
    code, told, _ = _stage(tmp_path, "prompts", text, "answers", "train")
    assert (code, told[-1]["kind"]) == (1, "not-installed")
    assert seen in str(told[-1]["message"])
    assert "stage train needs it" in str(told[-1]["message"])
    assert "speculators>=0.9" in str(told[-1]["fix"])
    assert "SystemError" in str(_stage(tmp_path, "prompts", text, "answers")[1][-1]["message"])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (
            '{"target": "t", "out": "o", "training": {"steps": 1}, "answers": {"seconds": 0}}',
            "answers.seconds is 0: a number above 0",
        ),
        ("{", "Expecting"),
        ('{"out": "o", "training": {"steps": 1}}', "target"),
        ('{"target": "t", "out": "o", "training": {}}', "minutes or steps"),
        ('{"target": "t", "out": "o", "training": {"steps": 1}, "lr": 1}', "'lr'"),
        ('{"target": "t", "out": "o", "training": {"steps": 1, "rl": 1}}', "rl"),
        ('{"target": "t", "out": "o", "method": "medusa", "training": {"steps": 1}}', "medusa"),
    ],
)
def test_what_is_no_job_is_said_to_be_none(tmp_path: Path, text: str, word: str) -> None:
    code, told, _ = _stage(tmp_path, "export", text)
    assert code == 1
    assert told[-1]["kind"] == "bad-job"
    assert word in str(told[-1]["message"])


def test_an_unknown_stage_is_a_usage_error(tmp_path: Path) -> None:
    assert _stage(tmp_path, "bake", "{}")[0] == 64


def test_a_job_survives_json(tmp_path: Path) -> None:
    made = job.Job("t", tmp_path, init=tmp_path, training=job.Training(steps=3))
    assert job.from_dict(json.loads(json.dumps(job.to_dict(made)))) == made
