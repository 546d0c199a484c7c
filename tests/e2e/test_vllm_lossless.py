"""`bench lossless` on real vLLM servers: greedy answers with and without a draft."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from speccli.core.bench.form import read, write
from tests.e2e.harness import Server

pytestmark = pytest.mark.real_vllm


def bench(*words: str | Path) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "speccli", "bench", *map(str, words), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def run(out: Path, plain: Server, drafted: Server) -> None:
    """Six prompts, twice, on both servers."""
    arms = ("--arm", f"none={plain.url}", "--arm", f"eagle3={drafted.url}")
    load = ("--batch", "1", "--requests", "6", "--max-tokens", "24", "--repeats", "2")
    code, _, said = bench("run", *arms, *load, "--api", "completions", "--keep-texts", "--out", out)
    assert code == 0, said


def broken(file: Path, out: Path) -> str:
    """Another word in one answer of the arm that drafts; the prompt it answers."""
    result = read(file)
    texts = {arm: dict(each) for arm, each in (result.texts or {}).items()}
    prompt, kept = next(iter(texts["eagle3"].items()))
    known = str(kept["text"])
    texts["eagle3"][prompt] = {"text": known[:5] + "\N{SNOWMAN}" + known[5:]}
    write(out, replace(result, texts=texts))
    return prompt


def test_a_draft_changes_nothing_and_what_differs_is_classed_by_the_engine(
    tiny_eagle3: Server, tiny_none: Server, tmp_path: Path
) -> None:
    file, other, asked = (tmp_path / f"{name}.json" for name in ("bench", "other", "asked"))
    run(file, tiny_none, tiny_eagle3)
    code, told, _ = bench("lossless", file)
    (arm,) = told["arms"]
    assert arm["beside_baseline"] == {"same": 12, "pairs": 12, "differing": 0}
    assert arm["itself"]["pairs"] == told["baseline_itself"]["pairs"] == 6
    assert arm["texts"]["pairs"] == 6
    assert (arm["partings"], code) == ([], 0)

    prompt = broken(file, other)
    code, told, _ = bench("lossless", other)
    (only,) = told["arms"][0]["partings"]
    assert (code, only["kind"], only["prompt"]) == (3, "unknown", prompt)

    code, told, said = bench("lossless", other, "--ask", tiny_none.url, "--out", asked)
    (only,) = told["arms"][0]["partings"]
    assert (code, only["kind"]) == (2, "wrong"), said
    assert only["gap"] > 0.5
    assert only["counted"], "the place is a token of the engine's"
    assert bench("lossless", asked)[1] == told, "what was asked is kept"
