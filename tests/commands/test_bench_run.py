"""`specctl bench run` as it is typed."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from speccli.core.bench.form import read
from tests.support import bench_tool
from tests.support.processes import shell, started


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A simulated server that serves nobody else."""
    words = ("sim", "--engines", "1", "-k", "3", "--rate", "0", "--port", "0")
    with started(*words) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
        process.communicate()


def test_a_run_prints_a_table_keeps_a_file_and_tells_how_far_it_is(
    url: str, tmp_path: Path
) -> None:
    out = tmp_path / "b.json"
    done = shell(
        f"specctl bench run --arm eagle3={url} --batch 4 --requests 4 --max-tokens 8 --repeats 1"
        f" --out {out}"
    )
    assert done.returncode == 0, done.stderr
    assert "SIMULATED" in done.stdout
    assert "eagle3" in done.stdout
    lines = done.stderr.splitlines()
    assert any("1 rows to measure: eagle3 (interleaved" in line for line in lines)
    assert any(line.startswith("specctl: [1/1] eagle3, batch 4, builtin") for line in lines)
    assert "\r" not in done.stderr  # without a terminal every line stays
    assert lines[-1] == f"specctl: kept in {out}"
    assert read(out).complete


def test_json_is_the_file_itself(url: str, tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    done = shell(
        f"specctl bench run --arm e={url} --batch 4 --requests 4 --max-tokens 4 --out {out} -o json"
        " --keep-texts"
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed == json.loads(out.read_text())
    texts = printed["texts"]["e"]
    assert {f"builtin/{prompt}" for prompt in printed["rows"][0]["samples"]["prompt"]} == set(texts)
    assert all(each["text"] for each in texts.values())


def test_a_refused_try_leaves_no_file_in_the_way_of_the_next(url: str, tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    words = f"specctl bench run --arm e={url} --batch 4 --requests 4 --repeats 1 --out {out}"
    refused = shell(f"{words} --max-tokens 20000")
    assert refused.returncode == 64
    assert "do not fit into a context" in refused.stderr
    assert not out.exists()
    corrected = shell(f"{words} --max-tokens 8")
    assert corrected.returncode == 0, corrected.stderr


def test_interrupted_it_keeps_what_is_done_and_goes_on_from_there(url: str, tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    words = f"bench run --arm eagle3={url} --batch 4 --requests 4 --max-tokens 8 --out {out}"
    with started(*words.split(), "--repeats", "30") as process:
        give_up = time.monotonic() + 120
        while not out.exists() and time.monotonic() < give_up:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert stderr.count("specctl: interrupted: ") == 1
    assert "--resume" in stderr
    kept = read(out)
    assert not kept.complete
    assert 1 <= len(kept.rows) < 30
    again = shell(f"specctl {words} --repeats 30")
    assert again.returncode == 64
    assert "is there already" in again.stderr


def test_told_to_stop_it_takes_the_tool_it_called_along(url: str, tmp_path: Path) -> None:
    program = tmp_path / "python-with-vllm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {bench_tool.__file__} "$@"\n')
    program.chmod(0o755)
    logs = tmp_path / "logs"
    words = f"bench run --runner vllm-bench --arm eagle3={url} --batch 4 --logs {logs}"
    words += f" --out {tmp_path / 'b.json'}"
    with started(*words.split(), SPECCTL_VLLM_PYTHON=str(program), SLOW="1") as process:
        give_up = time.monotonic() + 120
        while not list(logs.glob("*.log")) and time.monotonic() < give_up:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 143, stderr
    assert "interrupted: nothing was measured yet" in stderr
    left = map(_command, Path("/proc").glob("[0-9]*/cmdline"))
    assert not [line for line in left if str(tmp_path) in line]


def _command(path: Path) -> str:
    """Nothing of a process that is gone by now."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--arm a=http://127.0.0.1:9", 3, "no answer from http://127.0.0.1:9: connect refused"),
        ("--arm a=nonsense://x", 64, "scheme 'nonsense' is not http(s)"),
        ("--arm a=http://127.0.0.1:9 --dataset random", 64, "acceptance on them says nothing"),
        ("--arm a=http://127.0.0.1:9 --dataset sharegtp", 64, "no dataset 'sharegtp'"),
        ("--arm a=http://127.0.0.1:9 --out /dev/null/x.json", 64, "cannot write /dev/null/x.json"),
        ("", 64, "no arms"),
        ("--to local --target m --k 0", 64, "--k '0' is no list of numbers"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_the_right_code(
    words: str, code: int, said: str
) -> None:
    done = shell(f"specctl bench run {words}")
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    first = next(line for line in done.stderr.splitlines() if ": error: " in line)
    assert said in first
