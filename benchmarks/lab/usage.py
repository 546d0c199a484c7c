"""What the lab's small programs share: what is wrong in one line, and specctl's exit codes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from speccli.core.errors import ExitCode, SpecctlError, UsageError  # noqa: E402


class Parser(argparse.ArgumentParser):
    """Its usage errors end in 64, as everywhere in specctl; its help keeps its lines."""

    def __init__(self, prog: str, description: str) -> None:
        """`prog`: the program's name in messages."""
        super().__init__(
            prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )

    def error(self, message: str) -> NoReturn:
        """Says it, with the usage."""
        self.print_usage(sys.stderr)
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}\n")


def run(prog: str, main: Callable[[list[str]], int]) -> NoReturn:
    """Ends with what `main` returns; an error of specctl's, or of a file, is one line."""
    try:
        code = main(sys.argv[1:])
    except SpecctlError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        print(f"{prog}: {error}{hint}", file=sys.stderr)
        code = error.exit_code
    except OSError as error:
        print(f"{prog}: {error.filename or 'a file'}: {error.strerror}", file=sys.stderr)
        code = ExitCode.USAGE
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    sys.exit(code)


def read_object(path: Path, what: str) -> dict[str, Any]:
    """A JSON object of a file.

    Raises:
        UsageError: it cannot be read, or is something else; `what` says what was wanted.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read as {what}: {told}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} is not {what}: it is no JSON object")
    return found
