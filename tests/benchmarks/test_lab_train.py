"""The lab's phase `train`: what it asks for, and prompts of an operator's own traffic."""

from __future__ import annotations

import json
from pathlib import Path

import operators
import pytest

from driver import main as lab
from driver import training
from driver.places import Places
from speccli.core.training.near import Known

ROOT = Path(__file__).parents[2]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "work", tmp_path / "out", 600)


def line(places: Places, *words: str) -> list[str]:
    asked = lab._parser().parse_args(["train", *words])
    asked.more = []
    return training.line(places, asked, places.work / "trained" / asked.method)


def after(words: list[str], name: str) -> list[str]:
    return [value for at, value in zip(words, words[1:], strict=False) if at == name]


def test_a_head_from_nothing_is_trained_on_conversations(places: Places) -> None:
    made = line(places)
    assert after(made, "--data") == [str(places.data / "conversations.jsonl")]
    assert "--init" not in made
    assert after(made, "--minutes") == ["4.0"]


def test_the_shipped_head_is_gone_on_from_gently_with_sources_by_share(places: Places) -> None:
    words = ("--init", "shipped", "--data", "operators=0.7", "--data", "conversations=0.3")
    made = line(places, *words, "--minutes", "12", "--rehearse", "--no-accept")
    assert "--no-accept" in made[: made.index("--")]
    assert after(made, "--init") == [str(ROOT / "tests/data/smollm2-135m-eagle3")]
    assert "training.lr=0.001" in after(made, "--set")
    first, second = after(made, "--data")
    assert first == f"{places.work / 'operators-train.jsonl'}=0.7"
    assert second == f"{places.data / 'conversations.jsonl'}=0.3"


def test_what_is_set_by_hand_comes_after_what_the_lab_sets(places: Places) -> None:
    sets = after(line(places, "--init", "shipped", "--set", "training.lr=5e-4"), "--set")
    assert [s for s in sets if s.startswith("training.lr=")] == [
        "training.lr=0.001",
        "training.lr=5e-4",
    ]


def test_what_is_measured_with_is_held_out(places: Places) -> None:
    tests = after(line(places), "--test")
    assert [Path(test).name for test in tests] == ["sharegpt.jsonl", "operators.jsonl"]
    assert Path(tests[1]) == operators.MEASURED


def test_a_call_whose_time_is_up_brings_home_the_head_as_it_is(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = places.work / "trained" / "eagle3"
    asked = lab._parser().parse_args(["train"])
    asked.more = []

    def stopped(*_: object, limit_s: float, **__: object) -> tuple[int, str]:
        assert limit_s <= places.left_s - training.KEEP_S + 1
        for name, held in (
            ("head/model.safetensors", b"w" * (training.PIECE + 5)),
            ("head/config.json", b"{}"),
            ("work/train.jsonl", b'{"step": 7, "loss": 2.5, "tokens_per_s": 9}\n'),
            ("work/train.log", b"a word\n"),
        ):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(held)
        return 130, ""

    monkeypatch.setattr(training, "specctl", stopped)
    assert training.train(places, asked) == 1
    pieces = [places.out / f"head-eagle3-{n}.bin" for n in range(2)]
    assert [len(piece.read_bytes()) for piece in pieces] == [training.PIECE, 5]
    results = places.work / "results"
    assert json.loads((results / "train-eagle3.jsonl").read_text())["step"] == 7
    assert (results / "logs" / "train-eagle3-train.log").read_text() == "a word\n"
    assert not (results / "train-eagle3.json").exists()


def test_generated_prompts_are_many_different_and_the_same_each_time() -> None:
    made = list(operators.prompts(3000))
    texts = [row["prompt"] for row in made]
    assert len(set(texts)) == len({row["id"] for row in made}) == 3000
    assert texts == [row["prompt"] for row in operators.prompts(3000)]
    assert not any(mark in text for text in texts for mark in ("{few", "{part", "{n}", "  "))
    # Varied: hardly any two among the first hundred ask nearly the same.
    near = sum(Known(texts[:at]).has(text) for at, text in enumerate(texts[:100]))
    assert near < 15


def test_none_of_them_is_near_what_is_measured() -> None:
    measured = operators._measured()
    assert len(measured) == 64
    made = [row["prompt"] for row in operators.prompts(3000)]
    known = Known(made)
    assert not [text for text in measured if known.has(text)]


def test_a_template_that_asks_what_is_measured_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = {"templates": [operators._measured()[0]], "words": {}}
    (tmp_path / "w.json").write_text(json.dumps(copied))
    monkeypatch.setattr(operators, "WORDS", tmp_path / "w.json")
    assert list(operators.prompts(5)) == []
