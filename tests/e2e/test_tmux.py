"""The screen in a real terminal: opened, keys pressed, looked at, left, killed."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from speccli.core.sim.process import simulated_fleet
from tests.support.real import absent

pytestmark = pytest.mark.tmux

SIZES = [(80, 24), (120, 40), (200, 60)]
DROP = ("--scenario", "drop", "--speed", "5", "-k", "4")


class Tmux:
    """One window of one server of its own."""

    def __init__(self, columns: int, rows: int) -> None:
        self._socket = f"specctl-{uuid.uuid4().hex[:8]}"
        self._size = ("-x", str(columns), "-y", str(rows))

    def open(self, command: str) -> None:
        """A shell that runs `command` and stays."""
        self._tmux("-f", "/dev/null", "new-session", "-d", *self._size, "sh")
        self._tmux("set-option", "-g", "remain-on-exit", "on")
        self.type(command, "Enter")

    def type(self, *keys: str) -> None:
        """Press keys."""
        self._tmux("send-keys", *keys)

    def text(self) -> str:
        """What the window shows."""
        return self._tmux("capture-pane", "-p")

    def ask(self, what: str) -> str:
        """A property of the pane, such as `cursor_flag` or `alternate_on`."""
        return self._tmux("display-message", "-p", f"#{{{what}}}").strip()

    def resize(self, columns: int, rows: int) -> None:
        """Another size."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def until(self, seen: Callable[[str], bool], what: str, patience_s: float = 120.0) -> str:
        """The window's text once `seen` holds."""
        deadline = time.monotonic() + patience_s
        text = ""
        while time.monotonic() < deadline:
            text = self.text()
            if seen(text):
                return text
            time.sleep(0.1)
        pytest.fail(f"never saw {what}; the window shows:\n{text}")

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._socket, "kill-server"], check=False)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *words], capture_output=True, text=True, check=True
        )
        return done.stdout


@pytest.fixture(scope="module")
def fleet() -> Iterator[list[str]]:
    if shutil.which("tmux") is None:
        absent("tmux is not installed: scripts/system-packages installs it")
    with simulated_fleet(3, DROP) as urls:
        yield urls


@pytest.fixture
def tmux(request: pytest.FixtureRequest, fleet: list[str]) -> Iterator[Tmux]:
    columns, rows = getattr(request, "param", (100, 30))
    window = Tmux(columns, rows)
    yield window
    window.close()


def top(fleet: list[str], *more: str) -> str:
    endpoints = " ".join(f"-e {url}" for url in fleet)
    return " ".join([sys.executable, "-m", "speccli", "top", endpoints, *more])


def has(*words: str) -> Callable[[str], bool]:
    return lambda text: all(word in text for word in words)


def rows(text: str) -> str:
    """The engine table; the verdict above names the outlier, whatever the filter is."""
    return text.partition("─ engines")[2].partition("─ events")[0]


@pytest.mark.parametrize("tmux", SIZES, indirect=True, ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_screen_answers_at_every_size(tmux: Tmux, fleet: list[str]) -> None:
    tmux.open(top(fleet))
    words = ("SIMULATED", "3 engines", "acceptance", "queue wait", "p99 by batch size")
    engines = [url.split("://")[1] for url in fleet]
    text = tmux.until(has(*words, *engines), "the numbers")  # whole: it may be being painted
    assert "Traceback" not in text
    tmux.until(has("low acc"), "the engine whose draft went bad")
    tmux.type("q")
    tmux.until(lambda _: tmux.ask("alternate_on") == "0", "the shell again")
    tmux.type("echo code=$?", "Enter")
    tmux.until(has("code=0"), "exit code 0")


def test_keys_do_what_the_footer_says(tmux: Tmux, fleet: list[str]) -> None:
    tmux.open(top(fleet))
    tmux.until(has("tok/s", "acceptance"), "the numbers")
    tmux.type("?")
    tmux.until(has("marks", "esc back"), "the help")
    tmux.type("Escape")
    tmux.until(has("users feel"), "the screen again")
    tmux.type("p")
    tmux.until(lambda text: "paused" in text.lower(), "that it is paused")
    tmux.type("p")
    tmux.until(lambda text: "paused" not in text.lower(), "that it goes on")
    tmux.type("w")
    tmux.until(has("5 min"), "another window")
    tmux.type("Enter")  # a finding comes first there, once the draft has gone bad
    tmux.until(has("eagle3", "acceptance by position"), "the engine's own page")
    tmux.type("Escape")
    tmux.until(has("users feel"), "the screen again")
    port = fleet[1].rpartition(":")[2]
    tmux.type("/")
    tmux.type(port, "Enter")
    others = [url.rpartition(":")[2] for url in fleet if not url.endswith(port)]
    tmux.until(
        lambda text: (
            f":{port}/0" in rows(text) and not any(f":{o}/0" in rows(text) for o in others)
        ),
        "only the engine that was looked for",
    )


def test_nothing_answers_and_the_screen_says_what_to_do(tmux: Tmux, fleet: list[str]) -> None:
    tmux.open(top(["http://127.0.0.1:9"]))
    tmux.until(has("refused", "users feel", "q quit"), "why there are no numbers")


def test_it_follows_the_terminals_size(tmux: Tmux, fleet: list[str]) -> None:
    tmux.open(top(fleet))
    tmux.until(has("queue wait"), "the numbers")
    tmux.resize(60, 20)
    tmux.until(
        lambda text: "acceptance" in text and max(map(len, text.splitlines())) <= 60, "60x20"
    )
    tmux.resize(160, 50)
    tmux.until(lambda text: max(map(len, text.splitlines())) > 120, "160x50")


@pytest.mark.parametrize(("signal", "code"), [("TERM", "143"), ("HUP", "129"), ("INT", "130")])
def test_a_signal_leaves_a_sane_terminal(
    tmux: Tmux, fleet: list[str], signal: str, code: str
) -> None:
    tmux.open(f"sh -c 'echo pid=$$; exec {top(fleet)}'; echo code=$?")
    tmux.until(has("queue wait", "acceptance"), "the numbers")
    assert tmux.ask("alternate_on") == "1"
    pid = subprocess.run(
        ["pgrep", "-P", tmux.ask("pane_pid")], capture_output=True, text=True, check=True
    ).stdout.split()[0]
    subprocess.run(["kill", f"-{signal}", pid], check=True)
    tmux.until(has(f"code={code}"), f"the exit code of SIG{signal}")
    assert tmux.ask("alternate_on") == "0"
    assert tmux.ask("cursor_flag") == "1"
    assert tmux.ask("mouse_any_flag") == "0"


def test_it_can_be_stopped_and_comes_back_whole(tmux: Tmux, fleet: list[str]) -> None:
    tmux.open("exec bash --norc -i")  # a shell with job control
    tmux.type(f"PS1='ready> '; {top(fleet)}; echo code=$?", "Enter")
    tmux.until(has("queue wait", "acceptance"), "the numbers")
    tmux.type("C-z")
    tmux.until(has("Stopped"), "the shell")
    assert tmux.ask("alternate_on") == "0"
    assert tmux.ask("cursor_flag") == "1"
    tmux.type("fg", "Enter")
    tmux.until(lambda _: tmux.ask("alternate_on") == "1", "the screen again")
    tmux.until(has("queue wait", "acceptance"), "the numbers again")
    tmux.type("q")
    tmux.until(lambda _: tmux.ask("alternate_on") == "0", "the shell at the end")


def test_without_a_shell_it_is_not_stopped(tmux: Tmux, fleet: list[str]) -> None:
    tmux.open(f"exec {top(fleet)}")
    tmux.until(has("queue wait", "acceptance"), "the numbers")
    tmux.type("C-z")
    tmux.until(has("nothing could bring it back"), "why it goes on")


def test_no_terminal_is_said_in_one_line(fleet: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "speccli", "top", "-e", fleet[0]],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 64
    assert done.stdout == ""
    assert "top needs a terminal" in done.stderr
    assert "--once" in done.stderr


@pytest.mark.parametrize("gap_s", [0.0, 0.02, 0.05, 0.1])
def test_a_terminal_that_goes_while_it_is_given_back_leaves_nothing_running(
    fleet: list[str], gap_s: float
) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "speccli", "top", "-e", fleet[0]]
    screen = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    while b"queue wait" not in seen:
        seen += os.read(ours, 1 << 16)
    screen.terminate()
    time.sleep(gap_s)
    os.close(ours)
    try:
        screen.wait(120)
    finally:
        screen.kill()
        screen.wait()
