"""A program in a pseudo-terminal, its screen as text, and what it costs."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyte

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Cost so far of a process."""

    cpu_s: float
    rss_mb: float
    loopback_bytes: int
    """Bytes received on the loopback interface by everybody: only this benchmark should use it."""


class Terminal:
    """Runs a command on a screen of its own."""

    def __init__(self, command: Sequence[str], columns: int = 80, rows: int = 24) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.started = time.monotonic()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES=str(rows))
            for name in ("NO_COLOR", "PYTHONDONTWRITEBYTECODE"):
                os.environ.pop(name, None)
            os.execvp(command[0], list(command))
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def text(self) -> str:
        """What the screen shows."""
        return "\n".join(self.screen.display)

    def pump(self, seconds: float) -> None:
        """Let it run, drawing what it writes."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self._fd], [], [], left)
            if not ready:
                return
            try:
                self._stream.feed(os.read(self._fd, 1 << 16))
            except OSError:
                return

    def until(self, seen: Callable[[str], bool], patience_s: float) -> float | None:
        """Seconds from the start until the screen satisfies `seen`; None if it never does."""
        while time.monotonic() - self.started < patience_s:
            self.pump(0.02)
            if seen(self.text()):
                return time.monotonic() - self.started
        return None

    def usage(self) -> Usage:
        """What the process has used."""
        stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{self.pid}/status").read_text()
        rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        lines = Path("/proc/net/dev").read_text().splitlines()
        loopback = next(line for line in lines if line.strip().startswith("lo:"))
        return Usage(
            cpu_s=(int(stat[11]) + int(stat[12])) / TICKS,
            rss_mb=int(rss.split()[1]) / 1024,
            loopback_bytes=int(loopback.split(":")[1].split()[0]),
        )

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            self.pump(0.05)
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                break
        else:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)
