"""Drift on real servers: a baseline of a sound draft, then a worse one under the same name."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from speccli.core.engines.local import LocalEngine, free_port
from tests.e2e.harness import (
    ROOT,
    SERVE_ARGS,
    SERVE_ENV,
    START_DEADLINE_S,
    Server,
    Tally,
    recipes,
)
from tests.e2e.tiny_pair import Plan

pytestmark = pytest.mark.real_vllm

SOUND, WORSE = 0.25, 0.59
"""Shares of tokens after which the draft is wrong: designed to accept 75 % and 40 % of those that
come first in a draft."""
SHORT = {"SPECCTL_DRIFT_EVERY": "1s"}
"""Drift is usually looked at once in five minutes: a test has no time for that."""
LOOKS = 2
"""Looks that docs/drift.md promises for a fall so large."""
ENOUGH = 4000
"""Drafts that a baseline is recorded of, which needs 2,000."""
APART_S = 2.2
"""Growth since a page younger than two seconds is not judged."""


@dataclass(frozen=True)
class Pairs:
    """Two drafts for one target, served in turn from one path: a file that was overwritten."""

    python: Path
    folder: Path
    port: int
    plan: Plan

    @classmethod
    def build(cls, python: Path, folder: Path) -> Pairs:
        script = ROOT / "tests" / "e2e" / "tiny_pair.py"
        for name, wrong in (("sound", SOUND), ("worse", WORSE)):
            command = [str(python), str(script), str(folder / name), "--wrong", str(wrong)]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        return cls(python, folder, free_port(), Plan.load(folder / "sound" / "design.json"))

    @contextmanager
    def serving(self, name: str) -> Iterator[Server]:
        """A fresh server of that pair, at the address of the other one."""
        served = self.folder / "served"
        served.unlink(missing_ok=True)
        served.symlink_to(self.folder / name)
        recipe = recipes(served, served)["tiny_eagle3"]
        engine = LocalEngine(
            self.python,
            str(recipe.model),
            port=self.port,
            speculative=recipe.speculative,
            extra_args=("--served-model-name", recipe.name, *SERVE_ARGS),
            env=SERVE_ENV,
            log_path=self.folder / f"{name}.log",
        )
        with engine:
            engine.wait_ready(START_DEADLINE_S)
            yield Server(recipe, engine)


class Telling:
    """What a recorder says on its terminal of the drafts that it has seen itself."""

    def __init__(self, terminal: IO[bytes]) -> None:
        self._terminal = terminal
        self._text = b""

    def wait_for(self, drafts: int) -> None:
        """Until it has seen so many."""
        ends = time.monotonic() + START_DEADLINE_S
        while not any(seen >= drafts for seen in self._seen()):
            assert time.monotonic() < ends, self._text
            if select.select([self._terminal], [], [], 1.0)[0]:
                more = self._more()
                assert more, self._text  # it has ended
                self._text += more

    def rest(self) -> str:
        """Everything, once it has ended."""
        while more := self._more():
            self._text += more
        return self._text.decode()

    def _seen(self) -> list[int]:
        told = re.findall(rb"([0-9,]+) drafts so far", self._text)
        return [int(number.replace(b",", b"")) for number in told]

    def _more(self) -> bytes:
        try:
            return self._terminal.read(4096)
        except OSError:  # nobody has it open any more
            return b""


class Operator:
    """Runs the commands as cron would, one state folder for all."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.env = {**os.environ, **SHORT}

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "speccli", *words, "--state", str(self.state)]

    def record(self, server: Server, plan: Plan) -> dict[str, Any]:
        """A baseline under traffic, ended early: by the drafts seen, as machines differ."""
        command = self._command("baseline", "record", "sound", "-e", server.url, "-o", "json")
        terminal, shown = pty.openpty()  # on which it tells how far it is
        with (
            os.fdopen(terminal, "rb", buffering=0) as said,
            server.traffic(plan.prompts(48), 96, concurrency=12),
            subprocess.Popen(
                [*command, "--for", "1h"], stdout=subprocess.PIPE, stderr=shown, env=self.env
            ) as recorder,
        ):
            os.close(shown)
            telling = Telling(said)
            try:
                telling.wait_for(ENOUGH)
                recorder.send_signal(signal.SIGINT)
                assert recorder.stdout
                kept = recorder.stdout.read()
                assert recorder.wait(60) == 0, telling.rest()
            finally:
                recorder.kill()
        found: dict[str, Any] = json.loads(kept)
        return found

    def check(self, server: Server) -> tuple[int, dict[str, Any]]:
        words = ("alert", "check", "-e", server.url, "--name", "pool", "--baseline", "sound")
        done = subprocess.run(
            self._command(*words, "-o", "json"),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=self.env,
        )
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


def test_a_worse_draft_is_told_within_two_looks_and_a_sound_one_never(
    vllm_python: Path, tmp_path: Path
) -> None:
    pairs, operator = Pairs.build(vllm_python, tmp_path), Operator(tmp_path / "state")
    with pairs.serving("sound") as server:
        kept = operator.record(server, pairs.plan)
        assert kept["acceptance"]["by_position"][0] == pytest.approx(0.759, abs=0.03)
        for _ in range(4):
            drafted(server, pairs.plan)
            code, told = operator.check(server)
            assert (code, wrong(told)) == (0, []), told["message"]
    with pairs.serving("worse") as server:
        counted = 0
        for look in range(1, LOOKS + 1):
            counted += drafted(server, pairs.plan).drafts
            code, told = operator.check(server)
            assert bool(wrong(told)) == (look == LOOKS), told["message"]
    (drift,) = wrong(told)
    assert (drift["code"], code) == ("ACCEPTANCE_DRIFT", 2)
    assert f"n={counted:,} drafts" in drift["evidence"]
    assert "of baseline sound" in drift["evidence"]
    assert "the draft, as far as counters tell" in drift["cause"]


def wrong(told: dict[str, Any]) -> list[dict[str, Any]]:
    """What is found and is no mere note."""
    return [finding for finding in told["findings"] if finding["severity"] != "info"]


def drafted(server: Server, plan: Plan, requests: int = 8) -> Tally:
    """Some hundreds of drafts, as the server counts them; lasts as long as checks are apart."""
    began = time.monotonic()
    tally = server.tally(plan.prompts(requests), 96)
    time.sleep(max(0.0, APART_S - (time.monotonic() - began)))
    return tally
