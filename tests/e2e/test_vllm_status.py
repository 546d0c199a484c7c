"""specctl on real vLLM servers: what it says is what the server's own counters say.

The burst of each test begins after specctl has taken its first scrape and ends before its last, so
that both see exactly the same increase.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import START_DEADLINE_S, Exposition, Prompt, Server, Tally
from tests.e2e.tiny_pair import Plan

pytestmark = pytest.mark.real_vllm

SPECCTL = [sys.executable, "-m", "speccli"]
PATIENT = ("--deadline", "1m")
"""A server that works on a busy machine answers late."""


def run(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [*SPECCTL, *words, "-o", "json"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def status_over(
    server: Server, prompts: Sequence[Prompt], max_tokens: int, folder: Path
) -> tuple[dict[str, Any], Tally]:
    """`status` of a recording that holds one burst, and the server's own count of that burst."""
    server.send(prompts[:1], max_tokens=8)  # the first request of a server is slow
    file = folder / "burst.jsonl"
    before = server.metrics()
    recorder = subprocess.Popen(
        [*SPECCTL, "record", str(file), "--endpoint", server.url, "--interval", "500ms", *PATIENT],
        stderr=subprocess.PIPE,
    )
    try:
        wait_for_answers(file, 1)
        server.send(prompts, max_tokens=max_tokens)
        # The next one may have been asked for before the last token came.
        wait_for_answers(file, answers(file) + 2)
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.communicate(timeout=120)
    assert recorder.returncode == 0
    return run("status", "--replay", str(file)), Tally.between(before, server.metrics())


def answers(file: Path) -> int:
    """Pages in a recording."""
    return file.read_text().count('"status": 200') if file.exists() else 0


def wait_for_answers(file: Path, enough: int) -> None:
    """Until the recording holds so many pages."""
    ends = time.monotonic() + START_DEADLINE_S
    while answers(file) < enough:
        assert time.monotonic() < ends, "specctl recorded nothing"
        time.sleep(0.05)


def values(numbers: list[dict[str, Any]]) -> list[float]:
    return [number["value"] for number in numbers]


def test_eagle3_status_is_the_servers_own_count_and_the_design(
    tiny_eagle3: Server, tiny_plan: Plan, tmp_path: Path
) -> None:
    prompts = tiny_plan.prompts(32)
    answer, own = status_over(tiny_eagle3, prompts, 128, tmp_path)
    (engine,) = answer["engines"]
    assert engine["state"] == "ok"
    assert engine["method"] == "eagle3"
    assert engine["version"] == "0.32.0"
    assert engine["drafts"]["value"] == own.drafts
    assert engine["acceptance_length"]["value"] == pytest.approx(own.acceptance_length)
    assert values(engine["acceptance_by_position"]) == pytest.approx(list(own.acceptance))
    assert engine["acceptance_rate"]["value"] == pytest.approx(own.accepted / own.draft_tokens)
    assert engine["tokens_per_step"]["value"] == pytest.approx(own.tokens_per_step)
    design = tiny_plan.design()["methods"]["eagle3"]["acceptance_by_position"]
    assert values(engine["acceptance_by_position"]) == pytest.approx(design, abs=0.03)
    assert not [f for f in answer["findings"] if f["severity"] in {"warning", "critical"}]


def test_since_start_is_the_counters_as_they_stand(tiny_eagle3: Server, tiny_plan: Plan) -> None:
    tiny_eagle3.send(tiny_plan.prompts(4), max_tokens=64)
    answer = run("status", "--endpoint", tiny_eagle3.url, "--since-start")
    own = Tally.between(Exposition(""), tiny_eagle3.metrics())
    assert answer["fleet"]["drafts"]["value"] == own.drafts
    assert answer["fleet"]["acceptance_length"]["value"] == pytest.approx(own.acceptance_length)
    assert "since the process started" in answer["fleet"]["acceptance_length"]["reason"]


def test_status_under_traffic_agrees_with_the_design(tiny_eagle3: Server, tiny_plan: Plan) -> None:
    with tiny_eagle3.traffic(tiny_plan.prompts(32)):
        began = time.monotonic()
        answer = run("status", "--endpoint", tiny_eagle3.url, "--window", "8s", *PATIENT)
        took = time.monotonic() - began
    (engine,) = answer["engines"]
    design = tiny_plan.design()["methods"]["eagle3"]["acceptance_by_position"]
    seen = values(engine["acceptance_by_position"])
    # What a part of the traffic may scatter by: of few drafts (a slow machine) more than of many.
    scatter = 4 * math.sqrt(0.25 / engine["drafts"]["value"])
    assert seen == pytest.approx(design, abs=max(0.05, scatter))
    assert engine["output_tokens_per_s"]["value"] > 0
    assert answer["window_s"] == pytest.approx(8, abs=took - 8)


def test_p_eagle_is_named_and_its_cliff_is_found(
    tiny_peagle: Server, tiny_plan: Plan, tmp_path: Path
) -> None:
    answer, own = status_over(tiny_peagle, tiny_plan.prompts(24), 128, tmp_path)
    (engine,) = answer["engines"]
    assert engine["method"] == "p-eagle"
    assert values(engine["acceptance_by_position"]) == pytest.approx(list(own.acceptance))
    assert "PARALLEL_DRAFT_CLIFF" in {f["code"] for f in answer["findings"]}


def test_ngram_earns_less_than_its_acceptance_length_says(
    tiny_ngram: Server, tiny_plan: Plan, tmp_path: Path
) -> None:
    answer, own = status_over(tiny_ngram, tiny_plan.prompts(16), 96, tmp_path)
    (engine,) = answer["engines"]
    assert engine["method"] == "ngram"
    assert engine["acceptance_length"]["value"] == pytest.approx(own.acceptance_length)
    assert engine["tokens_per_step"]["value"] == pytest.approx(own.tokens_per_step)
    assert engine["tokens_per_step"]["value"] < engine["acceptance_length"]["value"]


def test_no_speculation_is_said_and_is_no_alarm(
    tiny_none: Server, tiny_plan: Plan, tmp_path: Path
) -> None:
    answer, own = status_over(tiny_none, tiny_plan.prompts(16), 96, tmp_path)
    (engine,) = answer["engines"]
    assert engine["method"] == "none"
    assert engine["acceptance_rate"]["state"] == "unknown"
    assert engine["tokens_per_step"]["value"] == pytest.approx(1.0)
    assert own.drafts == 0
    severities = {f["code"]: f["severity"] for f in answer["findings"]}
    assert severities.get("SPEC_NOT_ACTIVE") == "info"


def test_a_real_model_with_its_trained_head(smollm2_eagle3: Server, tmp_path: Path) -> None:
    questions = [
        "What is the capital of France, and what is it known for?",
        "Write a Python function that returns the n-th Fibonacci number.",
        "How do I reverse a linked list?",
        "What are the advantages of renewable energy?",
    ]
    answer, own = status_over(smollm2_eagle3, questions, 120, tmp_path)
    (engine,) = answer["engines"]
    assert engine["method"] == "eagle3"
    assert values(engine["acceptance_by_position"]) == pytest.approx(list(own.acceptance))
    assert engine["acceptance_length"]["value"] == pytest.approx(own.acceptance_length)
    assert engine["acceptance_length"]["value"] > 1.5
