"""What lies outside of the screen: its terminal, its targets, and what happens by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from speccli.core.poll import Poller


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


def targets_of(poller: Poller | None) -> Sequence[str]:
    """What the poller reads, as the reader calls it."""
    source = poller.source if poller is not None else None
    targets = getattr(source, "targets", ()) or sorted(getattr(source, "present", ()))
    return tuple(getattr(target, "name", str(target)) for target in targets)
