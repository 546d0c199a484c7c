"""HTTP probes, as often as the pod says times a factor."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp

Object = dict[str, Any]


def port_of(container: Object, port: int | str) -> int:
    """The number of a port that may be named."""
    if isinstance(port, int):
        return port
    return next(int(p["containerPort"]) for p in container["ports"] if p.get("name") == port)


async def once(address: str, container: Object, probe: Object) -> str | None:
    """Why a probe fails, in the kubelet's words; None when it does not. Only httpGet is known."""
    get = probe.get("httpGet")
    if get is None:
        return None
    url = f"http://{address}:{port_of(container, get['port'])}{get.get('path', '/')}"
    timeout = aiohttp.ClientTimeout(float(probe.get("timeoutSeconds", 1)))
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            if 200 <= answer.status < 400:
                return None
            return f"HTTP probe failed with statuscode: {answer.status}"
    except TimeoutError:
        return f'Get "{url}": context deadline exceeded'
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        return f'Get "{url}": dial tcp {urlsplit(url).netloc}: connect: {why}'
    except aiohttp.ClientError as error:
        return f'Get "{url}": {error}'


async def results(
    address: str, container: Object, probe: Object, factor: float
) -> AsyncIterator[tuple[bool, bool, str]]:
    """Each result: whether it passed, whether that makes it count, and why it failed.

    A change counts after `successThreshold` or `failureThreshold` results in a row.
    """
    period = float(probe.get("periodSeconds", 10)) * factor
    needed = {True: int(probe.get("successThreshold", 1)), False: probe.get("failureThreshold", 3)}
    await asyncio.sleep(float(probe.get("initialDelaySeconds", 0)) * factor)
    last, run = True, 0
    while True:
        why = await once(address, container, probe)
        passed = why is None
        run = run + 1 if passed == last else 1
        last = passed
        yield passed, run >= needed[passed], why or ""
        await asyncio.sleep(period)
