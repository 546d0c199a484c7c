"""Everything specctl writes to stderr, and nothing else does."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from speccli import __version__


def say(text: str) -> None:
    """A line about what is going on; not an error."""
    _write(f"specctl: {text}")


def warn(text: str) -> None:
    """Something the reader should know although the command goes on."""
    _write(f"specctl: note: {text}")


def error(message: str, hint: str | None = None) -> None:
    """What is wrong and where, one line; then what to do."""
    _write(f"specctl: error: {' '.join(message.split())}")
    if hint:
        _write(f"hint: {hint}")


def bug(exception: BaseException) -> None:
    """A fault of specctl: one line, where it was, and where the report went."""
    report = "".join(traceback.format_exception(exception))
    head = f"specctl {__version__}, Python {sys.version.split()[0]}, {datetime.now(UTC):%c} UTC\n"
    command = f"command: {' '.join(sys.argv[1:2])}\n"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="specctl-bug-", suffix=".txt", delete=False
        ) as file:
            file.write(head + command + report)
            where = f"report: {Path(file.name)}"
    except OSError as error:
        where = f"no report could be written: {error.strerror}; set TMPDIR to a folder that can be"
    what = f"{type(exception).__name__}: {exception}".strip().splitlines()[0]
    frames = traceback.extract_tb(exception.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    _write(f"specctl: bug in specctl: {what}{place}\n{where}")


def progress(text: str) -> None:
    """A line that the next one overwrites; nothing where `is_live` says no."""
    if is_live():
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()


def is_live() -> bool:
    """Whether lines can be overwritten: stderr is a terminal, and one that can place text."""
    return sys.stderr.isatty() and can_place_text()


def can_place_text() -> bool:
    """What TERM says of the terminal."""
    return os.environ.get("TERM") not in ("dumb", "unknown")


def live(lines: Sequence[str]) -> None:
    """Lines that the next ones, or the next word, overwrite; nothing where `is_live` says no."""
    if not is_live():
        return
    width, height = os.get_terminal_size(sys.stderr.fileno())
    width, height = width or 80, height or 24  # some pseudo-terminals have no size
    shown = [_printable(line)[: max(1, width - 1)] for line in lines[: max(1, height - 2)]]
    text = _erased() + "".join(f"{line}\n" for line in shown)
    _drawn.append(len(shown))
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def settle() -> None:
    """What `live` drew last stays."""
    _drawn.clear()


_drawn: list[int] = []
"""How many lines stand on the screen to be overwritten."""


def _erased() -> str:
    """What moves the cursor to the first of them and clears from there on."""
    count = sum(_drawn)
    _drawn.clear()
    return f"\x1b[{count}A\x1b[J" if count else ""


def watching(done_s: float, whole_s: float) -> None:
    """How far a look over a window has come."""
    progress(f"specctl: watching for {whole_s:.0f} s … {done_s:.0f}")


def _write(text: str) -> None:
    # Reasons and names come from servers and files: nothing in them may move the cursor.
    text = _printable(text)
    try:
        if is_live():
            sys.stderr.write("\r\x1b[2K" + _erased())
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # stderr is gone: there is nobody left to tell
        return


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
