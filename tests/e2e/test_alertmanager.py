"""A real Prometheus and a real Alertmanager: rules that fire, checks that agree, news told once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from speccli.core.alert.rules.model import Terms
from speccli.core.alert.rules.write import ALERTING, RECORDING, files
from speccli.core.engines.local import free_port
from speccli.core.findings.base import Thresholds
from tests.e2e.alertmanager_server import ALERTMANAGER, Receiver, alertmanager, receiving
from tests.e2e.prometheus_server import PROMETHEUS, _wait_until_ready
from tests.support.engine_page import Engine, serving
from tests.support.real import absent

pytestmark = pytest.mark.real_prometheus


@dataclass
class World:
    sound: Engine
    broken: Engine
    prometheus: str
    alertmanager: str
    receiver: Receiver


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if PROMETHEUS is None or ALERTMANAGER is None:
        absent("apt-get install prometheus prometheus-alertmanager")
    folder = tmp_path_factory.mktemp("alerting")
    sound, broken = Engine(), Engine(accepted=0.0)
    with ExitStack() as stack:
        receiver = stack.enter_context(receiving())
        manager = stack.enter_context(alertmanager(folder, receiver))
        for engine in (sound, broken):
            stack.enter_context(serving(engine))
        url = stack.enter_context(scraping(folder, sound, broken, manager))
        yield World(sound, broken, url, manager, receiver)


class scraping:  # noqa: N801 - used as a context manager
    """A Prometheus with the generated rules, made quick."""

    def __init__(self, folder: Path, sound: Engine, broken: Engine, manager: str) -> None:
        texts = files(Terms(Thresholds(hold_s=2.0)))
        for name in (RECORDING, ALERTING):
            # Minutes become seconds, so that what takes ten minutes takes ten seconds.
            text = re.sub(r"interval: \d+s", "interval: 1s", texts[name])
            text = text.replace("[120s]", "[10s]").replace("[2m]", "[10s]")
            text = re.sub(r"for: (\d+)m", "for: 2s", text)
            (folder / name).write_text(text)
        targets = [
            f"  - targets: [{engine.url.removeprefix('http://')}]\n"
            f"    labels: {{namespace: {name}}}\n"
            for name, engine in (("sound", sound), ("broken", broken))
        ]
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 900ms, evaluation_interval: 1s}\n"
            f"rule_files: [{RECORDING}, {ALERTING}]\n"
            "alerting:\n  alertmanagers:\n  - static_configs:\n"
            f"    - targets: [{manager.removeprefix('http://')}]\n"
            "scrape_configs:\n- job_name: vllm\n  static_configs:\n" + "".join(targets)
        )
        self._folder = folder

    def __enter__(self) -> str:
        assert PROMETHEUS is not None
        port = free_port()
        folder = self._folder
        command = [PROMETHEUS, f"--config.file={folder / 'prometheus.yml'}", "--log.level=warn"]
        command += [f"--storage.tsdb.path={folder / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{port}"]
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        _wait_until_ready(f"http://127.0.0.1:{port}", self._process, folder / "log")
        return f"http://127.0.0.1:{port}"

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def check(*words: str | Path, env: dict[str, str] | None = None) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "speccli", "alert", "check", *map(str, words), "-o", "json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, env=env or {}
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def found(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f["code"], f["severity"]) for f in told["findings"]]


def test_the_generated_rules_fire_and_arrive_and_only_those_that_must(world: World) -> None:
    alert = world.receiver.until("firing", "SpecctlZeroAcceptance")
    assert alert["labels"]["severity"] == "critical"
    assert alert["labels"]["namespace"] == "broken"
    assert alert["annotations"]["summary"] == "m in broken: drafts are made and none is accepted"
    world.receiver.until("firing", "SpecctlLowAcceptance")
    time.sleep(5)  # for what must not come
    fired = {
        (a["labels"]["alertname"], a["labels"].get("namespace"))
        for post in world.receiver.posts
        for a in post["alerts"]
        if a["labels"].get("source") == "specctl-rules"
    }
    # Acceptance of nothing is also low, for longer than the two seconds it may be.
    assert fired == {("SpecctlZeroAcceptance", "broken"), ("SpecctlLowAcceptance", "broken")}


@pytest.mark.parametrize("name", ["sound", "broken"])
def test_a_check_through_prometheus_agrees_with_a_direct_one(
    world: World, name: str, tmp_path: Path
) -> None:
    world.receiver.until("firing", "SpecctlZeroAcceptance")  # it has scraped for some time
    engine = getattr(world, name)
    code, direct, _ = check("-e", engine.url, "--window", "2s", "--state", tmp_path)
    options = ("--selector", f'namespace="{name}"', "--window", "20s", "--state", tmp_path)
    through_code, through, said = check("--prometheus", world.prometheus, *options)
    assert (through_code, found(through)) == (code, found(direct)), said
    assert code == (2 if name == "broken" else 0)
    rates = [told["status"]["fleet"]["acceptance_rate"]["value"] for told in (direct, through)]
    assert rates[0] == pytest.approx(rates[1], abs=0.01)


def test_a_notification_arrives_once_and_then_its_end(world: World, tmp_path: Path) -> None:
    words = ["-e", world.broken.url, "--name", "pool", "--state", str(tmp_path)]
    words += ["--window", "0.5s", "--alertmanager", world.alertmanager]
    name = "SpecctlZeroAcceptance"

    def of_check(status: str) -> list[dict[str, Any]]:
        heard = world.receiver.heard(status, name)
        return [alert for alert in heard if alert["labels"].get("deployment") == "pool"]

    def wait(status: str) -> dict[str, Any]:
        ends = time.monotonic() + 120
        while not of_check(status):
            assert time.monotonic() < ends
            time.sleep(0.1)
        return of_check(status)[-1]

    for _ in range(3):
        code, _, said = check(*words)
        assert (code, said) == (2, "")
    told = wait("firing")
    assert told["labels"]["subject"] == world.broken.url.removeprefix("http://") + "/0"
    time.sleep(3)
    assert len({json.dumps(a["labels"], sort_keys=True) for a in of_check("firing")}) == 1
    assert len(of_check("firing")) == 1
    world.broken.accepted, world.broken.began = 0.6, time.time() - 50
    try:
        code, _, said = check(*words)
        assert (code, said) == (0, "")
        over = wait("resolved")
        assert over["labels"] == told["labels"]
        time.sleep(3)
        assert len(of_check("resolved")) == 1
    finally:
        world.broken.accepted = 0.0


def test_a_notification_that_fails_hides_nothing(world: World, tmp_path: Path) -> None:
    words = ("-e", world.broken.url, "--window", "0.5s", "--state", tmp_path)
    code, told, said = check(*words, "--alertmanager", "http://127.0.0.1:9")
    assert (code, found(told)) == (2, [("ZERO_ACCEPTANCE", "critical")])
    assert "Alertmanager http://127.0.0.1:9 was not told (1 to tell): connect refused" in said
    code, told, said = check(*words, "--alertmanager", world.alertmanager, "--dry-run")
    assert code == 2
    assert "dry run: Alertmanager" in said


def test_apprise_tells_a_receiver_once_and_then_the_end(tmp_path: Path) -> None:
    pytest.importorskip("apprise", reason="pip install 'specctl[notify]'")
    engine = Engine(accepted=0.0)
    env = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    with serving(engine), receiving() as receiver:
        url = receiver.url.replace("http://", "json://")
        words = ("-e", engine.url, "--window", "0.5s", "--state", tmp_path, "--notify", url)
        for _ in range(2):
            code, _, said = check(*words, env=env)
            assert (code, said) == (2, "")
        engine.accepted, engine.began = 0.6, time.time() - 50
        code, _, said = check(*words, env=env)
        assert (code, said) == (0, "")
    assert [post["type"] for post in receiver.posts] == ["failure", "success"]
    assert "ZERO_ACCEPTANCE" in receiver.posts[0]["message"]
    assert "RESOLVED ZERO_ACCEPTANCE" in receiver.posts[1]["message"]
