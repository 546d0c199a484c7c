"""`vllm bench serve` again and again, and what CPU time its requests took; for vLLM's own Python.

    .vllm/bin/python benchmarks/vllm_bench_cpu.py   # {"words": [...]} a line in, figures a line out

Importing vLLM takes longer than many a bench, so one process runs all of them. What is compared is
the time from the first measured request to the last answer: the request function is wrapped, and
nothing else is touched.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import sys
import time
from typing import Any

from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser

Seen = list[tuple[int, float, float, float, float]]


def main() -> None:
    """Answers each line with `{"cpu_s", "wall_s", "requests"}` of the measured requests."""
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    plain = dict(serve.ASYNC_REQUEST_FUNCS)
    answers = sys.stdout
    with pathlib.Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        for line in sys.stdin:
            arguments = parser.parse_args(json.loads(line)["words"])
            seen: Seen = []
            backend = arguments.backend
            serve.ASYNC_REQUEST_FUNCS[backend] = _wrapped(plain[backend], seen)
            asyncio.run(serve.main_async(arguments))
            measured = sorted(seen)[-arguments.num_prompts :]  # a test and the warm-up go first
            cpu = max(row[3] for row in measured) - min(row[1] for row in measured)
            wall = max(row[4] for row in measured) - min(row[2] for row in measured)
            told = {"cpu_s": cpu, "wall_s": wall, "requests": len(measured)}
            print(json.dumps(told), file=answers, flush=True)


def _wrapped(ask: Any, seen: Seen) -> Any:
    calls = 0

    async def wrapped(request_func_input: Any, session: Any, pbar: Any = None) -> Any:
        nonlocal calls
        calls += 1
        mine = calls
        began = time.process_time(), time.perf_counter()
        answer = await ask(request_func_input, session, pbar)
        seen.append((mine, *began, time.process_time(), time.perf_counter()))
        return answer

    return wrapped


main()
