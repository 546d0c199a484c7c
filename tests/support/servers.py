"""Local servers that answer as a test says, and tell what they were asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any

from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class _Counting(web.Server):
    accepted = 0

    def __call__(self) -> Any:
        self.accepted += 1
        return super().__call__()


class Server:
    """An HTTP server at a port of its own."""

    def __init__(
        self,
        handler: Handler,
        *,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """`handler`: answers every request, whatever its path."""
        self._handler = handler
        self._tls = tls
        self._host = host
        self.port = port
        self.asked: list[web.BaseRequest] = []

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http{'s' if self._tls else ''}://{host}:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.asked]

    @property
    def connections(self) -> int:
        """How many were accepted."""
        return self._server.accepted

    async def __aenter__(self) -> Server:
        self._server = _Counting(self._answer)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request)
        return await self._handler(request)


def answering(
    body: str | bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Handler:
    """The same answer at `/metrics`, 404 elsewhere."""
    raw = body.encode() if isinstance(body, str) else body

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if not request.path.rstrip("/").endswith("/metrics"):
            return web.Response(status=404)
        return web.Response(status=status, body=raw, headers=headers)

    return handler


class RawServer:
    """A server that sends exactly these bytes to whoever asks, and closes."""

    def __init__(self, answer: bytes, *, hang: bool = False) -> None:
        """`hang`: keep the connection open after them."""
        self._answer = answer
        self._hang = hang
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        await writer.drain()
        if not self._hang:
            writer.close()
