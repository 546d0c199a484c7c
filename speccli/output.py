"""Everything specctl writes to stdout: data, in the format asked for."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from speccli.core.views.document import json_text, printable
from speccli.core.views.text import ASCII

if TYPE_CHECKING:
    from rich.console import RenderableType


class Format(StrEnum):
    """`-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Unwritable(OSError):
    """Standard output takes no more."""


def emit(data: Callable[[], Any], table: Callable[[], RenderableType], format_: Format) -> None:
    """Print `data` as JSON or YAML, or `table` for people."""
    if format_ is Format.JSON:
        text(json_text(data(), unicode=_unicode()))
    elif format_ is Format.YAML:
        import yaml

        whole = data()
        document = yaml.safe_dump(whole, sort_keys=False, allow_unicode=_unicode())
        if not printable(document):  # YAML leaves marks that turn text round as they are
            document = yaml.safe_dump(whole, sort_keys=False)
        text(document.rstrip("\n"))
    else:
        rich(table())


def text(line: str) -> None:
    """Print a line, or several; what would move the cursor is a `?`."""
    if not printable(line):
        line = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in line)
    _guarded(lambda: sys.stdout.write(line + "\n"))


def rich(renderable: RenderableType) -> None:
    """Print something of rich's, as wide as the terminal (120 columns where there is none)."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # its own answer is exit 1, which here means a warning

    told = os.environ.get("COLUMNS", "")
    width = None if sys.stdout.isatty() or (told.isdigit() and int(told)) else 120
    console = Quiet(width=width, highlight=False, emoji=False)

    def write() -> None:
        with console.capture() as captured:  # which touches the stream, too
            console.print(renderable)
        # A table is padded to its width: blanks that nobody sees break lines in narrower windows.
        sys.stdout.write(_TRAILING.sub(lambda blanks: blanks[0].replace(" ", ""), captured.get()))

    _guarded(write)


_TRAILING = re.compile(r"(?: |\x1b\[[\d;]*m)+$", re.MULTILINE)
"""Blanks at the end of a line, and the colours that end among them."""


def prepare() -> None:
    """Make the standard streams usable: closed ones (`>&-`), encodings that lack a character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - for good
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_MARKS if name == "stdout" else _MARKS_OR_CODE)


def _in_ascii(fallback: str) -> Callable[[UnicodeError], tuple[str | bytes, int]]:
    """What stands for characters that a stream's encoding lacks: marks are ASCII, others not."""
    other = codecs.lookup_error(fallback)

    def handler(error: UnicodeError) -> tuple[str | bytes, int]:
        if isinstance(error, UnicodeEncodeError):
            stands = _STANDS.get(ord(error.object[error.start]))
            if stands is not None:
                return stands, error.start + 1
            error.end = error.start + 1  # the next one may be a mark
        return other(error)

    return handler


_STANDS = ASCII | {ord("·"): "-"}
"""In running text a dot between words looks like the end of a sentence."""
_MARKS, _MARKS_OR_CODE = "specctl.replace", "specctl.backslashreplace"
codecs.register_error(_MARKS, _in_ascii("replace"))
codecs.register_error(_MARKS_OR_CODE, _in_ascii("backslashreplace"))


def abandon() -> None:
    """Nobody can take what is still buffered for stdout: Python must not try again at its exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") in {"utf8", "utf16", "utf32"}


def _guarded(write: Callable[[], Any]) -> None:
    """A reader that left early (`| head`) is no error, and changes no exit code."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        abandon()
    except OSError as error:
        raise Unwritable(error.errno, error.strerror) from error
