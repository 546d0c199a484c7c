"""`alert watch`: a process that beats, says changes, and ends when told to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.engine_page import Engine, serving

pytestmark = pytest.mark.slow


@contextmanager
def watching(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the URL of its heartbeat."""
    command = [sys.executable, "-m", "speccli", "alert", "watch", "--every", "1s"]
    command += ["--listen", "127.0.0.1:0", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env={}, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        line = ""
        while "heartbeat at" not in line:
            line = process.stderr.readline()
            assert line, "it ended"
        try:
            yield process, line.split()[-1].removesuffix("/metrics")
        finally:
            process.kill()


def page(url: str, path: str = "/metrics") -> str:
    with urllib.request.urlopen(url + path, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def until(url: str, part: str, within_s: float = 120.0) -> None:
    ends = time.monotonic() + within_s
    while part not in page(url):
        assert time.monotonic() < ends, page(url)
        time.sleep(0.1)


def test_it_beats_says_what_changes_and_ends_at_sigterm(tmp_path: Path) -> None:
    engine = Engine()
    with (
        serving(engine),
        watching("-e", engine.url, "--name", "p", "--state", str(tmp_path)) as (
            process,
            url,
        ),
    ):
        until(url, 'specctl_alert_exit_code{deployment="p"} 0')
        assert page(url, "/healthz") == "ok\n"
        engine.down = True
        until(url, 'specctl_alert_exit_code{deployment="p"} 2')
        engine.down = False
        until(url, 'specctl_alert_exit_code{deployment="p"} 0')
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert time.monotonic() - began < 20
    assert (process.returncode, err) == (0, "")
    words = [line.split(" ", 1)[1] for line in out.splitlines()]
    assert words[0].startswith("SPECCTL OK - acceptance 0.6")
    firing = [w.split(":")[0] for w in words if w.startswith("FIRING critical")]
    assert firing == ["FIRING critical ENGINE_DOWN 127.0.0.1"]
    assert any(w.startswith("RESOLVED critical ENGINE_DOWN") for w in words)
    kept = json.loads((tmp_path / "alert" / "watch-p.json").read_text())
    assert kept["schema"] == "specctl.alert-state/v1"


def test_a_source_that_cannot_be_read_is_no_end(tmp_path: Path) -> None:
    words = ("--prometheus", "http://127.0.0.1:9", "--name", "p", "--state", str(tmp_path))
    with watching(*words) as (process, url):
        until(url, 'specctl_alert_failures_total{deployment="p"} 2')
        assert 'specctl_alert_exit_code{deployment="p"} 3' in page(url)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(out.splitlines()) == 1
    assert "SPECCTL UNKNOWN" in out


def test_two_watchers_of_one_deployment_do_not_share_a_memory(tmp_path: Path) -> None:
    engine = Engine()
    words = ("-e", engine.url, "--name", "p", "--state", str(tmp_path), "--deadline", "1s")
    with serving(engine):
        words = ("-e", engine.url, *words[2:])
        with watching(*words):
            command = [sys.executable, "-m", "speccli", "alert", "watch", "--listen", "none"]
            second = subprocess.run(
                [*command, *words], env={}, capture_output=True, text=True, timeout=120, check=False
            )
    assert second.returncode == 3
    assert "another check of this deployment is running" in second.stderr
