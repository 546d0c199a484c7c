"""A simulated fleet in a process of its own, so that watching it costs what watching costs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

from speccli.core.errors import SpecctlError

_PATIENCE_S = 10.0


@contextlib.contextmanager
def simulated_fleet(engines: int, options: Sequence[str] = ()) -> Iterator[list[str]]:
    """Run `specctl sim` with `options`; yields its URLs, and ends it whatever happens.

    Raises:
        SpecctlError: it did not come up.
    """
    command = [sys.executable, "-m", "speccli", "sim", "--engines", str(engines), "--port", "0"]
    process = subprocess.Popen(
        [*command, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C belongs to the screen; the fleet is ended below.
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        urls = [process.stdout.readline().strip() for _ in range(engines)]
        if not all(urls):
            why = process.stderr.read().strip().splitlines()
            raise SpecctlError(f"the simulated fleet did not start: {why[0] if why else 'no word'}")
        yield urls
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
