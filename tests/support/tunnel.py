"""An HTTP proxy that passes TLS on (CONNECT), and tells for whom."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class Tunnel:
    """Listens on a port of its own: `with Tunnel() as proxy`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._busy: list[threading.Thread] = []
        self._clients: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Tunnel:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listening.close()
        for each in self._clients:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for busy in self._busy:
            busy.join(2.0)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._clients.append(client)
                busy = threading.Thread(target=self._tunnel, args=(client,), daemon=True)
                self._busy.append(busy)
                busy.start()

    def _tunnel(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        method, where, _ = head.split(b"\r\n")[0].decode().split()
        self.asked.append(f"{method} {where}")
        host, port = where.rsplit(":", 1)
        with client, socket.create_connection((host, int(port))) as server:
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=_copy, args=(client, server), daemon=True)
            back.start()
            _copy(server, client)
            back.join()


def _copy(here: socket.socket, there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := here.recv(65536):
            there.sendall(data)
    for each in (here, there):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
