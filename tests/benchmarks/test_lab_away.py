"""What goes on between calls on a GPU host, with a driver that only tells what it was asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import parts
import pytest

LAB = Path(__file__).parents[2] / "benchmarks/lab"
RUN = """#!/bin/bash
echo "$@" >> "$HOME/asked"
if [ "$1" = check ]; then
    [ "$CHECK" != 99 ] || { trap '' INT; echo $$ > "$HOME/check"; sleep 600; }
    exit "$CHECK"
fi
[ "$1" != unpack ] || exit "${UNPACK:-0}"
"""


class Host:
    """A home of its own, and a checkout that each call brings anew."""

    def __init__(self, at: Path) -> None:
        self.home, self.checkout, self.up = at / "home", at / "checkout", at / "up"
        self.home.mkdir()
        lab = self.checkout / "benchmarks/lab"
        lab.mkdir(parents=True)
        shutil.copy(LAB / "away", lab)
        (lab / "run").write_text(RUN)
        (lab / "run").chmod(0o755)
        archives = at / "archives"
        archives.mkdir()
        for name in ("engine", "data", "specctl", "smollm2-135m"):
            (archives / f"{name}.tar.xz").write_bytes(os.urandom((5 << 19) + 7))
        parts.cut(archives, self.up, 1, without=("trainer", "heads"))

    def call(self, *words: str, part: str | None = None, check: int = 0) -> tuple[int, str]:
        """Exit code, and all that was said."""
        if part is not None:
            shutil.copytree(self.up / part, self.checkout / ".lab/up" / part, dirs_exist_ok=True)
        done = subprocess.run(
            ["benchmarks/lab/away", *words],
            cwd=self.checkout, capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "HOME": str(self.home), "CHECK": str(check)},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    @property
    def asked(self) -> list[str]:
        return (self.home / "asked").read_text().splitlines()


def alive(pid: int) -> bool:
    """Not even as what nobody has waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.call("lost")


def test_parts_in_any_order_then_the_kernels_then_ready(host: Host) -> None:
    names = sorted(folder.name for folder in host.up.iterdir())
    assert host.call("first", "00", "grid", "curve", part="00")[0] == 0
    for name in reversed(names[2:]):
        code, said = host.call("part", name, part=name)
        assert code == 0
        assert "missing: " in said
    code, said = host.call("ready")
    (gone,) = [line for line in said.splitlines() if "still missing" in line]
    assert code == 2
    assert {piece.name for piece in (host.up / names[1]).iterdir()} == set(
        gone.split(": ")[2].split()
    )
    host.call("part", names[1], part=names[1])
    code, said = host.call("ready", "20")
    assert code == 0, said
    assert "grid ended with 0" in said
    first, grid, curve, again, collected = host.asked
    assert first.startswith("unpack --parts ")
    assert grid.startswith("check --budget ")
    assert "--only cost.8b-bf16" in curve
    assert again.startswith("unpack --parts ")
    assert collected == "collect"
    held = {piece.name for folder in host.up.iterdir() for piece in folder.iterdir()}
    assert {piece.name for piece in (host.home / "parts").iterdir()} == held
    assert (host.home / "c/benchmarks/lab/away").exists()


def test_kernels_that_do_not_end_are_ended(host: Host) -> None:
    host.call("first", "00", "grid", part="00", check=99)
    for folder in sorted(host.up.iterdir())[1:]:
        host.call("part", folder.name, part=folder.name)
    code, said = host.call("ready", "2")
    assert code == 1
    assert "are not done, and were ended" in said
    assert not alive(int((host.home / "check").read_text()))


def test_an_engine_that_cannot_be_laid_out_is_said(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNPACK", "2")
    host.call("first", "00", "grid", part="00")
    for folder in sorted(host.up.iterdir())[1:]:
        host.call("part", folder.name, part=folder.name)
    assert host.call("ready", "20")[0] == 1
    assert not any(line.startswith("check") for line in host.asked)


def test_kernels_that_are_not_well_are_said_and_a_second_beginning_is_one(host: Host) -> None:
    for check, ends in ((2, 1), (0, 0)):
        assert host.call("first", "00", "grid", part="00", check=check)[0] == 0
        for folder in sorted(host.up.iterdir())[1:]:
            host.call("part", folder.name, part=folder.name)
        code, said = host.call("ready", "20")
        assert (code, f"grid ended with {check}" in said) == (ends, True), said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "first, part, ready or lost"),
        (("first",), "which part?"),
        (("first", "07"), "there is no .lab/up/07"),
        (("first", "00", "gird"), "'gird' is neither grid nor curve"),
        (("ready",), "nothing was begun"),
        (("part", "00"), "nothing was begun"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(host: Host, words: tuple[str, ...], said: str) -> None:
    code, told = host.call(*words)
    assert code == 64
    assert said in told
    assert len(told.splitlines()) == 1


def test_a_wrong_word_takes_nothing_away(host: Host) -> None:
    host.call("first", "00", part="00")
    there = sorted(path.name for path in (host.home / "parts").iterdir())
    for words in (("first", "77"), ("part", "77"), ("part",), ("ready", "soon")):
        assert host.call(*words)[0] == 64, words
    assert sorted(path.name for path in (host.home / "parts").iterdir()) == there
    assert (host.home / "c").exists()


def test_what_was_lost_begins_nothing_more_and_is_not_waited_for(host: Host) -> None:
    host.call("first", "00", "grid", "curve", part="00", check=99)
    for folder in sorted(host.up.iterdir())[1:]:
        host.call("part", folder.name, part=folder.name)
    for _ in range(100):
        if (host.home / "check").exists():
            break
        time.sleep(0.1)
    assert host.call("lost")[0] == 0
    assert not alive(int((host.home / "check").read_text()))
    assert len([line for line in host.asked if line.startswith("check")]) == 1
    assert host.call("ready", "60")[0] == 1
