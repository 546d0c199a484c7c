"""A folder is one training's at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from speccli.core.errors import SpecctlError, UsageError, unwritable
from speccli.core.locks import taken_by

LOCK = ".training"
"""Held by the process that trains in a folder, whose id is in it."""


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Two trainings in one folder would write each other's checkpoints.

    What a job that is refused would leave is removed: the lock, and folders with nothing in them.

    Raises:
        UsageError: nothing can be written there.
        SpecctlError: another training is at work in it.
    """
    new = [each for each in (out / LOCK, out, *out.parents) if not each.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / LOCK).open("a+", encoding="ascii")
    except OSError as error:
        raise unwritable(error, out, UsageError, hint="--out DIR") from error
    with file:
        if (other := taken_by(file)) is not None:
            raise SpecctlError(
                f"process {other} is training in {out}",
                hint="wait for it or interrupt it; or give another --out",
            )
        try:
            yield
        except UsageError:
            _remove(new)
            raise


def _remove(new: Sequence[Path]) -> None:
    """Those that nothing else is in, the innermost first."""
    for path in new:
        with contextlib.suppress(OSError):
            path.unlink() if path.name == LOCK else path.rmdir()
