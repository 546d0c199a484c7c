"""Clients that never stop: `python -m tests.support.kube.clients SERVER FOLDER NAMESPACE SERVICE`.

FOLDER/clients-NAMESPACE.json says how many there are (`clients`), which share of their requests
wants an answer under a grammar (`grammar`), and how long answers are in the mean (`tokens`; half of
it to one and a half, so that clients do not go in step); it may change at any time.
Each sends a request, waits for its whole answer, and sends the next, to the service's ready
endpoints in turn, as behind a balancer; nothing is tried twice, and after a failure it waits a
second. Each request is a line of FOLDER/clients-NAMESPACE.jsonl.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.kube.kubelet.client import Client
from tests.support.kube.load import Load

_LOOK_S = 0.25
_PAUSE_S = 1.0
_LONGEST_S = 120.0
GRAMMAR = {"type": "json_object"}


def asked(folder: Path, namespace: str) -> Path:
    """What they are told."""
    return folder / f"clients-{namespace}.json"


def told(folder: Path, namespace: str) -> Path:
    """What they tell."""
    return folder / f"clients-{namespace}.jsonl"


class Clients(Load):
    """A closed loop: so many requests are in flight, whatever happens."""

    def __init__(self, client: Client, folder: Path, namespace: str, service: str) -> None:
        super().__init__(client, folder, namespace, service)
        self._turn, self._rng = itertools.count(), random.Random(7)
        self._asked: dict[str, Any] = {}
        self._paths = asked(folder, namespace), told(folder, namespace)

    async def arrive(self) -> None:
        """Keep as many clients as are asked for."""
        connector = aiohttp.TCPConnector(limit=0)
        clients: list[asyncio.Task[None]] = []
        orders, report = self._paths
        with report.open("a", buffering=1) as self._out:
            async with aiohttp.ClientSession(connector=connector) as session:
                while True:
                    self._asked = json.loads(orders.read_text())
                    wanted = int(self._asked["clients"])
                    while len(clients) > wanted:
                        clients.pop().cancel()
                    while len(clients) < wanted:
                        clients.append(asyncio.create_task(self._go_on(session)))
                    await asyncio.sleep(_LOOK_S)

    async def _go_on(self, session: aiohttp.ClientSession) -> None:
        while True:
            found = await self._one(session)
            self._out.write(json.dumps(found) + "\n")
            if found["failure"]:
                await asyncio.sleep(_PAUSE_S)

    async def _one(self, session: aiohttp.ClientSession) -> dict[str, Any]:
        """A request and what came of it."""
        tokens = round(self._asked["tokens"] * self._rng.uniform(0.5, 1.5))
        body: dict[str, Any] = {"prompt": "word " * 200, "max_tokens": tokens, "ignore_eos": True}
        if self._rng.random() < self._asked["grammar"]:
            body["response_format"] = GRAMMAR
        at, began = time.time(), time.monotonic()
        got, failure = 0, ""
        if self.ready:
            host = self.ready[next(self._turn) % len(self.ready)]
            try:
                got, failure = await _answered(session, host, body)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                failure = type(error).__name__
        else:
            failure = "no server is ready"
        took = time.monotonic() - began
        return {"at": at, "s": round(took, 4), "tokens": got, "failure": failure}


async def _answered(
    session: aiohttp.ClientSession, host: str, body: dict[str, Any]
) -> tuple[int, str]:
    timeout = aiohttp.ClientTimeout(_LONGEST_S)
    url = f"http://{host}:8000/v1/completions"
    async with session.post(url, json=body, timeout=timeout) as answer:
        if answer.status != 200:
            return 0, f"HTTP {answer.status}"
        return int((await answer.json())["usage"]["completion_tokens"]), ""


async def main(server: str, folder: Path, namespace: str, service: str) -> None:
    """Run until ended."""
    async with Client(server, folder) as client:
        clients = Clients(client, folder, namespace, service)
        await asyncio.gather(clients.look(), clients.arrive())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]))
