"""The kubelet's own server: the API server fetches logs from it and has programs executed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from tests.support.kube.kubelet import execute
from tests.support.kube.kubelet.container import Container
from tests.support.kube.nodes import KUBELET_PORT

Find = Callable[[str, str, str], Container | None]
"""The container that namespace, pod and container name."""


def _tail(lines: list[bytes], count: str | None) -> list[bytes]:
    return lines if count is None else lines[len(lines) - min(int(count), len(lines)) :]


async def serve(folder: Path, find: Find) -> web.AppRunner:
    """Listen at every node's address."""

    async def container_logs(http: web.Request) -> web.StreamResponse:
        names = http.match_info
        previous = http.query.get("previous") == "true"
        container = find(names["namespace"], names["pod"], names["container"])
        path = container.log(previous) if container is not None else None
        if container is None or path is None:
            which = "previous terminated container" if previous else "container"
            text = f'{which} "{names["container"]}" in pod "{names["pod"]}" not found'
            return web.Response(status=400, text=text)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(http)
        lines = _tail(path.read_bytes().splitlines(keepends=True), http.query.get("tailLines"))
        limit = int(http.query.get("limitBytes", 2**31))
        await response.write(b"".join(lines)[:limit])
        at = path.stat().st_size
        while http.query.get("follow") == "true" and container.running:
            await asyncio.sleep(0.1)
            with path.open("rb") as log:
                log.seek(at)
                new = log.read()
            at += len(new)
            await response.write(new)
        await response.write_eof()
        return response

    async def run_in_container(http: web.Request) -> web.StreamResponse:
        names = http.match_info
        container = find(names["namespace"], names["pod"], names["container"])
        if container is None or not container.running:
            return web.Response(status=500, text=f'container "{names["container"]}" not found')
        return await execute.serve(http, container)

    app = web.Application()
    app.router.add_get("/exec/{namespace}/{pod}/{container}", run_in_container)
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", container_logs)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "kubelet.pem", folder / "kubelet.key")
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", KUBELET_PORT, ssl_context=tls).start()
    return runner
