from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import FOLDER
from tests.support.recordings import specctl

RECORDING = FOLDER / "fleet.jsonl"


@pytest.mark.parametrize("words", [(), ("--once",), ("-o", "json"), ("-o", "yaml", "--once")])
def test_without_a_terminal_a_replay_is_a_status(words: tuple[str, ...]) -> None:
    shown = specctl("replay", RECORDING, *words)
    status = specctl("status", "--replay", RECORDING, *(w for w in words if w != "--once"))
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == status.stdout


def test_top_once_prints_the_same(tmp_path: Path) -> None:
    once = specctl("top", "--replay", RECORDING, "--once", "-o", "json")
    assert once.exit_code == 0
    assert once.stdout == specctl("status", "--replay", RECORDING, "-o", "json").stdout


def test_top_without_a_terminal_says_what_to_do() -> None:
    answer = specctl("top", "--replay", RECORDING)
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert answer.stderr.splitlines()[0] == "specctl: error: top needs a terminal"
    assert "--once" in answer.stderr


def test_a_window_of_a_recording_is_its_end() -> None:
    answer = specctl("replay", RECORDING, "--window", "30s", "-o", "json")
    assert answer.json["window_s"] == 30.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such-file",), "cannot read no-such-file"),
        ((RECORDING, "--speed", "0"), "--speed"),
        ((RECORDING, "-e", "h:1"), "one source at a time"),
    ],
)
def test_what_cannot_be_replayed_is_64(words: tuple[str | Path, ...], said: str) -> None:
    answer = specctl("replay", *words)
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert said in answer.stderr
