from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.golden import FOLDER
from tests.support.processes import environment
from tests.support.recordings import specctl

RECORDING = FOLDER / "fleet.jsonl"


@pytest.mark.parametrize("words", [("--once",), ("-o", "json"), ("-o", "yaml", "--once")])
def test_a_replay_printed_is_a_status(words: tuple[str, ...]) -> None:
    shown = specctl("replay", RECORDING, *words)
    status = specctl("status", "--replay", RECORDING, *(w for w in words if w != "--once"))
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == status.stdout


def test_top_once_prints_the_same(tmp_path: Path) -> None:
    once = specctl("top", "--replay", RECORDING, "--once", "-o", "json")
    assert once.exit_code == 0
    assert once.stdout == specctl("status", "--replay", RECORDING, "-o", "json").stdout


COMMANDS = [("top", "--replay"), ("replay",)]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_screen_without_a_terminal_says_what_to_do(words: tuple[str, ...]) -> None:
    answer = specctl(*words, RECORDING)
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert answer.stderr.splitlines()[0] == f"specctl: error: {words[0]} needs a terminal"
    assert "--once" in answer.stderr


@pytest.mark.parametrize("words", COMMANDS)
def test_a_recording_that_is_none_is_said_before_the_terminal(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    answer = specctl(*words, tmp_path / "nope")
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert f"{tmp_path / 'nope'}" in answer.stderr
    assert "terminal" not in answer.stderr


@pytest.mark.parametrize("words", COMMANDS)
def test_a_screen_that_nobody_can_type_at_does_not_open(words: tuple[str, ...]) -> None:
    master, slave = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "speccli", *words, RECORDING],
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=environment(),
            check=False,
        )
    finally:
        os.close(master)
        os.close(slave)
    assert done.returncode == 64
    assert f"{words[0]} needs a terminal" in done.stderr


@pytest.mark.parametrize("words", COMMANDS)
def test_help_says_what_prints_and_what_needs_a_terminal(words: tuple[str, ...]) -> None:
    told = " ".join(specctl(words[0], "--help").stdout.split())
    assert "Needs a terminal" in told
    assert "--once" in told
    assert "Without a terminal" not in told


def test_a_window_of_a_recording_is_its_end() -> None:
    answer = specctl("replay", RECORDING, "--window", "30s", "-o", "json")
    assert answer.json["window_s"] == 30.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such-file",), "cannot read no-such-file"),
        ((RECORDING, "--speed", "0"), "--speed"),
    ],
)
def test_what_cannot_be_replayed_is_64(words: tuple[str | Path, ...], said: str) -> None:
    answer = specctl("replay", *words, "--once")
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert said in answer.stderr
