"""Everything specctl writes to stdout: data, in the format asked for."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType


class Format(StrEnum):
    """`-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def emit(data: Callable[[], Any], table: Callable[[], RenderableType], format_: Format) -> None:
    """Print `data` as JSON or YAML, or `table` for people."""
    if format_ is Format.JSON:
        text(json.dumps(data(), indent=2, ensure_ascii=False, allow_nan=False))
    elif format_ is Format.YAML:
        import yaml

        text(yaml.safe_dump(data(), sort_keys=False, allow_unicode=True).rstrip("\n"))
    else:
        rich(table())


def text(line: str) -> None:
    """Print a line."""
    _guarded(lambda: sys.stdout.write(line + "\n"))


def rich(renderable: RenderableType) -> None:
    """Print something of rich's, as wide as the terminal (120 columns where there is none)."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
    _guarded(lambda: Console(width=width, highlight=False, emoji=False).print(renderable))


def _guarded(write: Callable[[], Any]) -> None:
    """A reader that left early (`| head`) is not an error."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
