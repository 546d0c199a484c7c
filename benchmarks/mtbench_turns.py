"""Both turns of MT-bench as prompts: the second one after the served model's own greedy answer.

    .venv/bin/python benchmarks/mtbench_turns.py URL question.jsonl OUT.jsonl [QUESTIONS]

`--dataset mtbench` asks first turns alone, for a second one hangs on an answer. With that answer
kept in the file it is a prompt like any other, the same for every arm.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TOKENS = 200
IN_FLIGHT = 8
Message = dict[str, str]


def main() -> None:
    """Asks the first turns, writes two prompts a question."""
    url, questions, out = sys.argv[1].rstrip("/"), Path(sys.argv[2]), Path(sys.argv[3])
    rows = [json.loads(line) for line in questions.read_text().splitlines() if line.strip()]
    rows = rows[: int(sys.argv[4])] if len(sys.argv) > 4 else rows
    model = _json(f"{url}/v1/models")["data"][0]["id"]

    def turns(row: dict[str, Any]) -> list[dict[str, Any]]:
        first: list[Message] = [{"role": "user", "content": row["turns"][0]}]
        asked = {"model": model, "messages": first, "max_tokens": TOKENS, "temperature": 0}
        told = _json(f"{url}/v1/chat/completions", asked)["choices"][0]["message"]["content"]
        second = [
            *first,
            {"role": "assistant", "content": told},
            {"role": "user", "content": row["turns"][1]},
        ]
        name = row["question_id"]
        return [{"id": f"{name}/1", "messages": first}, {"id": f"{name}/2", "messages": second}]

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        prompts = [prompt for pair in pool.map(turns, rows) for prompt in pair]
    out.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))


def _json(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
