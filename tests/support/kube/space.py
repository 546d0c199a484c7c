"""A network namespace, programs that run in it, and ports through which a test reaches them.

Everything of a cluster lives in one: its addresses (nodes 10.200.0.N, pods 10.200.1.0 and up) are
real to the programs inside and exist nowhere else, and each program has its usual port. The test
itself stays where it is and reaches a server inside through a forwarded port on 127.0.0.1.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.kube.binaries import ROOT
from tests.support.real import absent

HOST = "10.200.0.1"
"""The address of what is neither a node nor a pod: the API server, Prometheus."""
_PATIENCE_S = 5.0
# A program dies with the thread that started it, however that ends.
_LEASH = ("setpriv", "--pdeathsig", "KILL", "--")


class Space:
    """A network namespace with an address range of its own: `with Space(folder) as space`."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where programs run and their logs go."""
        self.folder = folder
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Space:
        self._holder = subprocess.Popen(
            [*_LEASH, "unshare", "--net", "sleep", "infinity"], stderr=subprocess.PIPE
        )
        own = Path("/proc/self/ns/net").readlink()
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                if Path(f"/proc/{self._holder.pid}/ns/net").readlink() != own:
                    break
            except OSError:
                pass
            if self._holder.poll() is not None or time.monotonic() > until:
                self._holder.kill()
                said = self._holder.communicate()[1].decode().strip()
                absent(f"no network namespace can be made here: {said or 'unshare did not answer'}")
            time.sleep(0.01)
        # An address with its prefix on the loopback makes the whole range local; the API server
        # does not start without a default route.
        self.run(
            "sh",
            "-euc",
            f"ip link set lo up; ip addr add {HOST}/16 dev lo; "
            f"ip route add default dev lo src {HOST}",
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _name, process in reversed(self._running):
            self.stop(process)
        self._holder.kill()
        self._holder.communicate()

    def inside(self, *words: str | Path) -> list[str]:
        """The command line that runs a program inside."""
        net = f"--net=/proc/{self._holder.pid}/ns/net"
        return [*_LEASH, "nsenter", net, "--", *map(str, words)]

    def run(self, *words: str | Path) -> str:
        """Run a program inside to its end; what it printed."""
        done = subprocess.run(
            self.inside(*words), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{words[0]}: {done.stderr}"
        return done.stdout

    def start(
        self,
        name: str,
        *words: str | Path,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a program inside; its output goes to `NAME.log`, and it ends with the space."""
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                self.inside(*words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
                pass_fds=pass_fds,
            )
        self._running.append((name, process))
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End a program; the API server waits for its watchers, so it is not waited for long."""
        process.terminate()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._running = [(name, one) for name, one in self._running if one is not process]

    def log(self, name: str) -> Path:
        """Where the output of a program is."""
        return self.folder / f"{name}.log"

    def forward(self, port: int, address: str = HOST) -> int:
        """Open a port on 127.0.0.1 outside that leads to one inside; its number.

        A socket belongs to the namespace it was made in: the forwarder inherits the listening one
        from out here and connects from in there.
        """
        with socket.create_server(("127.0.0.1", 0)) as listening:
            fd = listening.fileno()
            words = (
                sys.executable,
                "-m",
                "tests.support.kube.forward",
                str(fd),
                address,
                str(port),
            )
            self.start(f"forward-{port}", *words, pass_fds=(fd,))
            number: int = listening.getsockname()[1]
            return number

    def memory(self) -> dict[str, int]:
        """Resident memory of each program, MiB."""
        found = {}
        for name, process in self._running:
            status = Path(f"/proc/{process.pid}/status").read_text()
            kib = next((line for line in status.splitlines() if line.startswith("VmRSS")), None)
            if kib is not None:
                found[name] = int(kib.split()[1]) // 1024
        return found
