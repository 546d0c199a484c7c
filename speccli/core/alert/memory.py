"""What alerting remembers between runs: one file a deployment, locked, versioned, replaced whole.

Whatever befalls the file or its folder, a check goes on: with less memory, and saying so.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speccli.core.errors import DeadlineError
from speccli.core.sources.base import Scrape
from speccli.core.sources.recording import line_of, scrape_of
from speccli.core.state import StateError, write_atomic

SCHEMA = "specctl.alert-state/v1"
_AGAIN_S = 0.05
_SLUG = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(slots=True)
class Memory:
    """Everything one deployment's alerting knows from its last run."""

    at: float | None = None
    """When it was kept, Unix seconds; None: nothing is remembered."""
    boot: str | None = None
    """Which start of the machine `uptime` counts from."""
    uptime: float | None = None
    """Seconds since then: a clock nobody can set."""
    scrapes: list[Scrape] = field(default_factory=list)
    """The last page of every server."""
    floor: float | None = None
    """The floor that `low` is about."""
    low: dict[tuple[str, str], float] = field(default_factory=dict)
    """Since when which engine is under it."""
    judge: Any = None
    holds: Any = None
    sent: Any = None

    def to_json(self) -> dict[str, Any]:
        """Its form on disk."""
        return {
            "schema": SCHEMA,
            "at": self.at,
            "boot": self.boot,
            "uptime": self.uptime,
            "floor": self.floor,
            "low": [[*key, since] for key, since in self.low.items()],
            "holds": self.holds,
            "sent": self.sent,
            "judge": self.judge,
            "scrapes": [line_of(scrape) for scrape in self.scrapes],
        }

    @classmethod
    def from_json(cls, value: Any) -> Memory:
        """The memory of a file; ValueError, TypeError or KeyError where it is none."""
        if value["schema"] != SCHEMA:
            raise ValueError(f"its schema is {str(value['schema'])[:60]!r}, not {SCHEMA}")
        return cls(
            at=float(value["at"]),
            boot=value.get("boot"),
            uptime=value.get("uptime"),
            scrapes=[scrape_of(line) for line in value["scrapes"]],
            floor=value.get("floor"),
            low={(str(t), str(e)): float(since) for t, e, since in value["low"]},
            judge=value.get("judge"),
            holds=value.get("holds"),
            sent=value.get("sent"),
        )


def file_name(command: str, name: str | None, source: str) -> str:
    """What the file of a deployment is called: its given name, or a mark of its source."""
    if name:
        slug = _SLUG.sub("-", name)[:80]
        mark = "" if slug == name else "-" + hashlib.sha256(name.encode()).hexdigest()[:8]
        return f"{command}-{slug}{mark}.json"
    return f"{command}-{hashlib.sha256(source.encode()).hexdigest()[:16]}.json"


class Keeper:
    """One deployment's file. `notes` gathers what the operator should know of it."""

    def __init__(self, folder: Path | None, name: str) -> None:
        """`folder`: the state folder; None where there is none, and then nothing is kept."""
        self.path = None if folder is None else folder / "alert" / name
        self.notes: list[str] = []
        self.kept = False
        """Whether something is remembered from one run to the next."""

    @contextlib.contextmanager
    def locked(
        self,
        wait_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Iterator[None]:
        """Hold the file alone; another run is waited for, `wait_s` at most.

        Raises:
            DeadlineError: the other run still has it.
        """
        handle = self._lock_file()
        if handle is None:
            yield
            return
        try:
            ends = clock() + wait_s
            while not _try_lock(handle):
                if clock() >= ends:
                    raise DeadlineError(
                        f"another check of this deployment is running{_holder(handle)}",
                        hint="give crons of one deployment a --name each, or run it less often",
                    )
                sleep(_AGAIN_S)
            with contextlib.suppress(OSError):  # a lock that was opened only for reading
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(handle)

    def _lock_file(self) -> int | None:
        if self.path is None:
            return None
        lock = self.path.with_suffix(".lock")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            pass  # read-only or full: `save` says so
        try:
            return os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None

    def load(self) -> Memory:
        """What the last run left; empty where it left nothing that can be used."""
        if self.path is None:
            return Memory()
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return Memory()
        except OSError as error:
            if error.errno != errno.ENOTDIR:
                self.notes.append(f"cannot read {self.path}: {error.strerror}")
            return Memory()
        except UnicodeDecodeError:
            return self._damaged("it is not text")
        try:
            memory = Memory.from_json(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            what = "it is not JSON" if isinstance(error, json.JSONDecodeError) else f"{error}"
            return self._damaged(what)
        self.kept = True
        return memory

    def _damaged(self, why: str) -> Memory:
        assert self.path is not None
        aside = self.path.with_suffix(".damaged")
        try:
            self.path.replace(aside)
            moved = f"moved to {aside.name}"
        except OSError as error:
            moved = f"and cannot be moved aside ({error.strerror})"
        self.notes.append(
            f"{self.path} cannot be used: {why}; {moved}; what was remembered is lost, and hold "
            "times begin anew"
        )
        return Memory()

    def writable(self) -> bool:
        """Whether a file could be put there now."""
        return self.path is not None and os.access(self.path.parent, os.W_OK | os.X_OK)

    def save(self, memory: Memory) -> bool:
        """Keep it for the next run; whether that succeeded."""
        if self.path is None:
            return False
        memory.boot, memory.uptime = boot()
        try:
            write_atomic(self.path, json.dumps(memory.to_json(), allow_nan=False))
        except StateError as error:
            self.notes.append(
                f"{error.message}: the next check begins with what was remembered before "
                f"({error.hint})"
            )
            return False
        return True


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # On a file system without locks nobody else can hold one either.
        return error.errno not in {errno.EWOULDBLOCK, errno.EACCES}
    return True


def _holder(handle: int) -> str:
    try:
        pid = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return f" (process {pid})" if pid.isdecimal() else ""


def boot() -> tuple[str | None, float | None]:
    """Which start of the machine this is, and seconds since it; None where it cannot be told."""
    try:
        told = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return told, time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError, ValueError):
        return None, None
