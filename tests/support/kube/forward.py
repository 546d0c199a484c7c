"""Pass connections on: `python -m tests.support.kube.forward FD ADDRESS PORT`.

FD is a listening socket that was inherited; the connections it accepts are passed on to ADDRESS.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def serve(listening: socket.socket, address: str, port: int) -> None:
    """Pass on until ended."""

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(address, port)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))
        for one in (writer, back):
            one.close()

    async with await asyncio.start_server(passed, sock=listening) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3])))
