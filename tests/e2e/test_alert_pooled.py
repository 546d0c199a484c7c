"""`baseline record` and `alert check` on fleets that a real Prometheus pools."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.prometheus_server import PROMETHEUS, FakeFleet, fleet_exporter, prometheus
from tests.support.real import absent

pytestmark = pytest.mark.real_prometheus
ENGINES = 100
"""More than are read one by one."""
SOUND, WORSE, DEAD = (80, 60, 40), (30, 18, 10), (0, 0, 0)
"""Accepted at each position, of a hundred drafts."""


@dataclass
class Fleet(FakeFleet):
    """Engines that draft three tokens a hundred times between two scrapes."""

    at: tuple[int, int, int] = SOUND

    def page(self) -> bytes:
        self.pages += 1
        n = 10_000 + self.pages  # far from zero, where increase() would stop extrapolating
        spec, lines = "vllm:spec_decode_num_", []
        for e in range(self.size):
            labels = f'instance="{self.namespace}-{e}",namespace="{self.namespace}",engine="0"'
            labels += ',model_name="m"'
            counters = {
                f"{spec}drafts_total": 100,
                f"{spec}draft_tokens_total": 300,
                f"{spec}accepted_tokens_total": sum(self.at),
                "vllm:generation_tokens_total": 100 + sum(self.at),
                "vllm:iteration_tokens_total_count": 50,
            }
            lines += [f"{name}{{{labels}}} {n * step}" for name, step in counters.items()]
            lines += [
                f'{spec}accepted_tokens_per_pos_total{{{labels},position="{i}"}} {n * part}'
                for i, part in enumerate(self.at)
            ]
            lines += [f"vllm:num_requests_running{{{labels}}} 3"]
            lines += [f"vllm:num_requests_waiting{{{labels}}} 0"]
        return ("\n".join(lines) + "\n").encode()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that has scraped three such fleets for half a minute."""
    if PROMETHEUS is None:
        absent("apt-get install prometheus")
    fleets = [Fleet("sound", ENGINES), Fleet("worse", ENGINES, at=WORSE)]
    fleets.append(Fleet("dead", ENGINES, at=DEAD))
    with ExitStack() as stack:
        at = [stack.enter_context(fleet_exporter(fleet)) for fleet in fleets]
        folder = tmp_path_factory.mktemp("pooled")
        found = stack.enter_context(prometheus(folder, [], at, "groups: []"))
        ends = time.monotonic() + 120
        while min(fleet.pages for fleet in fleets) < 7:
            assert time.monotonic() < ends
            time.sleep(0.2)
        yield found


def run(state: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "speccli", *words, "--state", str(state), "-o", "json"]
    env = {"SPECCTL_DRIFT_EVERY": "4s"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=env
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def of(url: str, namespace: str) -> tuple[str, ...]:
    selector = f'namespace="{namespace}"'
    return ("--prometheus", url, "--selector", selector, "--window", "20s")


def check(state: Path, url: str, namespace: str, *words: str) -> tuple[int, dict[str, Any]]:
    code, told, _ = run(state, "alert", "check", *of(url, namespace), "--name", "pool", *words)
    return code, told


def test_a_pooled_fleet_is_judged_as_engines_are(url: str, tmp_path: Path) -> None:
    code, told = check(tmp_path, url, "sound")
    fleet = told["status"]["fleet"]
    assert (code, told["findings"]) == (0, [])
    assert f"{ENGINES} engines" in told["message"]
    assert fleet["acceptance_rate"]["value"] == pytest.approx(180 / 300)
    code, told = check(tmp_path, url, "dead", "--confirm", "2/3")
    assert code == 2  # a broken draft does not heal: said at once
    assert {f["code"] for f in told["findings"]} == {"ZERO_ACCEPTANCE"}
    assert {f["severity"] for f in told["findings"]} == {"critical"}


def test_drift_of_a_pooled_fleet_is_told_at_the_second_look(url: str, tmp_path: Path) -> None:
    words = ("baseline", "record", "good", *of(url, "sound"), "--for", "15s", "--interval", "1s")
    code, kept, said = run(tmp_path, *words)
    assert code == 0, said
    assert kept["acceptance"]["rate"] == pytest.approx(0.6)
    assert kept["acceptance"]["by_position"] == pytest.approx([0.8, 0.6, 0.4])
    looks: list[Any] = []
    for namespace in ("sound", "worse", "worse"):
        time.sleep(20 if looks else 0)  # what was looked at is not looked at again
        code, told = check(tmp_path, url, namespace, "--baseline", "good")
        looks.append([f["code"] for f in told["findings"] if f["severity"] != "info"])
    assert looks == [[], [], ["ACCEPTANCE_DRIFT"]]
    (drift,) = told["findings"]
    assert (drift["subject"], code) == ("fleet", 2)
    assert "of baseline good" in drift["evidence"]
