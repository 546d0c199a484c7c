"""The demonstration on a real engine, with programs that only look like its parts."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from speccli.core import demo_vllm
from speccli.core.demo_vllm import RealEngine, model_folder, real_engine
from speccli.core.errors import SpecctlError


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """A vLLM that is the given script of sh, and the folder for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def make(script: str) -> Path:
        python = tmp_path / ".vllm" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("SPECCTL_VLLM_PYTHON", str(python))
        return tmp_path

    return make


def test_its_log_is_a_file_of_its_own_whoever_ran_it_before(
    told: Callable[[str], Path],
) -> None:
    folder = told('case "$1" in *smollm2_target.py) exit 0 ;; esac; echo ValueError: no; exit 1')
    fixed = folder / "specctl-demo-vllm.log"
    fixed.symlink_to("/dev/null")
    logs = []
    for _ in range(2):
        with pytest.raises(SpecctlError, match="ValueError: no") as caught, real_engine(_quiet):
            pass
        assert caught.value.hint is not None
        logs.append(Path(caught.value.hint.removeprefix("its log is ")))
    assert len({*logs, fixed}) == 3
    for log in logs:
        assert log.parent == folder
        assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_model_that_takes_too_long_is_said_and_no_bug(
    told: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    told("exec sleep 60")
    monkeypatch.setattr(demo_vllm, "_MAKE_DEADLINE_S", 0.1)
    with pytest.raises(SpecctlError, match="not made within"), real_engine(_quiet):
        pass


def test_a_model_that_cannot_be_made_says_the_last_word(told: Callable[[str], Path]) -> None:
    told("echo first >&2; echo no space left >&2; exit 1")
    with pytest.raises(SpecctlError, match="could not be made: no space left"), real_engine(_quiet):
        pass


@pytest.mark.parametrize(
    ("python", "environ", "folder"),
    [
        ("/src/specctl/.vllm/bin/python", {}, "/src/specctl/.vllm/models"),
        ("/usr/bin/python3", {"HOME": "/home/a"}, "/home/a/.cache/specctl/models"),
        ("/opt/venv/bin/python", {"XDG_CACHE_HOME": "/c"}, "/c/specctl/models"),
        ("/usr/bin/python3", {"HOME": "/h", "XDG_CACHE_HOME": "."}, "/h/.cache/specctl/models"),
    ],
)
def test_the_model_lies_in_the_checkout_or_in_the_users_cache(
    python: str, environ: dict[str, str], folder: str
) -> None:
    assert model_folder(Path(python), environ) == Path(folder)


def test_the_fault_turns_the_traffic_hot() -> None:
    real = RealEngine(["http://127.0.0.1:1"], "")
    assert real.temperature == 0.0
    real.fault()
    assert real.temperature > 1


def _quiet(_: str) -> None:
    """Nothing is said to anybody."""
