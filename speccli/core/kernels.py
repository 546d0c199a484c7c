"""The kernel checks, run where an engine's Python is: another process, another set of packages."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccli.core.errors import SpecctlError, UsageError

PACKAGE = "kernels_check"
NO_DEVICE = "no CUDA device"
USAGE = 64
STATUSES = frozenset({"passed", "failed", "crashed", "hung", "skipped", "broken"})
"""How the line of a check that ended begins."""


@dataclass(frozen=True)
class Wanted:
    """What to run."""

    python: str = sys.executable
    """The interpreter that has torch and the engine."""
    arguments: tuple[str, ...] = ()
    """Passed on to `python -m kernels_check`."""
    deadline_s: float = 900.0


def wanted(
    python: str | None,
    only: Sequence[str],
    flags: Mapping[str, bool],
    values: Mapping[str, object],
    deadline_s: float,
) -> Wanted:
    """What the options of `specctl kernels check` ask for."""
    arguments = [name for name, on in flags.items() if on]
    for name in only:
        arguments += ["--only", name]
    for name, value in values.items():
        if value is not None:
            arguments += [name, str(value)]
    return Wanted(python or sys.executable, tuple(arguments), deadline_s)


def check(asked: Wanted, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the checks here; the run's JSON. Each check's line goes to `progress` as it ends."""
    python = shutil.which(asked.python)
    if python is None:
        raise UsageError(f"--python {asked.python}: no such program")
    with _package_alone() as place, tempfile.TemporaryDirectory(prefix="specctl-kernels-") as out:
        result = Path(out) / "run.json"
        command = [python, "-m", PACKAGE, *asked.arguments, "--json", str(result)]
        code, said = _watch(command, place, asked.deadline_s, progress)
        if NO_DEVICE in said:
            raise SpecctlError(NO_DEVICE)
        if code == USAGE:
            raise UsageError(said.removeprefix(f"{PACKAGE}: error: "))
        if not result.exists():
            raise SpecctlError(f"the checks ended without a result (exit {code}): {said}")
        document: dict[str, Any] = json.loads(result.read_text())
        return document


@contextlib.contextmanager
def _package_alone() -> Iterator[Path]:
    """A folder with the package alone: our libraries must not reach the engine's Python."""
    with tempfile.TemporaryDirectory(prefix="specctl-kernels-") as place:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package(), Path(place) / PACKAGE, ignore=ignored)
        yield Path(place)


def package() -> Path:
    """Where the checks are installed; they are not imported for that."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SpecctlError(f"{PACKAGE} is not installed beside specctl")
    return Path(next(iter(spec.submodule_search_locations)))


def _watch(
    command: Sequence[str], place: Path, deadline_s: float, progress: Callable[[str], None]
) -> tuple[int, str]:
    """(exit code, the last line it said)."""
    with subprocess.Popen(
        command, cwd=place, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as running:
        last = ""
        watchdog = _deadline(deadline_s, running)
        try:
            assert running.stderr is not None
            for line in running.stderr:
                last = line.strip() or last
                if (text := progress_of(line)) is not None:
                    progress(text)
        finally:
            watchdog.cancel()
        return running.wait(), last


def progress_of(line: str) -> str | None:
    """A check's line, where a line of stderr is one."""
    text = line.strip().removeprefix(f"{PACKAGE}: ")
    return text if text.partition(" ")[0] in STATUSES else None


def _deadline(seconds: float, running: subprocess.Popen[str]) -> threading.Timer:
    """Ends the run when its wall clock is over; what had ended by then is in its JSON."""
    timer = threading.Timer(seconds, running.terminate)
    timer.daemon = True
    timer.start()
    return timer
