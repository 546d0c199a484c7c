"""Every error specctl raises on purpose, and the exit code each one ends in.

`SpecctlError` carries one line that says what is wrong and where, and a hint that says what to do.
Anything else that escapes is a bug in specctl (exit 70).
"""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import TypeVar


class ExitCode(IntEnum):
    """Exit codes, the same for every command (check-plugin convention; usage is 64, never 2)."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3
    USAGE = 64
    BUG = 70
    INTERRUPTED = 130


class SpecctlError(Exception):
    """Something an operator can understand and act on."""

    exit_code: ExitCode = ExitCode.UNKNOWN

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        """`message`: what and where, one line, no full stop. `hint`: what to do."""
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SpecctlError):
    """The command line, a configuration file or an input file is not what it should be."""

    exit_code = ExitCode.USAGE


Kind = TypeVar("Kind", bound=SpecctlError)
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""A disk, a quota or a file that takes no more."""
FULL_HINT = "is the disk full?"


def unwritable(
    error: OSError, what: object, kind: type[Kind], *, hint: str | None = None, more: str = ""
) -> Kind:
    """`cannot write WHAT: why`, of a kind; a disk that is full is no mistake of who typed: 3."""
    full = error.errno in FULL
    made = kind(
        f"cannot write {what}: {error.strerror or error}{more}", hint=FULL_HINT if full else hint
    )
    if full:
        made.exit_code = ExitCode.UNKNOWN
    return made


class SourceError(SpecctlError):
    """A source of metrics gave nothing that can be used."""


class UnreachableError(SourceError):
    """No answer: refused, reset, name not found, certificate not accepted."""


class DeadlineError(SourceError):
    """The wall-clock deadline passed first."""


class NotAuthorisedError(SourceError):
    """The far end wants credentials that were not given, or refuses those that were."""


class RecordingError(UsageError):
    """A recording is missing, unreadable, or not a recording."""
