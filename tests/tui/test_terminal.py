"""The screen in a real terminal: three sizes, keys, and what is left behind when it goes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.tmux,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]
PROGRAM = "import sys; from speccli.main import main; sys.exit(main())"
SECONDS = 30.0


class Terminal:
    """One tmux session on a server of its own."""

    def __init__(self, socket: Path) -> None:
        self._base = ["tmux", "-S", str(socket), "-f", "/dev/null"]

    def run(self, *arguments: str) -> str:
        return subprocess.run(
            [*self._base, *arguments], capture_output=True, text=True, check=True
        ).stdout

    def start(self, size: tuple[int, int], command: str) -> None:
        self.run("new-session", "-d", "-s", "t", "-x", str(size[0]), "-y", str(size[1]), command)

    def text(self) -> str:
        return self.run("capture-pane", "-p", "-t", "t")

    def keys(self, *keys: str) -> None:
        self.run("send-keys", "-t", "t", *keys)

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run("kill-server")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path / "tmux")
    yield terminal
    terminal.close()


def wait(terminal: Terminal, condition: Callable[[str], bool]) -> str:
    """Look until the condition holds; the terminal belongs to another process."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        text = terminal.text()
        if condition(text):
            return text
        time.sleep(0.05)
    raise AssertionError(f"never seen:\n{terminal.text()}")


def command(pid_file: Path) -> str:
    program = f'{sys.executable} -c "{PROGRAM}" top --endpoint http://127.0.0.1:9'
    return f"sh -c 'echo $$ > {pid_file}; exec {program}'; echo left=$?; exec cat"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_opens_answers_keys_and_leaves(
    terminal: Terminal, tmp_path: Path, size: tuple[int, int]
) -> None:
    terminal.start(size, command(tmp_path / "pid"))
    text = wait(terminal, lambda t: "refused" in t and "q quit" in t)
    assert "UNKNOWN" in text or "CRITICAL" in text
    assert "users feel" in text
    terminal.keys("?")
    wait(terminal, lambda t: "copy the snapshot as JSON" in t or "esc comes back" in t)
    terminal.keys("Escape")
    wait(terminal, lambda t: "users feel" in t)
    terminal.keys("q")
    wait(terminal, lambda t: "left=0" in t)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_signals_leave_a_sane_terminal(
    terminal: Terminal, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    terminal.start((80, 24), command(tmp_path / "pid"))
    wait(terminal, lambda t: "q quit" in t)
    os.kill(int((tmp_path / "pid").read_text()), number)
    wait(terminal, lambda t: f"left={code}" in t)
    flags = "#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{bracket_paste_flag}"
    assert terminal.run("display", "-p", "-t", "t", flags).split()[:3] == ["0", "1", "0"]
