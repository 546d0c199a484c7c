"""What the front of a local deployment costs: one server asked directly and through it, in turns.

    .venv/bin/python benchmarks/front.py [--rounds 5] [--requests 60] [--url URL]

Without `--url` a simulated server is started. `GET /health` is the bare cost; answers of 64 tokens,
as a whole and as a stream, are what clients see. Printed are medians of the rounds and, of the same
rounds, the ratio of through to direct: median and range.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import aiohttp

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
BODY = {"prompt": "Once upon a time", "max_tokens": 64, "temperature": 0}
FRONT = """
import asyncio, sys
from speccli.core.deploy.front import Front, Target
async def main():
    front = Front()
    front.target = Target(sys.argv[1], int(sys.argv[2]), "it")
    await front.listen("127.0.0.1", int(sys.argv[3]))
    await asyncio.Event().wait()
asyncio.run(main())
"""
Ask = Callable[[aiohttp.ClientSession, str], Awaitable[float]]


async def health(session: aiohttp.ClientSession, url: str) -> float:
    """Seconds of the shortest request there is."""
    began = time.perf_counter()
    async with session.get(f"{url}/health") as answer:
        await answer.read()
        answer.raise_for_status()
    return time.perf_counter() - began


async def whole(session: aiohttp.ClientSession, url: str) -> float:
    """Seconds to a whole answer."""
    began = time.perf_counter()
    async with session.post(f"{url}/v1/completions", json=BODY) as answer:
        await answer.read()
        answer.raise_for_status()
    return time.perf_counter() - began


async def first(session: aiohttp.ClientSession, url: str) -> float:
    """Seconds to the first piece of a stream, which is then read to its end."""
    began = time.perf_counter()
    async with session.post(f"{url}/v1/completions", json={**BODY, "stream": True}) as answer:
        await answer.content.readany()
        took = time.perf_counter() - began
        await answer.read()
    return took


async def stream(session: aiohttp.ClientSession, url: str) -> float:
    """Seconds to the end of a stream."""
    began = time.perf_counter()
    async with session.post(f"{url}/v1/completions", json={**BODY, "stream": True}) as answer:
        await answer.read()
        answer.raise_for_status()
    return time.perf_counter() - began


CASES: tuple[tuple[str, Ask, int], ...] = (
    ("GET /health", health, 1),
    ("64 tokens, whole", whole, 1),
    ("64 tokens, whole", whole, 16),
    ("64 tokens, stream", stream, 1),
    ("64 tokens, stream", stream, 16),
    ("first piece of a stream", first, 1),
)


async def measured(ask: Ask, url: str, requests: int, at_once: int) -> float:
    """The median of so many requests, ms."""
    took: list[float] = []

    async def client(session: aiohttp.ClientSession) -> None:
        while len(took) < requests:
            took.append(await ask(session, url))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session) for _ in range(at_once)))
    return 1000 * median(took)


@contextlib.contextmanager
def running(words: list[str], url: str) -> Iterator[None]:
    """A process, once it answers."""
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while not asyncio.run(_answers(url)):
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit(f"no answer at {url}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


async def _answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session:
            await health(session, url)
    except aiohttp.ClientError:
        return False
    return True


def main() -> None:
    """Measures, then prints a table."""
    from speccli.core.engines.local import HOST, free_port

    parser = argparse.ArgumentParser(description="What the front costs.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--url", default=None)
    given = parser.parse_args()
    direct = given.url or f"http://{HOST}:{free_port()}"
    port = free_port()
    place = urlsplit(direct)
    sim = [sys.executable, "-m", "speccli", "sim", "--engines", "1", "--rate", "0"]
    sim += ["--method", "ngram", "--acceptance", "1,1,1,1", "--port", str(place.port)]
    front = [sys.executable, "-c", FRONT, str(place.hostname), str(place.port), str(port)]
    with contextlib.ExitStack() as stack:
        if given.url is None:
            stack.enter_context(running(sim, direct))
        stack.enter_context(running(front, f"http://{HOST}:{port}"))
        print("| | at once | direct, ms | through, ms | ratio |\n|---|---|---|---|---|")
        for name, ask, at_once in CASES:
            urls = (direct, f"http://{HOST}:{port}")
            rounds = []
            for turn in range(given.rounds):
                pair = {}
                for which in (0, 1) if turn % 2 else (1, 0):
                    pair[which] = asyncio.run(measured(ask, urls[which], given.requests, at_once))
                rounds.append(pair)
            ratios = [each[1] / each[0] for each in rounds]
            both = (median(each[i] for each in rounds) for i in (0, 1))
            figures = " | ".join(f"{value:.2f}" for value in both)
            spread = f"{min(ratios):.3f}-{max(ratios):.3f}"
            print(
                f"| {name} | {at_once} | {figures} | {median(ratios):.3f} ({spread}) |", flush=True
            )


if __name__ == "__main__":
    main()
