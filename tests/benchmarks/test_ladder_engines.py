"""The faults of the ladder's runs, each in an engine's own process."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ladder_faults import GRAMMAR_FAILS, LOADING_FAILS
from speccli.core.engines.vllm_crash import diagnose
from speccli.core.fallback.reactions import BLAMED
from tests.support.kube import behaviour
from tests.support.kube.behaviour import Behaviour

ROOT = Path(__file__).parents[2]
EAGLE = ["serve", "m", "--speculative-config", '{"method":"eagle3","num_speculative_tokens":3}']


class Pod:
    """An engine as the fake kubelet starts it, whose rule may change."""

    def __init__(self, folder: Path, does: Behaviour) -> None:
        self._folder = folder
        self.does(does)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        given = {
            "host": "127.0.0.1",
            "port": port,
            "words": EAGLE,
            "behaviour": dataclasses.asdict(does),
            "rules": [str(folder), "ns", {}, ""],
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kube.engine", json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )

    def does(self, does: Behaviour) -> None:
        behaviour.write(self._folder, "ns", (does,))

    def ask(self, **more: Any) -> int:
        body = {"prompt": "word", "max_tokens": 60, "ignore_eos": True, **more}
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(json.load(answer)["usage"]["completion_tokens"])

    def counter(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            page = answer.read().decode()
        lines = [line for line in page.splitlines() if line.startswith(f"vllm:{name}_total{{")]
        return sum(float(line.split()[-1]) for line in lines)

    def serves(self) -> None:
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                self.ask()
                return
            assert time.monotonic() < end
            time.sleep(0.1)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Callable[[Behaviour], Pod]]:
    with contextlib.ExitStack() as stack:

        def start(does: Behaviour) -> Pod:
            made = Pod(tmp_path, does)
            stack.callback(made.process.communicate)
            stack.callback(made.process.kill)
            return made

        yield start


def test_a_draft_goes_bad_while_its_engine_serves(pod: Callable[[Behaviour], Pod]) -> None:
    made = pod(Behaviour(load_s=0.0))
    made.serves()
    assert made.counter("spec_decode_num_accepted_tokens") > 0
    made.does(Behaviour(acceptance=0.0))
    end = time.monotonic() + 60
    while True:  # it looks at its rule now and then
        before = made.counter("spec_decode_num_accepted_tokens")
        drafts = made.counter("spec_decode_num_drafts")
        assert made.ask() == 60
        if made.counter("spec_decode_num_accepted_tokens") == before:
            break
        assert time.monotonic() < end
    assert made.counter("spec_decode_num_drafts") - drafts > 50


def test_a_grammar_ends_an_engine_only_while_that_is_its_fault(
    pod: Callable[[Behaviour], Pod],
) -> None:
    made = pod(Behaviour(load_s=0.0))
    made.serves()
    grammar = {"response_format": {"type": "json_object"}}
    assert made.ask(**grammar) == 60
    made.does(Behaviour(grammar_log=GRAMMAR_FAILS))
    time.sleep(1.0)  # it has looked at its rule by now
    assert made.ask() == 60
    end = time.monotonic() + 60
    while made.process.poll() is None:
        assert time.monotonic() < end
        with contextlib.suppress(OSError, http.client.HTTPException):
            made.ask(**grammar)
        time.sleep(0.1)
    _blamed(made, "GRAMMAR")


def test_an_engine_that_crashes_breaks_every_connection_at_once(
    pod: Callable[[Behaviour], Pod],
) -> None:
    made = pod(Behaviour(load_s=0.0, grammar_log=GRAMMAR_FAILS))
    made.serves()
    ended: list[BaseException] = []

    def ask(**more: Any) -> None:
        try:
            made.ask(max_tokens=7000, **more)  # a minute and more
        except (OSError, http.client.HTTPException) as error:
            ended.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    ask(response_format={"type": "json_object"})
    for thread in threads:
        thread.join()
    assert len(ended) == 4
    assert not any(isinstance(error, TimeoutError) for error in ended)


def test_a_draft_that_fails_to_load_is_named_by_the_log(pod: Callable[[Behaviour], Pod]) -> None:
    made = pod(Behaviour(load_s=0.0, crash_log=LOADING_FAILS, crash_at="drafter"))
    made.process.wait(60)
    _blamed(made, "DRAFT_MISMATCH")


def _blamed(made: Pod, code: str) -> None:
    assert made.process.returncode == 1
    assert made.process.stdout is not None
    found = diagnose(made.process.stdout.read())
    assert found is not None
    assert found.code == code
    assert code in BLAMED
