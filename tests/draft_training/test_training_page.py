"""The figures of docs/training.md, held to what was measured."""

import json
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
LOG = [
    json.loads(line)
    for line in (DOCS / "evidence/draft-train-h200-domain.jsonl").read_text().splitlines()
]
HELD: list[dict[str, Any]] = [row["held"] for row in LOG if "held" in row]
STEPS = [row for row in LOG if "loss" in row]


def _short(rate: float) -> str:
    return f"{rate:.3f}".lstrip("0")


def _row(name: str) -> list[str]:
    (line,) = [
        line
        for line in (DOCS / "training.md").read_text().splitlines()
        if line.startswith(f"| {name}") and "→" in line
    ]
    return [cell.strip() for cell in line.strip("|").split("|")[1:]]


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("operators", "operators"),
        ("ShareGPT", "sharegpt"),
        ("HumanEval", "humaneval"),
        ("MT-bench", "mtbench"),
    ],
)
def test_what_the_trainer_saw(name: str, test: str) -> None:
    before, after = HELD[0][test], HELD[-1][test]
    rates = f"{_short(before['rate'])} → {_short(after['rate'])}"
    lengths = " → ".join(f"{each['tokens_per_step']['5']:.2f}" for each in (before, after))
    assert before["k"] == after["k"] == 5
    assert _row(name)[:2] == [rates, lengths]


@pytest.mark.parametrize(
    ("name", "dataset"), [("operators", "operators"), ("ShareGPT", "sharegpt")]
)
def test_what_a_real_engine_accepted(name: str, dataset: str) -> None:
    bench = json.loads((DOCS / "evidence/bench-cpu-domain-head.json").read_text())
    seen = {row["arm"]: row["acceptance"] for row in bench["rows"] if row["dataset"] == dataset}
    arms = [seen["shipped"], seen["domain"]]
    rates = " → ".join(_short(each["rate"]["value"]) for each in arms)
    lengths = " → ".join(f"{each['tokens_per_step']['value']:.2f}" for each in arms)
    assert _row(name)[2:] == [rates, lengths]


def test_what_was_answered() -> None:
    run = json.loads((DOCS / "evidence/draft-train-h200-domain.json").read_text())
    told, page = run["stages"]["answers"], (DOCS / "training.md").read_text()
    assert f"{told['answers']:,} answers, {told['answer_tokens'] / 1e6:.1f} M tokens" in page
    assert f"in {told['seconds']:.0f} s, {run['job']['answers']['seconds']} of them" in page


def test_how_fast_it_was() -> None:
    last = STEPS[-1]
    page = (DOCS / "training.md").read_text()
    assert f"took {last['at_s'] / last['step']:.3f} s" in page
    assert f"step of {last['tokens'] / last['step'] / 1e3:.1f} k tokens" in page
    assert f"({last['tokens'] / last['at_s'] / 1e3:.0f} k tokens a second" in page
    assert f"{last['step']} steps, {last['tokens'] / 1e6:.1f} M" in page
