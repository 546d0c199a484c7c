"""`alert probe`, `canary` and `check` on real vLLM servers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Server
from tests.e2e.tiny_pair import Plan

pytestmark = pytest.mark.real_vllm

SEVERITIES = ("info", "warning", "critical")
"""By the exit code that each asks for."""


def alert(*words: str | Path) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "speccli", "alert", *map(str, words), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def states(told: dict[str, Any]) -> dict[str, str]:
    return {check["rule"]: check["state"] for check in told["checks"]}


def test_greedy_answers_are_the_same_with_and_without_speculation(
    tiny_eagle3: Server, tiny_none: Server
) -> None:
    code, told, _ = alert("probe", "-e", tiny_eagle3.url, "--baseline-endpoint", tiny_none.url)
    found = states(told)
    assert found["F-ALIVE"] == found["F-GREEDY"] == "pass", told["checks"]
    assert found["F-LOGPROBS"] == "pass", told["checks"]
    # With a draft this vLLM samples by what memory held before (docs/bench.md): one answer or two.
    assert found["F-SEED"] in {"pass", "warning"}
    assert found["F-LOGIT-BIAS"] in {"pass", "warning"}
    assert "ENGINE_DOWN" not in found
    assert code == ("warning" in found.values()), told["checks"]


def test_a_canary_is_like_itself_and_unlike_a_worse_draft(
    tiny_eagle3: Server, tiny_peagle: Server, tmp_path: Path
) -> None:
    state = ("--state", tmp_path)
    code, told, said = alert("canary", "-e", tiny_eagle3.url, "--record", "sound", *state)
    assert code == 0, told["message"]
    assert "baseline sound kept" in said
    assert told["canary"][0]["foreign_share"] < 0.05
    for _ in range(2):
        code, told, _ = alert("canary", "-e", tiny_eagle3.url, "--baseline", "sound", *state)
        assert (code, told["findings"]) == (0, []), told["message"]
    code, told, _ = alert("canary", "-e", tiny_peagle.url, "--baseline", "sound", "--force", *state)
    codes = {finding["code"] for finding in told["findings"]}
    assert code == max(SEVERITIES.index(each["severity"]) for each in told["findings"])
    assert codes & {"ACCEPTANCE_DRIFT", "PARALLEL_DRAFT_CLIFF"}


def test_two_checks_see_what_was_served_between_them(
    tiny_eagle3: Server, tiny_plan: Plan, tmp_path: Path
) -> None:
    words = ("check", "-e", tiny_eagle3.url, "--state", tmp_path)
    alert(*words, "--window", "0.5s")
    time.sleep(2.5)  # growth since a page younger than two seconds is not judged
    own = tiny_eagle3.tally(tiny_plan.prompts(16), 128)
    code, told, _ = alert(*words)
    assert code == 0, told["message"]
    rate = told["status"]["fleet"]["acceptance_rate"]
    assert rate["value"] == pytest.approx(own.accepted / own.draft_tokens)
    assert rate["n"] == own.draft_tokens
