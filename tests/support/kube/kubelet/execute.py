"""`kubectl exec`, the kubelet's side, by WebSocket: the program runs on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import Any

from aiohttp import WSMsgType, web

from tests.support.kube.kubelet.container import Container

PROTOCOL = "v4.channel.k8s.io"
_OUT, _ERR, _END = b"\1", b"\2", b"\3"


async def serve(http: web.Request, container: Container) -> web.StreamResponse:
    """Run the command that was asked for, and pass its streams on."""
    socket = web.WebSocketResponse(protocols=(PROTOCOL,))
    await socket.prepare(http)
    process = await asyncio.create_subprocess_exec(
        "setpriv", "--pdeathsig", "KILL", "--", *http.query.getall("command"),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env={**os.environ, **container.env},
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    assert process.stderr

    async def passed_on(stream: asyncio.StreamReader, number: bytes) -> None:
        while data := await stream.read(1 << 15):
            await socket.send_bytes(number + data)

    async def fed(into: asyncio.StreamWriter) -> None:
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
                into.write(message.data[1:])
                await into.drain()
        into.close()  # the other side is gone

    feeding = asyncio.create_task(fed(process.stdin))
    with contextlib.suppress(ConnectionError):
        await asyncio.gather(passed_on(process.stdout, _OUT), passed_on(process.stderr, _ERR))
    code = await process.wait()
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    status |= (
        {"status": "Success"}
        if code == 0
        else {
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        }
    )
    if not socket.closed:
        await socket.send_bytes(_END + json.dumps(status).encode())
        await socket.close()
    feeding.cancel()
    return socket
