"""`specctl kernels check`: the engine's Python runs the checks, and its verdict is ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernels_check import report
from kernels_check.model import Check, Result, Status

FAKE = """#!{python}
import json, os, sys
assert sys.argv[1:3] == ["-m", "kernels_check"], sys.argv
assert sorted(os.listdir(".")) == ["kernels_check"], os.listdir(".")
with open({asked!r}, "w") as asked:
    json.dump(sys.argv[3:], asked)
print("kernels_check: failed  rejection.x  1.0 s  token 3, must be 4", file=sys.stderr)
if {document!r}:
    with open(sys.argv[sys.argv.index("--json") + 1], "w") as out:
        out.write({document!r})
sys.exit({code})
"""


def specctl(*words: str) -> subprocess.CompletedProcess[str]:
    return specctl_kernels("check", *words)


def specctl_kernels(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "speccli", "kernels", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def engine_python(folder: Path, document: str, code: int) -> Path:
    """Something that answers like an engine's interpreter."""
    path = folder / "python"
    path.write_text(
        FAKE.format(
            python=sys.executable, asked=str(folder / "asked"), document=document, code=code
        )
    )
    path.chmod(0o755)
    return path


def a_run(status: Status) -> str:
    check, result = Check("rejection.x", "x:y", ""), Result("rejection.x", status, 1.0, "evidence")
    said = report.as_json(
        [check],
        [result],
        seed=5,
        at="2026-11-29T00:00:00+00:00",
        seconds=2,
        environment={"gpu": "G", "driver": "1", "versions": {"vllm": "0.25.1"}},
        whole=True,
    )
    return json.dumps(said)


def test_without_a_gpu_it_says_so_in_one_line_and_exits_3() -> None:
    done = specctl("--local")
    if "no CUDA device" not in done.stderr:
        pytest.skip("this machine has a CUDA device")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "specctl: error: no CUDA device\n"


@pytest.mark.parametrize(
    ("status", "code"), [(Status.PASSED, 0), (Status.BROKEN, 1), (Status.FAILED, 2)]
)
def test_the_verdict_of_the_run_is_the_exit_code(tmp_path: Path, status: Status, code: int) -> None:
    python = engine_python(tmp_path, a_run(status), code)
    done = specctl("--python", str(python), "-o", "json")
    assert done.returncode == code, done.stderr
    assert json.loads(done.stdout)["checks"][0]["status"] == str(status)
    assert "specctl: failed  rejection.x" in done.stderr


def test_options_reach_the_checks(tmp_path: Path) -> None:
    python = engine_python(tmp_path, a_run(Status.PASSED), 0)
    done = specctl("--python", str(python), "--only", "gemm", "--mutants", "--seed", "7")
    assert done.returncode == 0, done.stderr
    assert "ok: 1 checks in 2 s, seed 5, G, driver 1, vLLM 0.25.1" in done.stdout
    asked = json.loads((tmp_path / "asked").read_text())
    assert asked[:5] == ["--mutants", "--only", "gemm", "--seed", "7"]


def test_a_run_that_leaves_nothing_is_unknown_and_says_what_it_last_said(tmp_path: Path) -> None:
    done = specctl("--python", str(engine_python(tmp_path, "", 1)))
    assert done.returncode == 3
    assert done.stdout == ""
    assert "ended without a result (exit 1)" in done.stderr


def test_a_name_that_no_check_has_is_answered_with_those_they_have() -> None:
    done = specctl("--only", "nosuch", "--only", "gemm")
    assert (done.returncode, done.stdout) == (64, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith("specctl: error: no check is called nosuch; names begin with: attention")
    assert ", rejection," in said


def test_a_run_needs_time() -> None:
    for command in (("check",), ("job", "--image", "i")):
        done = specctl_kernels(*command, "--deadline", "0")
        assert (done.returncode, done.stdout) == (64, "")
        assert "--deadline 0: at least 1 s" in done.stderr


def test_an_interpreter_that_is_not_there_is_a_usage_error() -> None:
    done = specctl("--python", "no-such-python")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "specctl: error: --python no-such-python: no such program\n"
