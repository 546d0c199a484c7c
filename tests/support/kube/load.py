"""Clients of a service: `python -m tests.support.kube.load SERVER FOLDER NAMESPACE SERVICE [OUT]`.

Requests arrive at random (Poisson) at the rate in OUT/load-rate (FOLDER's where OUT is not given),
which may change at any time, and go to the service's ready endpoints in turn, as they would behind
a balancer. Each answer is a line of OUT/load.jsonl: when it was sent, how long its first token
took, its status.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.kube.kubelet.client import Client

_LOOK_S = 0.25
_IDLE_S = 0.2
OUTPUT_TOKENS = 128


def set_rate(folder: Path, rate: float) -> None:
    """Let so many requests come a second; the load reads the whole file or the one before."""
    fresh = folder / "load-rate.new"
    fresh.write_text(str(rate))
    fresh.replace(folder / "load-rate")


def rate_of(folder: Path) -> float:
    """How many come a second."""
    return float((folder / "load-rate").read_text())


def answered(folder: Path) -> list[dict[str, Any]]:
    """What has been answered so far; a line that is being written is no answer yet."""
    try:
        whole, _, _ = (folder / "load.jsonl").read_text().rpartition("\n")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in whole.splitlines()]


class Load:
    """An open loop: requests come whether or not the ones before were answered."""

    def __init__(self, client: Client, folder: Path, namespace: str, service: str) -> None:
        self._client = client
        self._folder = folder
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._path = f"{slices}?labelSelector=kubernetes.io/service-name%3D{service}"
        self.ready: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def look(self) -> None:
        """Keep the list of ready endpoints."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                status, found = await self._client.ask("GET", self._path)
                if status == 200:
                    self.ready = sorted(_ready(found["items"]))
            await asyncio.sleep(_LOOK_S)

    async def arrive(self) -> None:
        """Let requests come."""
        turn, rng = itertools.count(), random.Random(7)
        connector = aiohttp.TCPConnector(limit=0)
        at = time.monotonic()
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                rate = rate_of(self._folder)
                if not rate or not self.ready:
                    await asyncio.sleep(_IDLE_S)
                    at = time.monotonic()
                    continue
                at += rng.expovariate(rate)
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                host = self.ready[next(turn) % len(self.ready)]
                task = asyncio.create_task(self._ask(session, host))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _ask(self, session: aiohttp.ClientSession, host: str) -> None:
        sent, began = time.time(), time.monotonic()
        first: float | None = None
        body = {"prompt": "word " * 200, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
        status = 0
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.post(
                f"http://{host}:8000/v1/completions", json={**body, "stream": True}
            ) as answer:
                async for _line in answer.content:
                    if first is None:
                        first = time.monotonic() - began
                status = answer.status
        line = {"sent": sent, "first_s": first, "status": status, "host": host}
        with (self._folder / "load.jsonl").open("a") as out:
            out.write(json.dumps(line) + "\n")


def _ready(slices: list[dict[str, Any]]) -> set[str]:
    return {
        address
        for one in slices
        for endpoint in one.get("endpoints") or []
        if endpoint.get("conditions", {}).get("ready")
        for address in endpoint["addresses"]
    }


async def main(server: str, folder: Path, namespace: str, service: str, out: Path) -> None:
    """Run until ended."""
    async with Client(server, folder) as client:
        load = Load(client, out, namespace, service)
        await asyncio.gather(load.look(), load.arrive())


if __name__ == "__main__":
    server, folder, namespace, service, *out = sys.argv[1:]
    asyncio.run(main(server, Path(folder), namespace, service, Path((out or [folder])[0])))
