"""Checks of this machine: Python, the terminal, settings, packages, disk.

Nothing here is asked of the network, and what a check looks at is handed to it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import locale
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from speccli.core import config
from speccli.core.doctor.base import Check
from speccli.core.engines.local import INSTALL_HINT, find_vllm_python
from speccli.core.errors import SpecctlError

_PYTHON = (3, 11)
_SIZE = (80, 24)
"""Columns and rows that `top` is laid out for at least."""
_FREE_BYTES = 1 << 30
_PACKAGES = (
    ("aiohttp", "aiohttp", "every --endpoint"),
    ("prometheus_api_client", "prometheus-api-client", "--prometheus"),
    ("kubernetes", "kubernetes", "--deployment and `specctl deploy`"),
    ("zstandard", "zstandard", "recordings named .zst"),
    ("genai_prices", "genai-prices", "`specctl cost`"),
)
"""Imported late, so that their absence would show only when a command needs them."""
_VERSION_S = 5.0
_VLLM_VERSION = "import importlib.metadata as m; print(m.version('vllm'))"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where specctl runs."""

    environment: Mapping[str, str]
    directory: Path
    profile: str | None = None
    python: tuple[int, ...] = sys.version_info[:3]
    is_terminal: bool = False
    """Whether standard output is one."""
    size: tuple[int, int] = _SIZE
    """Columns and rows of the terminal."""
    encoding: str = "utf-8"
    """Of standard output."""

    @classmethod
    def here(cls, profile: str | None = None) -> Surroundings:
        """This process's."""
        environment, directory = config.here()
        return cls(
            environment,
            directory,
            profile,
            is_terminal=sys.stdout.isatty(),
            size=shutil.get_terminal_size(_SIZE),
            encoding=getattr(sys.stdout, "encoding", None) or locale.getpreferredencoding(False),
        )


def python(around: Surroundings) -> Iterable[Check]:
    """Is Python new enough?"""
    said = f"Python {'.'.join(map(str, around.python))}"
    if around.python < _PYTHON:
        yield Check("machine", "Python", "fail", said, fix="install Python 3.11 or newer")
    else:
        yield Check("machine", "Python", "ok", said)


def terminal(around: Surroundings) -> Iterable[Check]:
    """Can `top` draw, and how large?"""
    term = around.environment.get("TERM", "")
    if not around.is_terminal:
        what = "standard output is not a terminal"
        yield Check("terminal", "screen", "skip", what, "top opens in one; top --once prints")
        return
    if term in {"", "dumb"}:
        what = f"TERM is {term or 'not set'}"
        fix = "export TERM=xterm-256color"
        yield Check("terminal", "screen", "warn", what, "top cannot draw here", fix)
        return
    columns, rows = around.size
    what = f"{term}, {columns}×{rows}"
    if columns < _SIZE[0] or rows < _SIZE[1]:
        why = f"top is laid out for {_SIZE[0]}×{_SIZE[1]} at least"
        yield Check("terminal", "screen", "warn", what, why, "enlarge the window")
    else:
        yield Check("terminal", "screen", "ok", what)


def colours(around: Surroundings) -> Iterable[Check]:
    """How many colours, and does SSH hide some of them?"""
    if not around.is_terminal:
        return
    given = around.environment
    term, depth = given.get("TERM", ""), given.get("COLORTERM", "")
    if given.get("NO_COLOR"):
        what = "none: NO_COLOR is set"
        yield Check("terminal", "colours", "ok", what, "top shows state by glyph and word")
    elif depth in {"truecolor", "24bit"}:
        yield Check("terminal", "colours", "ok", "16 million")
    elif given.get("SSH_CONNECTION") or given.get("SSH_TTY"):
        yield Check(
            "terminal",
            "colours",
            "ok",
            f"{_colour_count(term)}: SSH does not forward COLORTERM",
            "top uses the nearest of them; state is told by glyph and word too",
            "export COLORTERM=truecolor, if your terminal has 16 million",
        )
    else:
        yield Check("terminal", "colours", "ok", f"{_colour_count(term)}, by TERM")


def _colour_count(term: str) -> int:
    return 256 if "256" in term or "direct" in term else 16


def characters(around: Surroundings) -> Iterable[Check]:
    """Will glyphs and sparklines come out?"""
    name = around.encoding
    if name.lower().replace("-", "").replace("_", "") == "utf8":
        yield Check("terminal", "characters", "ok", "UTF-8")
        return
    why = "glyphs, charts and — come out wrong"
    fix = "export LC_ALL=C.UTF-8 (and set the terminal to UTF-8)"
    yield Check("terminal", "characters", "warn", f"standard output is {name}", why, fix)


def files(around: Surroundings) -> Iterable[Check]:
    """Which configuration files count, and is each valid in every profile?"""
    paths = config.config_files(around.environment, around.directory)
    if not paths:
        what = "no specctl.toml here, above or in the user's configuration"
        yield Check("settings", config.FILE, "skip", what, "flags and SPECCTL_* say it all")
    for path in paths:
        yield _file(path, around)
    if around.profile and paths and all(around.profile not in _profiles(path) for path in paths):
        what = f"no profile {around.profile!r}"
        fix = f"add [profile.{around.profile}] to {config.FILE}"
        yield Check("settings", "profile", "fail", what, fix=fix)


def _file(path: Path, around: Surroundings) -> Check:
    """Loads one file alone, with each of its profiles."""
    alone = {"SPECCTL_CONFIG": str(path)}
    profiles = _profiles(path)
    try:
        for profile in (None, *profiles):
            config.load({}, profile=profile, environment=alone, directory=around.directory)
    except SpecctlError as error:
        message, fix = error.message.replace(f"{path}: ", ""), error.hint or "correct the file"
        why = "every command refuses it"
        return Check("settings", config.FILE, "fail", message, why, fix, subject=str(path))
    what = f"valid, profiles: {', '.join(profiles)}" if profiles else "valid"
    return Check("settings", config.FILE, "ok", what, subject=str(path))


def _profiles(path: Path) -> list[str]:
    try:
        tables = tomllib.loads(path.read_text()).get("profile", {})
    except (OSError, ValueError):
        return []
    return sorted(tables) if isinstance(tables, dict) else []


def variables(around: Surroundings) -> Iterable[Check]:
    """Are the SPECCTL_* variables known, and of their types?"""
    set_ = sorted(name for name in around.environment if name.startswith(config.ENVIRONMENT))
    for note in config.unknown_variables(around.environment):
        name, _, rest = note.partition(" ")
        guess = rest.partition("; did you mean ")[2].rstrip("?")
        fix = f"rename it to {guess}" if guess else "unset it"
        yield Check("settings", "variables", "warn", f"{name} is not a setting", "ignored", fix)
    own = {name: around.environment[name] for name in set_ if name != "SPECCTL_PROFILE"}
    try:
        # Without files: those are judged by themselves.
        config.load({}, profile=None, environment=own | _NO_FILES, directory=Path("/"))
    except SpecctlError as error:
        yield Check("settings", "variables", "fail", error.message, fix=error.hint or "correct it")
        return
    what = ", ".join(set_) if set_ else "no SPECCTL_* is set"
    yield Check("settings", "variables", "ok" if set_ else "skip", what)


_NO_FILES = {"SPECCTL_CONFIG": os.devnull}


def packages(around: Surroundings) -> Iterable[Check]:
    """Do the packages that are imported late import at all?"""
    for module, package, needed_by in _PACKAGES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(module)
            version = importlib.metadata.version(package)
        except Exception as error:  # noqa: BLE001 - whatever a broken installation raises
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            fix = f"pip install --force-reinstall {package}"
            yield Check("tools", package, "fail", said, f"{needed_by} needs it", fix)
        else:
            yield Check("tools", package, "ok", version)


def vllm(around: Surroundings) -> Iterable[Check]:
    """Is there a vLLM that specctl could start?"""
    why = "`specctl demo --engine vllm` alone needs one"
    try:
        path = find_vllm_python(around.environment)
        if path is None:
            yield Check("tools", "local vLLM", "skip", "none found", why, INSTALL_HINT)
            return
        done = subprocess.run(
            [str(path), "-c", _VLLM_VERSION],
            capture_output=True,
            text=True,
            timeout=_VERSION_S,
            check=False,
        )
    except SpecctlError as error:
        yield Check("tools", "local vLLM", "warn", error.message, why, error.hint or INSTALL_HINT)
        return
    except (OSError, subprocess.TimeoutExpired) as error:
        what = f"{type(error).__name__} while asking it for its version"
        yield Check("tools", "local vLLM", "warn", what, why, INSTALL_HINT)
        return
    if done.returncode:
        yield Check("tools", "local vLLM", "warn", f"{path} has no vLLM", why, INSTALL_HINT)
    else:
        yield Check("tools", "local vLLM", "ok", f"{done.stdout.strip()}, {path}")


def disk(around: Surroundings) -> Iterable[Check]:
    """Could a recording be written here?"""
    where = str(around.directory)
    try:
        with tempfile.TemporaryFile(dir=around.directory):
            free = shutil.disk_usage(around.directory).free
    except OSError as error:
        what = f"cannot write here: {error.strerror}"
        fix = "give `record` a path elsewhere"
        yield Check("disk", "recordings", "warn", what, "", fix, subject=where)
        return
    state: str = f"writable, {free / 1e9:,.0f} GB free"
    if free >= _FREE_BYTES:
        yield Check("disk", "recordings", "ok", state, subject=where)
        return
    state = f"writable, {free / 1e6:,.0f} MB free"
    why = "an engine's page is about 50 kB a scrape; .zst makes a recording far smaller"
    yield Check("disk", "recordings", "warn", state, why, "free some space", subject=where)


MACHINE: tuple[Callable[[Surroundings], Iterable[Check]], ...] = (
    python,
    terminal,
    colours,
    characters,
    files,
    variables,
    packages,
    vllm,
    disk,
)
"""Every check of this machine."""
