"""A control plane to try things on: `python -m tests.support.kube [--keda]`, until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from tests.support.kube.cluster import World
from tests.support.kube.plane import Plane


def main() -> None:
    """Start it, print where its kubeconfig is, and wait."""
    with (
        tempfile.TemporaryDirectory(prefix="plane-") as folder,
        Plane(Path(folder)) as plane,
        World(plane) as world,
    ):
        if "--keda" in sys.argv[1:]:
            world.need_keda()
        took = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in plane.took.items())
        sys.stderr.write(f"{took}; MiB: {plane.space.memory()}\n")
        sys.stdout.write(f"export KUBECONFIG={plane.kubeconfig}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        main()
