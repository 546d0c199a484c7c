"""A file that one process has locked, and that says which."""

from __future__ import annotations

import fcntl
import os
from typing import IO


def taken_by(file: IO[str]) -> str | None:
    """Lock `file` for as long as it is open, and write this process's number into it.

    None: it is this process's now. Else the number of the one that has it, as far as it tells.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        return file.read().strip() or "unknown"
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return None
