"""One address for clients while the servers behind it come and go, and no request is lost.

`Front` knows as much HTTP/1.1 as tells where a message ends. A request goes to the server that is
the present one when its head is whole, over a connection of its own. So nothing is closed at a
switch: a client's idle connection leads to the new server with its next request, and a server has
been left when its last answer is. Bodies pass in pieces as they come, both ways.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from http import HTTPStatus

_LIMIT = 64 * 1024
"""Bytes of a head, and of a piece of a body."""
_BACKLOG = 1024
_OF_ONE_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection"})
_BROKEN = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)


@dataclass(eq=False, slots=True)
class Target:
    """A server that requests can go to."""

    host: str
    port: int
    words: str
    """What it is, where it does not answer."""
    requests: int = 0
    """Those it has not answered in full."""


class _Reader(asyncio.StreamReader):
    """Tells at once when its peer is gone, though nobody reads."""

    gone = False
    other: asyncio.WriteTransport | None = None
    """What is of no use then."""

    def feed_eof(self) -> None:
        super().feed_eof()
        self._end()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self._end()

    def _end(self) -> None:
        self.gone = True
        if self.other is not None:
            self.other.abort()


@dataclass(slots=True)
class _Head:
    """The first line and the headers of a message."""

    first: bytes
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Each name in small letters, and its whole line."""

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> _Head:
        first, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        return cls(first, [(line.partition(b":")[0].strip().lower(), line) for line in lines])

    def get(self, name: bytes) -> bytes:
        """Its value in small letters; empty where there is none."""
        values = (line.partition(b":")[2].strip() for key, line in self.fields if key == name)
        return b", ".join(values).lower()

    @property
    def chunked(self) -> bool:
        return b"chunked" in self.get(b"transfer-encoding")

    @property
    def length(self) -> bytes:
        return self.get(b"content-length")

    @property
    def status(self) -> bytes:
        """Of an answer; of three digits, or it is none."""
        status = self.first.partition(b" ")[2][:3]
        if len(status) != 3 or not status.isdigit():
            raise ValueError(f"no status in {self.first!r}")
        return status

    def bytes(self, *, close: bool) -> bytes:
        """As it is sent on: what was agreed on for one connection is not for the next."""
        lines = [line for key, line in self.fields if key not in _OF_ONE_HOP]
        return b"\r\n".join(
            [self.first, *lines, *([b"Connection: close"] if close else []), b"", b""]
        )


class Front:
    """Listens at one port, and passes requests on to `target`."""

    def __init__(self) -> None:
        self.target: Target | None = None
        """The present server; None: requests are answered with 503."""
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        """Begin to take connections.

        Raises:
            OSError: the port cannot be had.
        """
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(_Reader(_LIMIT, loop=loop), self._client, loop=loop)

        self._server = await loop.create_server(protocol, host, port, backlog=_BACKLOG)

    def close(self) -> None:
        """Take no connections any more; those there are stay."""
        if self._server is not None:
            self._server.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, _Reader)
        try:
            # At the end of the loop, too: streams tell a cancelled task as an error.
            with contextlib.suppress(*_BROKEN, asyncio.CancelledError):
                while await self._exchange(await _Head.read(reader), reader, writer):
                    pass
        finally:
            writer.close()

    async def _exchange(self, head: _Head, reader: _Reader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection can have another."""
        target = self.target
        if target is None:
            return await _refuse(503, "nothing serves", head, reader, writer)
        target.requests += 1
        try:
            back, forth = await asyncio.open_connection(target.host, target.port, limit=_LIMIT)
        except OSError:
            target.requests -= 1
            words = f"{target.words} does not answer: it is starting, or has ended"
            return await _refuse(503, words, head, reader, writer)
        try:
            reader.other = forth.transport
            how = _splice if head.get(b"upgrade") else _pass_on
            return not reader.gone and await how(head, reader, writer, back, forth)
        finally:
            target.requests -= 1
            reader.other = None
            forth.transport.abort()


async def _pass_on(
    head: _Head,
    reader: _Reader,
    writer: asyncio.StreamWriter,
    back: asyncio.StreamReader,
    forth: asyncio.StreamWriter,
) -> bool:
    forth.write(head.bytes(close=True))
    # Beside the answer: a server may answer, or say 100, before it has the body.
    sending = asyncio.ensure_future(_body(head, reader, forth))
    begun = False
    try:
        answer = await _Head.read(back)
        while answer.status.startswith(b"1"):
            begun = True
            writer.write(answer.bytes(close=False))
            answer = await _Head.read(back)
        bare = head.first.startswith(b"HEAD ") or answer.status in {b"204", b"304"}
        endless = not (bare or answer.length or answer.chunked)
        close = endless or b"close" in head.get(b"connection") or head.first.endswith(b"/1.0")
        begun = True
        writer.write(answer.bytes(close=close))
        await writer.drain()
        whole = bare or await _answered(answer, back, writer)
        return whole and not close and sending.done()
    except _BROKEN:
        if begun or reader.gone:
            raise
        return await _refuse(502, "the server ended before it answered", None, reader, writer)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _answered(
    answer: _Head, back: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Pass the body of an answer on; whether it was whole."""
    count = int(answer.length) if answer.length and not answer.chunked else None
    # Asked to close, a server ends what is chunked by closing: no chunk need be read.
    seen, tail = await _copy(back, writer, count)
    return tail in {b"\r\n0\r\n\r\n", b"0\r\n\r\n"} if count is None else seen == count


async def _body(head: _Head, reader: _Reader, to: asyncio.StreamWriter | None) -> None:
    """Pass the body of a request on; None: pass over it."""
    if not head.chunked:
        await _copy(reader, to, int(head.length or 0))
        return
    size, line = -1, b""
    while line != b"\r\n":
        line = await reader.readuntil(b"\r\n")
        if to is not None:
            to.write(line)
        if size:  # after the last one come only trailers, and an empty line
            size = int(line.partition(b";")[0], 16)
            await _copy(reader, to, size + 2 if size else 0)


async def _copy(
    source: asyncio.StreamReader, to: asyncio.StreamWriter | None, count: int | None = None
) -> tuple[int, bytes]:
    """Pass so many bytes on, or all there are; how many there were, and the last ones."""
    seen, tail = 0, b""
    while seen != count:
        piece = await source.read(_LIMIT if count is None else min(count - seen, _LIMIT))
        if not piece:
            break
        if to is not None:
            to.write(piece)
            await to.drain()
        seen += len(piece)
        tail = (tail + piece[-7:])[-7:]
    return seen, tail


async def _splice(
    head: _Head,
    reader: _Reader,
    writer: asyncio.StreamWriter,
    back: asyncio.StreamReader,
    forth: asyncio.StreamWriter,
) -> bool:
    """What becomes another protocol is passed on as it comes, until either side ends."""
    forth.write(b"\r\n".join([head.first, *(line for _, line in head.fields), b"", b""]))
    ways = [asyncio.ensure_future(each) for each in (_copy(reader, forth), _copy(back, writer))]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for way in ways:
        way.cancel()
    await asyncio.gather(*ways, return_exceptions=True)
    return False


async def _refuse(
    status: int, words: str, head: _Head | None, reader: _Reader, writer: asyncio.StreamWriter
) -> bool:
    """Answer in the server's place. `head` None: part of the request has been read."""
    again = head is not None and not head.get(b"expect")
    if head is not None and again:
        await _body(head, reader, None)
        again = b"close" not in head.get(b"connection")
    text = json.dumps({"error": {"message": words, "type": "unavailable", "code": status}})
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(text)}", "Retry-After: 5"]
    writer.write(
        "\r\n".join([*lines, *([] if again else ["Connection: close"]), "", text]).encode()
    )
    await writer.drain()
    return again
