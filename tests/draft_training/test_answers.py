"""Answers by several engines at once, with an engine that is made up."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from draft_training import corpus

ROOT = Path(__file__).parents[2]
ENGINE = """
import os, types

class SamplingParams:
    def __init__(self, **given):
        self.n = given.get("n", 1)
        self.greedy = given["temperature"] == 0.0

class LLM:
    def __init__(self, target, **given):
        if os.environ.get("BREAK"):
            raise RuntimeError("CUDA out of memory: tried to allocate 2 GiB")
        if "compilation_config" in given and os.environ.get("NO_GRAPHS"):
            raise ValueError("full graphs need another backend")
        if os.environ.get("SAYS"):
            with open(os.environ["SAYS"], "a") as file:
                print(sorted((k, str(v)) for k, v in given.items()), file=file)
        self.given = given

    def generate(self, inputs, kinds, use_tqdm):
        made = []
        for asked, kind in zip(inputs, kinds, strict=True):
            ids = asked["prompt_token_ids"]
            one = types.SimpleNamespace(token_ids=[ids[0]] * 10)
            made.append(types.SimpleNamespace(prompt_token_ids=ids, outputs=[one] * kind.n))
        return made
"""


def answered(
    folder: Path, engines: int, more: dict[str, Any] | None = None, **env: str
) -> tuple[int, list[dict[str, Any]]]:
    (folder / "site").mkdir()
    (folder / "site" / "vllm.py").write_text(ENGINE)
    (folder / "site" / "torch.py").write_text("class cuda:\n    is_available = bool\n")
    work = folder / "out" / "work"
    work.mkdir(parents=True)
    corpus.write(work / "prompts.npz", [[n, n] for n in range(1, 11)], [2] * 10)
    corpus.write(work / "asked-my-test.npz", [[30, 30], [31, 31]], [2, 2])
    job = {
        "target": "t",
        "out": str(folder / "out"),
        "answers": {"chunk": 2, "engines": engines, "samples": 1, **(more or {})},
        "training": {"steps": 1},
    }
    (folder / "job.json").write_text(json.dumps(job))
    return asked(folder, **env)


def asked(folder: Path, **env: str) -> tuple[int, list[dict[str, Any]]]:
    """The stage once more, as it stands."""
    path = os.pathsep.join((str(folder / "site"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "draft_training", "answers", str(folder / "job.json")],
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("engines", [1, 2, 8])
def test_every_prompt_is_answered_once_whatever_the_number_of_engines(
    tmp_path: Path, engines: int
) -> None:
    code, events = answered(tmp_path, engines)
    assert code == 0
    facts = events[-1]["facts"]
    assert (facts["answers"], facts["answer_tokens"]) == (20, 200)
    assert facts["seconds"] >= 0
    made = corpus.read(sorted((tmp_path / "out" / "work").glob("answers-*.npz")))
    assert sorted(int(d[0]) for d in made.documents) == sorted([*range(1, 11)] * 2)


def test_progress_counts_what_all_engines_made(tmp_path: Path) -> None:
    _, events = answered(tmp_path, 2)
    shares = [e["share"] for e in events if e["event"] == "progress"]
    assert shares == [0.2, 0.4, 0.6, 0.8, 1.0]


@pytest.mark.parametrize("engines", [1, 2])
def test_an_engine_that_fails_says_how(tmp_path: Path, engines: int) -> None:
    code, events = answered(tmp_path, engines, BREAK="1")
    assert code == 1
    assert events[-1]["kind"] == "out-of-memory"


@pytest.mark.parametrize("engines", [1, 2])
def test_held_out_prompts_are_answered_once_greedily_and_apart(
    tmp_path: Path, engines: int
) -> None:
    assert answered(tmp_path, engines)[0] == 0
    work = tmp_path / "out" / "work"
    held = corpus.read([work / "held-my-test.npz"])
    assert [d.tolist() for d in held.documents] == [[30] * 12, [31] * 12]
    assert held.prompt_lengths == [2, 2]
    trained = corpus.read(sorted(work.glob("answers-*.npz")))
    assert not {30, 31} & {int(d[0]) for d in trained.documents}


@pytest.mark.parametrize("engines", [1, 2])
def test_once_the_prompts_are_answered_only_new_tests_are(tmp_path: Path, engines: int) -> None:
    """Time may have been up before all were: asking for the rest would change what is trained."""
    code, events = answered(tmp_path, engines, {"seconds": 1e-6})
    assert code == 0
    work = tmp_path / "out" / "work"
    before = sorted(work.glob("answers-*.npz"))
    assert len(before) < 5
    (work / "held-my-test.npz").unlink()
    code, again = asked(tmp_path)
    assert code == 0
    assert (work / "held-my-test.npz").exists()
    assert sorted(work.glob("answers-*.npz")) == before
    assert again[-1]["facts"]["answers"] == events[-1]["facts"]["answers"]


def test_an_engine_that_takes_no_graphs_without_compilation_answers_eagerly(
    tmp_path: Path,
) -> None:
    told = tmp_path / "said"
    more = {"compile": False, "at_once": 64}
    code, events = answered(tmp_path, 1, more, NO_GRAPHS="1", SAYS=str(told))
    assert code == 0
    assert any("another backend" in str(event.get("without_graphs")) for event in events)
    assert "('enforce_eager', 'True')" in told.read_text()
    assert "('max_num_seqs', '64')" in told.read_text()
