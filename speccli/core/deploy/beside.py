"""Whether a second server has room beside one that runs: memory of this machine, and GPUs."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SPARE = 1.1
"""A start takes a little more than what runs."""
_GIB = 2**30
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Room:
    """Whether there is room, and the figures."""

    fits: bool
    words: str


def room_beside(group: int, extra_bytes: int = 0, proc: Path = _PROC) -> Room:
    """Whether another like the process group that runs has room, so far as can be told.

    Args:
        group: The id of the running server's session.
        extra_bytes: What it has reserved and may not have touched yet.
        proc: The kernel's folder of processes.
    """
    members = _members(group, proc)
    if any(_on_gpu(each) for each in members):
        return Room(False, "it is on a GPU, which one server fills as a rule")
    sizes = [_resident(each) for each in members]
    if not sizes or None in sizes:
        return Room(False, "the memory it takes cannot be read here")
    free = available(proc)
    if free is None:
        return Room(False, "free memory cannot be read here")
    needed = int((sum(size or 0 for size in sizes) + extra_bytes) * _SPARE)
    words = f"another takes up to {needed / _GIB:.1f} GiB, and {free / _GIB:.1f} GiB are free"
    return Room(needed <= free, words)


def _members(group: int, proc: Path) -> list[Path]:
    found = []
    for stat in proc.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            # After the name, which may have spaces: state, parent, group, session.
            if int(stat.read_text().rpartition(")")[2].split()[3]) == group:
                found.append(stat.parent)
    return found


def _on_gpu(process: Path) -> bool:
    with suppress(OSError):
        links = (process / "fd").iterdir()
        return any(str(link.readlink()).startswith("/dev/nvidia") for link in links)
    return False


def _resident(process: Path) -> int | None:
    """Bytes in memory, pages that are shared counted in parts; None: not to be told."""
    for name, field in (("smaps_rollup", "Pss"), ("status", "VmRSS")):
        with suppress(OSError):
            if found := re.search(rf"^{field}:\s+(\d+) kB", (process / name).read_text(), re.M):
                return int(found[1]) * 1024
    return None


def available(proc: Path = _PROC) -> int | None:
    """Bytes that a new process can have: the machine's, or its control group's if that is less."""
    limits = []
    with suppress(OSError):
        if found := re.search(r"^MemAvailable:\s+(\d+) kB", (proc / "meminfo").read_text(), re.M):
            limits.append(int(found[1]) * 1024)
    with suppress(OSError, ValueError, StopIteration):
        lines = (proc / "self" / "cgroup").read_text().splitlines()
        own = next(line[3:] for line in lines if line.startswith("0::")).lstrip("/")
        folder = Path("/sys/fs/cgroup") / own
        most, now = (int((folder / f"memory.{name}").read_text()) for name in ("max", "current"))
        cache = re.search(r"^inactive_file (\d+)", (folder / "memory.stat").read_text(), re.M)
        limits.append(most - now + (int(cache[1]) if cache else 0))
    return min(limits, default=None)
