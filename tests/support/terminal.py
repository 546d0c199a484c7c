"""A command on a terminal of its own, which keys reach as they reach a person's."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Terminal:
    """A pseudo-terminal, and the process whose controlling terminal it is."""

    def __init__(self, process: subprocess.Popen[bytes], far_end: int) -> None:
        self.process = process
        self._far_end = far_end
        self.shown = ""
        """All that was written to it."""

    def type(self, keys: str) -> None:
        """Press keys; `\\x03` is Ctrl-C."""
        os.write(self._far_end, keys.encode())

    def until(self, seen: Callable[[str], bool], patience_s: float = 60.0) -> str:
        """What is shown once `seen` holds, or once the process is gone."""
        deadline = time.monotonic() + patience_s
        while not seen(self.shown):
            assert time.monotonic() < deadline, self.shown
            if not self._read():
                break
        return self.shown

    def ended(self, patience_s: float = 60.0) -> int:
        """The exit code, once everything is read."""
        self.until(lambda _: False, patience_s)
        return self.process.wait(patience_s)

    def _read(self) -> bool:
        if not select.select([self._far_end], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self._far_end, 65536)
        except OSError:  # the last to have it open is gone
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


@contextmanager
def on_a_terminal(*words: str, folder: Path, term: str = "xterm-256color") -> Iterator[Terminal]:
    """`specctl WORDS` on a terminal."""
    far_end, end = pty.openpty()
    modes = termios.tcgetattr(end)
    modes[3] |= termios.NOFLSH  # else what was written and is not read yet is gone at a Ctrl-C
    termios.tcsetattr(end, termios.TCSANOW, modes)
    with subprocess.Popen(
        [sys.executable, "-m", "speccli", *words],
        stdin=end,
        stdout=end,
        stderr=end,
        cwd=folder,
        env={**os.environ, "TERM": term},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(end)
        try:
            yield Terminal(process, far_end)
        finally:
            process.kill()
            os.close(far_end)
