"""A draft gone bad on this machine: down the ladder and back, while clients never stop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from speccli.core.deploy.beside import available
from speccli.core.deploy.place import Here, place
from speccli.core.lossless import CANDIDATES, Parting, parting
from speccli.main import app
from tests.e2e.harness import SMOLLM2_HEAD, Pool
from tests.support.ladder_client import Client, Sent, plain
from tests.support.local_ladder import RECIPE, with_noise

pytestmark = pytest.mark.real_vllm
Object = dict[str, Any]
PROMPTS = (
    "The three primary colours are",
    "def fibonacci(n):\n",
    "A list of the months of the year:",
    "Once upon a time, in a small village,",
    "one two three one two three one two three",
    "The capital of France is",
)
NOISY_HEAD = "EAGLE-3, noisy head"
ROOM = 7 * 2**30
"""Bytes that two servers side by side may take."""
SLOW_S = 900.0
"""For what takes a minute on a machine that does nothing else."""


@dataclass
class Operator:
    """Types commands, and notes how long each took."""

    python: Path
    folder: Path
    took: dict[str, float] = field(default_factory=dict)

    @property
    def here(self) -> Here:
        return place(self.folder, "ladder")

    def specctl(self, *words: str, timed: str | None = None) -> Result:
        env = {"SPECCTL_STATE": str(self.folder), "SPECCTL_VLLM_PYTHON": str(self.python)}
        began = time.monotonic()
        done = CliRunner().invoke(app, list(words), env=env)
        if timed:
            self.took[timed] = round(time.monotonic() - began, 1)
        return done

    def move(self, *words: str, timed: str, expect: int = 0) -> Object:
        done = self.specctl(
            *words, "--to", "local", "--beside", "--timeout", "15m", "-o", "json", timed=timed
        )
        assert done.exit_code == expect, done.stderr
        told: Object = json.loads(done.stdout)
        return told

    def finding(self, url: str) -> set[str]:
        """Codes of what `alert check` finds critical, once it finds anything."""
        until = time.monotonic() + SLOW_S
        while time.monotonic() < until:
            if found := self.critical(url):
                return found
        raise AssertionError("nothing was found")

    def critical(self, url: str) -> set[str]:
        """Codes of what `alert check` finds critical now."""
        words = ("alert", "check", "-e", url, "--window", "10s", "--deadline", "2m", "-o", "json")
        done = self.specctl(*words)
        assert done.stdout, done.stderr
        found = json.loads(done.stdout)["findings"]
        return {each["code"] for each in found if each["severity"] == "critical"}


def wait_for(true: Callable[[], bool]) -> None:
    until = time.monotonic() + SLOW_S
    while not true():
        assert time.monotonic() < until
        time.sleep(0.2)


def partings(sent: list[Sent], reference: str) -> list[tuple[Sent, Parting]]:
    """Where answers leave those of a phase without speculation, the first of each prompt."""
    known = {each.prompt: each for each in reversed(sent) if each.phase == reference}
    found = [
        (
            each,
            parting(each.text, known[each.prompt].text, known[each.prompt].logprobs, each.logprobs),
        )
        for each in sent
        if not each.failure
    ]
    return [(each, where) for each, where in found if where is not None]


def test_down_the_ladder_and_back_no_request_fails_and_no_answer_changes(
    vllm_python: Path, smollm2_dir: Path, pool: Pool, tmp_path: Path
) -> None:
    if (available() or 0) < ROOM:
        pool.close()
    head, recipe = tmp_path / "head", tmp_path / "ladder.yaml"
    head.symlink_to(with_noise(SMOLLM2_HEAD, tmp_path / "noisy"))
    recipe.write_text(RECIPE.format(target=smollm2_dir, head=head))
    operator = Operator(vllm_python, tmp_path / "state")
    try:
        first = operator.move("deploy", str(recipe), timed=NOISY_HEAD, expect=2)
        assert first["proof"]["servers"][0]["code"] == "ZERO_ACCEPTANCE"
        client = Client(
            first["url"],
            PROMPTS,
            max_tokens=24,
            body={"logprobs": CANDIDATES},
            timeout_s=SLOW_S,
            first_phase=NOISY_HEAD,
        )
        with client:
            report = _down_and_back(operator, client, first["url"], head)
    finally:
        gone = operator.specctl("delete", "ladder", "--yes")
    assert gone.exit_code == 0, gone.stderr

    figures = client.figures()
    found = partings(client.sent, "off")
    kinds = [where.kind for _, where in found]
    seen = {
        "took_s": operator.took,
        **report,
        "phases": plain(figures),
        "answers": len(client.sent),
        "parting": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
    }
    (tmp_path / "seen.json").write_text(json.dumps(seen, indent=1))
    assert not client.failed
    wrong = [
        (each.phase, each.prompt, where.words) for each, where in found if where.kind != "numeric"
    ]
    assert not wrong
    assert all(each.requests >= len(PROMPTS) for each in figures)


def _down_and_back(operator: Operator, client: Client, url: str, head: Path) -> Object:
    """Each move, while `client` goes on; what was seen of it."""

    def settled(phase: str) -> None:
        client.phase(phase)
        wait_for(lambda: client.answered(phase) >= 2 * len(PROMPTS))

    def sound() -> None:
        """The server's counters begin again at each move, which is no finding."""
        for _ in range(2):
            assert operator.critical(url) == set()

    settled(NOISY_HEAD)
    found = operator.finding(url)
    client.phase("moving to n-gram")
    told = operator.move("fallback", "apply", "ladder", "--rung", "ngram", timed="to n-gram")
    assert told["proof"]["servers"][0]["method"] == "ngram"
    settled("n-gram")
    sound()
    client.phase("moving to off")
    told = operator.move("fallback", "apply", "ladder", "--rung", "none", timed="to off")
    assert told["proof"]["servers"][0]["method"] == "none"
    settled("off")
    head.unlink()
    head.symlink_to(SMOLLM2_HEAD)
    client.phase("moving back")
    told = operator.move("fallback", "restore", "ladder", timed="back to EAGLE-3")
    (server,) = told["proof"]["servers"]
    assert (told["url"], told["revision"], told["serving_revision"]) == (url, 4, 4)
    settled("EAGLE-3, mended head")
    sound()
    return {"finding": sorted(found), "first_position": server["first_position"]}
