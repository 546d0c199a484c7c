"""The kubelet's side of the API server: requests, and a watch that goes on."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

Object = dict[str, Any]
STRATEGIC = "application/strategic-merge-patch+json"
LOG = logging.getLogger("kubelet")


class Client:
    """`async with Client(server, folder) as client`; certificates are in the folder."""

    def __init__(self, server: str, folder: Path) -> None:
        self._server = server
        self._tls = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        self._tls.load_cert_chain(folder / "admin.pem", folder / "admin.key")

    async def __aenter__(self) -> Client:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, Object]:
        """A request; its status, and the object that came."""
        data = None if body is None else json.dumps(body)
        timeout = aiohttp.ClientTimeout(30)
        headers = {"Content-Type": content_type}
        async with self._session.request(
            method, f"{self._server}{path}", data=data, headers=headers, timeout=timeout
        ) as answer:
            found: Object = await answer.json(content_type=None)
            return answer.status, found

    async def watch(self, path: str) -> AsyncIterator[tuple[str, Object]]:
        """The objects at a path as ADDED, then each change; listed anew when the stream breaks."""
        seen: dict[str, Object] = {}
        while True:
            try:
                status, found = await self.ask("GET", path)
                if status != 200:
                    raise aiohttp.ClientError(f"list: {status}")
                fresh = {item["metadata"]["uid"]: item for item in found["items"]}
                for uid in seen.keys() - fresh.keys():
                    yield "DELETED", seen.pop(uid)
                for uid, item in fresh.items():
                    seen[uid] = item
                    yield "ADDED", item
                async for kind, item in self._stream(path, found["metadata"]["resourceVersion"]):
                    uid = item["metadata"]["uid"]
                    if kind == "DELETED":
                        seen.pop(uid, None)
                    else:
                        seen[uid] = item
                    yield kind, item
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                LOG.warning("watch of %s: %s", path, error)
                await asyncio.sleep(0.5)

    async def _stream(self, path: str, version: str) -> AsyncIterator[tuple[str, Object]]:
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "300"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        # An object is a line, and may be longer than the reader's usual limit.
        async with self._session.get(
            f"{self._server}{path}", params=query, timeout=timeout, read_bufsize=2**22
        ) as answer:
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]
