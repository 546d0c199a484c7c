"""Clients that never stop, at any URL: availability, failures, latency and tokens by phase.

    .venv/bin/python benchmarks/ladder_client.py URL [--for 60] [--concurrency 2] [--json FILE]

A line on standard input begins a phase of that name (`moved to n-gram`); its end, or `--for`, ends
it all. Connections are kept alive, answers are greedy, and a request counts in the phase in which
it was sent.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

PROMPTS = (
    "The three primary colours are",
    "Water boils at",
    "def fibonacci(n):",
    "A list of the months of the year:",
    "Once upon a time, in a small village,",
    "The capital of France is",
    "To make a cup of tea, first",
    "The difference between a lake and a river is",
)


def main() -> None:
    """Asks until told to stop, then prints the table."""
    from tests.support.ladder_client import Client, plain, table

    parser = argparse.ArgumentParser(description="Clients that never stop.")
    parser.add_argument("url")
    parser.add_argument("--for", dest="seconds", type=float, default=None, help="seconds in all")
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--stream", action="store_true", help="answers in pieces")
    parser.add_argument("--json", type=Path, default=None, help="write the figures there, too")
    given = parser.parse_args()
    ends = time.monotonic() + given.seconds if given.seconds else float("inf")
    client = Client(
        given.url.rstrip("/"),
        PROMPTS,
        concurrency=given.concurrency,
        max_tokens=given.max_tokens,
        stream=given.stream,
    )
    listening = True
    with client:
        while time.monotonic() < ends:
            if not listening:
                time.sleep(min(0.5, ends - time.monotonic()))
            elif select.select([sys.stdin], [], [], 0.5)[0]:
                line = sys.stdin.readline()
                if line.strip():
                    client.phase(line.strip())
                elif not line:
                    listening = False
                    ends = min(ends, time.monotonic() if not given.seconds else ends)
    print(table(client.figures()))
    for each in client.failed[:10]:
        print(f"failed in {each.phase!r}: {each.failure}")
    if given.json:
        given.json.write_text(json.dumps(plain(client.figures()), indent=1) + "\n")


if __name__ == "__main__":
    main()
