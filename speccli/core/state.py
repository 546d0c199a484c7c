"""Where specctl keeps what it must remember between runs, and how a file there is replaced."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from speccli.core.errors import SpecctlError, UsageError, unwritable

VARIABLE = "SPECCTL_STATE"
_ROOM = 1 << 18
"""Bytes that must fit where a result is to be kept."""
_HINT = f"give --state DIR or {VARIABLE}"


class StateError(SpecctlError):
    """The state folder cannot be used: it is read-only, full, or not there."""


def state_folder(given: Path | None, environment: Mapping[str, str]) -> Path:
    """`--state`, else SPECCTL_STATE, else XDG_STATE_HOME/specctl, else ~/.local/state/specctl.

    Raises:
        UsageError: none of them is set and there is no home either.
    """
    named = given or environment.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    if root := environment.get("XDG_STATE_HOME"):
        return Path(root).expanduser() / "specctl"
    home = environment.get("HOME")
    if not home:
        raise UsageError("no folder for what is to be remembered: HOME is not set", hint=_HINT)
    return Path(home) / ".local" / "state" / "specctl"


def ensure_writable(path: Path, *, hint: str = _HINT) -> None:
    """See that a file can be put there, before the work whose result it is to hold.

    Its folder is made. What is there is left as it is.

    Raises:
        UsageError: it cannot: the folder is read-only, no folder, or its disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.NamedTemporaryFile(prefix=f".{path.name}.", dir=path.parent) as file:
            file.write(bytes(_ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if isinstance(error, FileExistsError):  # a file where its folder should be
            error.strerror = os.strerror(errno.ENOTDIR)
        raise unwritable(error, path, UsageError, hint=hint) from error


def replace_whole(path: Path, text: str) -> None:
    """Replace a file by one that is wholly written, with the mode that any new file has.

    Raises:
        OSError: it cannot be written; it is as it was, and nothing is left beside it.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except BaseException:  # Ctrl-C too: nobody else would take it away
        with suppress(OSError):
            part.unlink()
        raise


def write_atomic(path: Path, text: str) -> None:
    """Replace a file by one that is wholly written, or leave it as it was.

    Raises:
        StateError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:  # Ctrl-C too: nobody else would take it away
            with suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise unwritable(error, path, StateError, hint=_HINT) from error
