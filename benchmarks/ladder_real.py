"""Two faults of `benchmarks/ladder.py` on real vLLM servers of this machine, run by run.

Real: engines, weights, drafts and their faults, `specctl deploy|fallback --to local`. There is no
watch for a local deployment: what is played is an operator's cron, which types the commands.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.ladder_figures import figures, run_of
from speccli.core.deploy.place import Here, place
from speccli.core.fallback.reactions import REACTIONS
from tests.support.ladder_client import Client
from tests.support.local_ladder import RECIPE, misnamed, with_noise
from tests.support.processes import started

Object = dict[str, Any]
NAME = "ladder"
MACHINE_HOUR_USD = 0.10
"""Of two cores: set for this, nobody's quote."""
BEFORE_S, SETTLED_S, BACK_S = 20.0, 40.0, 20.0
LOOK_S = 5.0
"""Between two turns of the cron."""
AGAIN_S = 10.0
"""After a start that failed, doubled each time."""
CLIENTS, TOKENS = 2, 24
PROMPTS = (
    "The three primary colours are",
    "def fibonacci(n):\n",
    "A list of the months of the year:",
    "Once upon a time, in a small village,",
    "one two three one two three one two three",
    "The capital of France is",
)


@dataclass(frozen=True)
class Real:
    """A fault, and the head that makes it."""

    code: str
    words: str
    spoilt: Callable[[Path, Path], Path]


FAULTS = (
    Real("bad", "the engine ends, and comes back with a head of no use", with_noise),
    Real("load", "the engine ends, and its head has a weight of another name by now", misnamed),
)


@dataclass
class Lasting:
    """How long the arms of a fault go on after it: the same for both, on whatever machine."""

    seconds: float = 480.0
    """Until the ladder has moved, and what comes of it is seen."""


@dataclass
class Scene:
    """One local deployment, its clients, and who types commands."""

    python: Path
    target: Path
    head: Path
    """A sound one."""
    folder: Path
    fault: Real
    ladder: bool
    lasting: Lasting
    keep: Callable[[Object], None]
    """Is given the run once it is over, and again with each way back."""
    moves: list[Object] = field(default_factory=list)
    _at: float = 0.0
    _down: bool = False
    _again_at: float = 0.0
    _pause_s: float = AGAIN_S

    @property
    def here(self) -> Here:
        """Where the deployment is kept."""
        return place(self.folder / "state", NAME)

    def specctl(self, *words: str) -> tuple[int, Object, str]:
        """A command as it is typed: its exit code, its JSON, what it said."""
        env: dict[str, Any] = {
            "SPECCTL_STATE": str(self.folder / "state"),
            "SPECCTL_VLLM_PYTHON": str(self.python),
        }
        with started(*words, **env) as process:
            out, said = process.communicate()
        told: Object = json.loads(out) if out.startswith("{") else {}
        return process.returncode, told, said.strip()

    def _typed(self, *words: str) -> tuple[int, Object, str]:
        return self.specctl(*words, "--to", "local", "-o", "json")

    def deploy(self) -> tuple[int, Object, str]:
        """The deployment as its recipe says: where its engine ended, this starts it again."""
        return self._typed("deploy", str(self.folder / "ladder.yaml"))

    def run(self) -> None:
        """From its deployment to its deletion."""
        link = self.folder / "head"
        link.symlink_to(self.head)
        spoilt = self.fault.spoilt(self.head, self.folder / "spoilt")
        recipe = RECIPE.format(target=self.target, head=link)
        (self.folder / "ladder.yaml").write_text(recipe)
        load = [os.getloadavg()[0]]
        try:
            code, told, said = self.deploy()
            assert code == 0, said
            client = Client(
                told["url"],
                PROMPTS,
                concurrency=CLIENTS,
                max_tokens=TOKENS,
                timeout_s=60.0,
                pause_s=1.0,
                clock=time.time,
            )
            with client:
                _until(lambda: client.answered() >= 2 * len(PROMPTS))
                begins = time.time()
                time.sleep(BEFORE_S)
                self._at = time.time()
                _led_to(link, spoilt)
                self._end_engine()
                while (left := self._at + self.lasting.seconds - time.time()) > 0:
                    self._turn(told["url"])
                    time.sleep(min(LOOK_S, max(0.0, left)))
                ends = self._at + self.lasting.seconds
                load.append(os.getloadavg()[0])
                told = self._told(client, begins, ends, load)
                self.keep(told)
                if self.ladder:
                    told["refused"] = self._refused(client)
                    self.keep(told)
                    self.keep({**told, "back": self._back(client, link)})
        finally:
            code, _, said = self.specctl("delete", NAME, "--yes")
        assert code == 0, said

    def _end_engine(self) -> None:
        """As the machine's memory killer does."""
        for pid in self.here.told.pids.values():
            os.kill(pid, signal.SIGKILL)
        _until(lambda: not self.here.alive)

    def _turn(self, url: str) -> None:
        """Of the cron: what ended is started again; with the ladder, what is found is left."""
        if not self.here.alive:
            if time.time() >= self._again_at:
                self._start_again()
            return
        if not self.ladder or self._down:
            return
        words = ("alert", "check", "-e", url, "--window", "10s", "--deadline", "1m")
        _, told, _ = self.specctl(*words, "-o", "json")
        found = [f for f in told.get("findings", ()) if f["severity"] == "critical"]
        for each in (f for f in found if f["code"] in REACTIONS):
            self._move(each["code"], each["evidence"])
            return

    def _start_again(self) -> None:
        code, told, said = self.deploy()
        if code != 2 or told.get("proof") is not None:
            return  # it serves, well or not
        self._again_at = time.time() + self._pause_s
        self._pause_s *= 2
        if self.ladder:
            self._move("does not start", (told.get("rollout") or {}).get("why") or said)

    def _move(self, code: str, why: str) -> None:
        """Down, by one rung."""
        began = time.time()
        done, told, said = self._typed("fallback", "apply", NAME)
        servers = (told.get("proof") or {}).get("servers") or [{}]
        through = time.time() - self._at
        if done == 0:
            self._down, self.lasting.seconds = True, through + SETTLED_S
        self.moves.append(
            {
                "after_s": round(through, 1),
                "what": "done" if done == 0 else "failed",
                "from": "eagle3",
                "to": servers[0].get("method"),
                "code": code,
                "seconds": round(time.time() - began, 1),
                "words": why if done == 0 else said,
            }
        )

    def _refused(self, client: Client) -> Object:
        """The way back while the head is what it was; outside of what is compared."""
        began = time.time()
        code, told, said = self._typed("fallback", "restore", NAME)
        through = time.time()
        assert code == 2, said
        servers = (told["proof"] or {}).get("servers") or [{}]
        return {
            "seconds": round(through - began, 1),
            "why": servers[0].get("evidence") or told["rollout"]["why"],
            "serves_on": told["serving_revision"] is not None,
            "moving": figures(_sent(client), (), (began, through)),
        }

    def _back(self, client: Client, link: Path) -> Object:
        """The way back, with the head mended; outside of what is compared."""
        _led_to(link, self.head)
        began = time.time()
        code, told, said = self._typed("fallback", "restore", NAME)
        assert code == 0, said
        through = time.time()
        time.sleep(BACK_S)
        (server,) = told["proof"]["servers"]
        sent = _sent(client)
        return {
            "seconds": round(through - began, 1),
            "first_position": server["first_position"],
            "moving": figures(sent, (), (began, through)),
            "after": figures(sent, (), (through, time.time())),
        }

    def _told(self, client: Client, begins: float, ends: float, load: list[float]) -> Object:
        at, sent = self._at, _sent(client)
        machine = [(when, 1) for when in range(int(begins - at), int(ends - at) + 1)]
        found = run_of(
            sent, self.moves, machine, begins - at, at, ends - at, hour_usd=MACHINE_HOUR_USD
        )
        found["recovered_s"] = recovered(found["recovered_s"], self.moves)
        return {
            "fault": self.fault.code,
            "ladder": self.ladder,
            **found,
            "refused": None,
            "back": None,
            "load": [round(each, 1) for each in load],
        }


def _sent(client: Client) -> list[Object]:
    return [
        {"at": each.at, "s": each.seconds, "tokens": each.tokens, "failure": each.failure}
        for each in list(client.sent)
    ]


def recovered(served_s: float | None, moves: list[Object]) -> float | None:
    """When nothing failed any more and the first move was through; None: that was not so."""
    done = [float(each["after_s"]) for each in moves if each["what"] == "done"]
    return None if served_s is None or not done else max(served_s, done[0])


def _led_to(link: Path, folder: Path) -> None:
    """A link that leads elsewhere, at no moment nowhere."""
    fresh = link.with_suffix(".new")
    fresh.symlink_to(folder)
    fresh.replace(link)


def _until(true: Callable[[], bool], seconds: float = 300.0) -> None:
    give_up = time.monotonic() + seconds
    while not true():
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.2)


def measured(
    root: Path,
    folder: Path,
    fault: Real,
    lasting: Lasting,
    keep: Callable[[Object], None],
    *,
    ladder: bool,
) -> None:
    """One run; the 135 M target is made where it is not there yet."""
    from speccli.core.engines.local import find_vllm_python

    python = find_vllm_python()
    if python is None:
        raise SystemExit("there is no vLLM here: make vllm")
    target = root / ".vllm" / "models" / "smollm2-135m"
    subprocess.run([python, root / "scripts" / "smollm2_target.py", target], check=True)
    head = root / "tests" / "data" / "smollm2-135m-eagle3"
    Scene(python, target, head, folder, fault, ladder, lasting, keep).run()
