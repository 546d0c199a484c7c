"""Prompts of an operator's day, as many as a head is to be trained on.

    python benchmarks/lab/operators.py OUT.jsonl [COUNT]

They stand for the logs of an operator's own traffic: the same kind of question as the 64 of
data/operators.jsonl, which are measured with and are never among these, nor anything near them
(`speccli.core.training.near`). Templates and words are this project's; the same count gives the
same file.

Exit codes: 0 written, 64 usage.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from usage import Parser, run  # noqa: E402

from speccli.core.training.near import Known  # noqa: E402

MEASURED = Path(__file__).parent / "data" / "operators.jsonl"
WORDS = Path(__file__).parent / "data" / "operators-words.json"
COUNT = 12_000
_SLOT = re.compile(r"\{(\w+)\}")
_TRIES = 40
"""Prompts in a row that were there before: then the templates are used up."""


def prompts(count: int, seed: int = 0) -> Iterator[dict[str, str]]:
    """Rows of a prompt file, each prompt once."""
    told = json.loads(WORDS.read_text(encoding="utf-8"))
    templates, words = told["templates"], told["words"]
    rng, seen, tries = random.Random(seed), set[str](), 0
    measured = Known(_measured())
    while len(seen) < count and tries < _TRIES:
        text = _filled(rng.choice(templates), words, rng)
        text = text[0].upper() + text[1:]
        if text in seen or measured.has(text):
            tries += 1
            continue
        tries = 0
        seen.add(text)
        yield {"id": f"day-{len(seen):05d}", "prompt": text}


def _measured() -> list[str]:
    lines = MEASURED.read_text(encoding="utf-8").splitlines()
    return [str(json.loads(line)["prompt"]) for line in lines]


def _filled(template: str, words: dict[str, list[str]], rng: random.Random) -> str:
    """Slots filled, and those in what fills them; `n` and its like are numbers."""

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name in _NUMBERS:
            return str(rng.randint(*_NUMBERS[name]))
        return _filled(rng.choice(words[name.rstrip("_")]), words, rng)

    text = _SLOT.sub(fill, template)
    return text.strip()


_NUMBERS = {
    "few": (3, 9),
    "pct": (3, 97),
    "n": (2, 64),
    "many": (100, 9900),
    "port": (8000, 9100),
    "hour": (0, 23),
    "min": (10, 59),
}


def main(arguments: list[str]) -> int:
    """As the module says."""
    parser = Parser("operators", str(__doc__))
    parser.add_argument("out", type=Path, metavar="OUT.jsonl")
    parser.add_argument("count", type=int, nargs="?", default=COUNT, metavar="COUNT")
    asked = parser.parse_args(arguments)
    rows = list(prompts(asked.count))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{asked.out}: {len(rows)} prompts")
    return 0


if __name__ == "__main__":
    run("operators", main)
