"""Stands where vLLM's Python is wanted: `bench serve`, its arguments and its kind of file.

It asks the server it is given, and fills a result that the real tool wrote once. BROKEN in the
environment makes it fail as the tool does, SLOW makes it hang.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "data" / "bench" / "vllm-bench-0.32.0.json"


def main() -> None:
    """As vLLM's Python is called: two questions by `-c`, then the tool by `-m`."""
    if sys.argv[1] == "-c":
        sys.stdout.write("True" if "pandas" in sys.argv[2] else "0.32.0")
        return
    given = dict(zip(sys.argv, sys.argv[1:], strict=False))
    if words := os.environ.get("BROKEN"):
        sys.exit(f"Traceback (most recent call last):\n{words}")
    if os.environ.get("SLOW"):
        time.sleep(600)
    lines = Path(given["--dataset-path"]).read_text().splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines]
    n = int(given["--num-prompts"])
    for _ in range(int(given["--num-warmups"])):
        ask(given, prompts[0])
    told = [ask(given, prompt) for prompt in prompts[:n]]
    document = json.loads(RECORDED.read_text())
    lists = {name: each[:n] for name, each in document.items() if _is_samples(each)}
    outputs = [each["completion_tokens"] for each in told]
    document |= lists | {
        "output_lens": outputs,
        "input_lens": [each["prompt_tokens"] for each in told],
        "completed": n,
        "failed": 0,
        "total_output_tokens": sum(outputs),
        "max_concurrency": int(given["--max-concurrency"]),
        "request_rate": "inf",
        "called": sys.argv[1:],
    }
    (Path(given["--result-dir"]) / given["--result-filename"]).write_text(json.dumps(document))


def ask(given: dict[str, str], prompt: str) -> dict[str, int]:
    """One request's usage."""
    body: dict[str, Any] = {
        "model": given["--model"],
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": int(given["--custom-output-len"]),
    }
    request = urllib.request.Request(
        given["--base-url"] + given["--endpoint"],
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        usage: dict[str, int] = json.load(answer)["usage"]
    return usage


def _is_samples(value: object) -> bool:
    return isinstance(value, list) and len(value) == 24


if __name__ == "__main__":
    main()
