"""Which of the lab's servers is up: by the process that it started, not by who answers."""

from __future__ import annotations

import os
import socket
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from driver.groups import GROUPS, Arm, Group
from driver.places import Places, Stop

PORT = int(os.environ.get("LAB_PORT", "8101"))
GOING_S = 10.0
"""How long a port that nobody of this lab holds may take to fall free: a server that was killed
with a GPU's memory goes slowly."""


def port(group: Group, arm: Arm) -> int:
    """An arm's own, whichever others are asked for."""
    names = [each.name for each in GROUPS.get(group.name, group).arms]
    return PORT + names.index(arm.name)


def folder(places: Places, group: Group) -> Path:
    """Logs and process ids of a group's servers."""
    return places.work / "servers" / group.name


def pid_file(places: Places, group: Group, arm: Arm) -> Path:
    """Where the process id of an arm's server is, and when that process began."""
    return folder(places, group) / f"{arm.name}.pid"


def keep(file: Path, pid: int) -> None:
    """Notes a process; when it began, since the machine may give its number to another."""
    file.write_text(f"{pid} {_began(pid) or ''}")


def pid(file: Path) -> int | None:
    """The process of a file; None where the number is another's by now, or the file is no such."""
    try:
        first, *began = file.read_text().split()
        number = int(first)
    except (OSError, ValueError):
        return None
    now = _began(number)
    return None if began and now and began[0] != now else number


def alive(file: Path) -> bool:
    """Whether the process of a file runs."""
    number = pid(file)
    if number is None:
        return False
    try:
        os.kill(number, 0)
    except OSError:
        return False
    stat = _stat(number)
    return not stat or stat[0] != "Z"


def _stat(number: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()
    return []


def _began(number: int) -> str | None:
    stat = _stat(number)
    return stat[19] if len(stat) > 19 else None


def answers(at: int) -> bool:
    """Whether a server is ready there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{at}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def is_up(places: Places, group: Group, arm: Arm) -> bool:
    """Whether an arm's own server runs and is ready."""
    return alive(pid_file(places, group, arm)) and answers(port(group, arm))


def left(places: Places) -> list[str]:
    """Groups of which a server runs."""
    found = (group for group in GROUPS.values() if folder(places, group).exists())
    return [group.name for group in found if any(map(alive, folder(places, group).glob("*.pid")))]


def refuse_others(places: Places, group: Group) -> None:
    """Raises where the port of an arm that is to be started is another's."""
    wanted = {port(group, a) for a in group.arms if not alive(pid_file(places, group, a))}
    for other in GROUPS.values():
        for arm in other.arms if other.name != group.name else ():
            if port(other, arm) in wanted and alive(pid_file(places, other, arm)):
                raise Stop(
                    f"{other.name}/{arm.name} is up still, on port {port(other, arm)}: "
                    f"run stop {other.name}"
                )
    end = time.monotonic() + GOING_S
    while taken := [at for at in sorted(wanted) if _listens(at)]:
        if time.monotonic() > end:
            raise Stop(
                f"port {taken[0]} is taken by a process that this lab did not start (nothing of "
                f"it in {places.work}/servers): end it, or give the --work that it was started with"
            )
        time.sleep(0.5)


def _listens(at: int) -> bool:
    with socket.socket() as asked:
        asked.settimeout(1)
        return asked.connect_ex(("127.0.0.1", at)) == 0
