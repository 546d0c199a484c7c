"""The stages of a job as processes of another Python: events in, progress out, resumable."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draft_training.job import from_dict, recipe
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.state import replace_whole
from speccli.core.training.job import Prepared
from speccli.core.training.package import package

_GRACE_S = 60.0
"""For a stage to keep what it has, once it was asked to stop."""
_USAGE = 64
_LOG_LINES = 8


@dataclass(frozen=True, slots=True)
class Told:
    """One event of a stage."""

    stage: str
    event: str
    facts: Mapping[str, Any]


class StageError(SpecctlError):
    """A stage failed; `kind` is the failure's name."""

    def __init__(self, stage: str, kind: str, message: str, fix: str, log: Path) -> None:
        super().__init__(f"{stage}: {message} ({kind})", hint=f"{fix}; its log is {log}")
        self.stage, self.kind = stage, kind


def program(python: Path) -> Path:
    """Where it is.

    Raises:
        UsageError: `python` is no program.
    """
    found = shutil.which(str(python))
    if found is None:
        raise UsageError(f"--python {python}: no such program")
    return Path(found)


def run(
    prepared: Prepared, python: Path, stages: Sequence[str], tell: Callable[[Told], None]
) -> dict[str, Any]:
    """Run the stages that are not done yet; what each of them said of itself.

    Raises:
        StageError: one failed, by the name of its failure.
        UsageError: `python` is no program.
    """
    found = program(python)
    kept = prepared.file.parent / "work" / "stages.json"
    done = _done(kept)
    with _package_alone() as place:
        for at, stage in enumerate(stages):
            if _finished(stage, done, prepared.document):
                tell(Told(stage, "kept", done[stage]))
                continue
            if stage in {"train", "export"} and done.pop(stage, None):
                _keep(kept, done)  # from here on its folder may hold something else
            later = [s for s in stages[at + 1 :] if not _finished(s, done, prepared.document)]
            facts = _stage(found, (stage, *later), prepared.file, place, tell)
            anew = stage == "answers" and not _same_answers(done.get(stage), facts)
            done[stage] = facts | {"asked": _asked(stage, prepared.document)}
            _keep(kept, done)
            if anew:
                (kept.parent / "checkpoint.pt").unlink(missing_ok=True)
    return done


def _same_answers(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> bool:
    """Whether only tests were answered since: a checkpoint is one of the answers that are there."""
    return before is not None and before.get("answers") == now.get("answers")


def _asked(stage: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """What of a job may change once a stage is done, and makes it be done again."""
    asked = {} if stage == "export" else {"tests": document.get("tests_sha256")}
    if stage == "prompts":  # which looks at the head to go on from
        asked["init"] = document.get("init")
    if stage not in {"train", "export"}:
        return asked
    training = document["training"]
    long = {"minutes": training.get("minutes"), "steps": training.get("steps")}
    return asked | long | recipe(from_dict(dict(document)))


def _finished(stage: str, done: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    if stage not in done:
        return False
    asked = _asked(stage, document)
    return {**asked, **done[stage].get("asked", {})} == asked


def _done(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        value = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(value, dict):
            return value
    return {}


def _keep(path: Path, done: Mapping[str, Any]) -> None:
    replace_whole(path, json.dumps(done, indent=1))


@contextlib.contextmanager
def _package_alone() -> Iterator[Path]:
    """A folder with the stages alone: our libraries must not reach the other Python."""
    with tempfile.TemporaryDirectory(prefix="specctl-train-") as place:
        source = package()
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, Path(place) / source.name, ignore=ignored)
        yield Path(place)


def _stage(
    python: Path, stages: Sequence[str], job: Path, place: Path, tell: Callable[[Told], None]
) -> dict[str, Any]:
    """Run the first; the others come later, and it finds what they lack."""
    stage, *later = stages
    log = job.parent / "work" / f"{stage}.log"
    command = [str(python), "-m", "draft_training", stage, str(job), *later]
    path = os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))
    with (
        log.open("ab") as kept,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=kept,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "VLLM_NO_USAGE_STATS": "1"},
            start_new_session=True,
        ) as running,
    ):
        last: dict[str, Any] = {}
        try:
            assert running.stdout is not None
            for line in running.stdout:
                last = _event(line) or last
                if last and last["event"] in {"progress", "said"}:
                    tell(Told(stage, last["event"], last))
        except BaseException:
            _end(running)
            raise
        code = running.wait()
    if code == 0 and last.get("event") == "done":
        return dict(last["facts"])
    if last.get("event") == "failed":
        raise StageError(stage, last["kind"], last["message"], last["fix"], log)
    ending = f"exited with {code}" if code >= 0 else f"was killed by signal {-code}"
    kind = "out-of-memory" if code == -signal.SIGKILL else "crashed"
    raise StageError(stage, kind, f"{ending}: {_last_words(log)}", "see its last lines", log)


def _event(line: str) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        value = json.loads(line)
        if isinstance(value, dict) and "event" in value:
            return value
    return None


def _last_words(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        told = [line for line in lines[-_LOG_LINES:] if line]
        if told:
            return told[-1][:300]
    return "without a word"


def _end(running: subprocess.Popen[str]) -> None:
    """Ask the stage to keep what it has and leave; then make it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGTERM)
    # What it still says must be read, or it would wait for that.
    drain = threading.Thread(target=lambda: running.stdout and running.stdout.read(), daemon=True)
    drain.start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
