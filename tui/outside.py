"""What lies outside of the screen: its terminal, its targets, and what happens by itself."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from speccli.core.poll import Poller

_LOOK_S = 1.0
_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Later:
    """Something that is done while the screen is open, and told there (a demonstration's fault)."""

    after_s: float
    act: Callable[[], None]
    subject: str
    """Whom it is about, in the event that tells of it."""
    text: str


def hung_up() -> bool:
    """Whether the terminal is gone: a parent that ignores SIGHUP keeps the signal from us."""
    try:
        os.tcgetpgrp(0)
    except OSError:
        return True
    return False


def leave_once_hung_up(code: int) -> None:
    """End the process if its terminal goes away while it is being given back.

    What is written to it then is never taken, and the screen would wait for that for ever.
    """

    def watch() -> None:
        while not hung_up():
            time.sleep(_LOOK_S)
        time.sleep(_GRACE_S)  # the usual way out may be the quicker one, and ends what was started
        os._exit(code)

    threading.Thread(target=watch, name="specctl-leave", daemon=True).start()


def targets_of(poller: Poller | None) -> Sequence[str]:
    """What the poller reads, as the reader calls it."""
    source = poller.source if poller is not None else None
    targets = getattr(source, "targets", ()) or sorted(getattr(source, "present", ()))
    return tuple(getattr(target, "name", str(target)) for target in targets)
