"""What is wanted of a local deployment's supervisor, and what it says: files of its folder.

The command writes the one and the supervisor the other, each whole: either may be killed at any
moment, and the next command goes on from what is there.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from speccli.core.engines.local import LocalEngine

WANTED, LOCK, OWN_LOG, ENDED = "wanted.json", "lock", "supervisor.log", "ended.json"
_TOLD = "supervised.json"


@dataclass(frozen=True, slots=True)
class Launch:
    """An engine that is to run."""

    revision: int
    identity: str
    """Of the line and its environment: equal ones need no restart."""
    python: str
    model: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    port: int
    """Its own; clients come through the deployment's."""
    grace_s: float
    """How long running requests may take to finish."""
    launcher: tuple[str, ...] | None = None
    """What makes `python` serve; None: vLLM."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Launch:
        """From its JSON."""
        arguments, launcher = tuple(told["arguments"]), told["launcher"]
        whole = {**told, "arguments": arguments, "launcher": tuple(launcher) if launcher else None}
        return cls(**whole)

    def engine(self, folder: Path) -> LocalEngine:
        """Not started yet."""
        serve: dict[str, Any] = {"launcher": self.launcher} if self.launcher else {}
        return LocalEngine(
            Path(self.python),
            self.model,
            port=self.port,
            extra_args=self.arguments,
            env=self.env,
            log_path=log_of(folder, self.revision),
            **serve,
        )


def log_of(folder: Path, revision: int) -> Path:
    """What a revision's engine prints."""
    return folder / f"engine-{revision}.log"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The engines that are to run, and which of them serves."""

    port: int
    """The deployment's address, which it keeps."""
    serve: int
    """The revision that requests go to, ready or not."""
    engines: tuple[Launch, ...]
    """What is not among them is left and ended, before any other is started."""

    @classmethod
    def read(cls, folder: Path) -> Wanted | None:
        """From its file; None where there is none that can be read."""
        try:
            told = json.loads((folder / WANTED).read_text(encoding="utf-8"))
            engines = tuple(Launch.of(each) for each in told["engines"])
            return cls(int(told["port"]), int(told["serve"]), engines)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def text(self) -> str:
        """For its file."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    def launch(self, revision: int) -> Launch | None:
        """That of a revision."""
        return next((each for each in self.engines if each.revision == revision), None)


@dataclass(frozen=True, slots=True)
class Told:
    """What the supervisor does."""

    serve: int | None = None
    """The revision that requests go to; None: to none."""
    engines: Mapping[str, str] = field(default_factory=dict)
    """By revision and port: empty while it lives, else why it ended. Those that are left too."""
    pids: Mapping[str, int] = field(default_factory=dict)
    """The leaders of their process groups."""
    leaving: int = 0
    """Requests of engines that are to end."""

    @classmethod
    def read(cls, folder: Path) -> Told:
        """From its file; empty where there is none."""
        try:
            return cls(**json.loads((folder / _TOLD).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls()

    def write(self, folder: Path) -> None:
        """Into its file; that a disk is full ends no engine."""
        with suppress(OSError):
            new = folder / f".{_TOLD}"
            new.write_text(json.dumps(asdict(self)), encoding="utf-8")
            new.replace(folder / _TOLD)


def key_of(launch: Launch) -> str:
    """The same revision may be started again: at another port."""
    return f"{launch.revision}:{launch.port}"


def holder(folder: Path) -> int | None:
    """The supervisor's process id; None where none lives."""
    try:
        with (folder / LOCK).open("r", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read().strip()
                return int(text) if text.isdigit() else 0
            return None
    except OSError:
        return None
