"""`vllm bench serve`, which also says what CPU time its requests took; for vLLM's own Python.

    .vllm/bin/python benchmarks/vllm_bench_cpu.py CPU.json [arguments of vllm bench serve]

Importing vLLM takes longer than many a bench. What is compared is the time from the first measured
request to the last answer, so the request function is wrapped, and nothing else is touched.
"""

import asyncio
import json
import pathlib
import sys
import time
from typing import Any

from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    """Runs it, then writes `{"cpu_s", "wall_s", "requests"}` of the measured requests."""
    out, words = sys.argv[1], sys.argv[2:]
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    arguments = parser.parse_args(words)
    ask = serve.ASYNC_REQUEST_FUNCS[arguments.backend]
    calls, seen = 0, []

    async def wrapped(request_func_input: Any, session: Any, pbar: Any = None) -> Any:
        nonlocal calls
        calls += 1
        mine = calls
        began = time.process_time(), time.perf_counter()
        answer = await ask(request_func_input, session, pbar)
        seen.append((mine, *began, time.process_time(), time.perf_counter()))
        return answer

    serve.ASYNC_REQUEST_FUNCS[arguments.backend] = wrapped
    asyncio.run(serve.main_async(arguments))
    measured = sorted(seen)[-arguments.num_prompts :]  # a test request and the warm-up go first
    cpu = max(row[3] for row in measured) - min(row[1] for row in measured)
    wall = max(row[4] for row in measured) - min(row[2] for row in measured)
    told = {"cpu_s": cpu, "wall_s": wall, "requests": len(measured)}
    pathlib.Path(out).write_text(json.dumps(told))


main()
