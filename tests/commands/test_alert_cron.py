"""`alert check` as cron runs it: another process, no environment, no terminal, odd folders."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.engine_page import Engine, serving

pytestmark = pytest.mark.slow
QUICK = ("--window", "0.3s")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    seconds: float

    @property
    def first(self) -> str:
        return self.out.splitlines()[0]

    @property
    def over_s(self) -> float:
        """What its numbers are of: seconds or minutes."""
        told = re.search(r"\bover ([0-9.]+) (s|min)\b", self.first)
        assert told, self.first
        return float(told[1]) * {"s": 1, "min": 60}[told[2]]


def cron(*words: str | Path, env: dict[str, str] | None = None) -> Ran:
    """`specctl alert check …` with nothing around it."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "speccli", "alert", "check", *map(str, words)],
        env=env or {},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def usual_s(engine: Engine) -> float:
    """What a check takes here and now that has to wait for nobody."""
    return cron("-e", engine.url, *QUICK).seconds


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    with serving(engine):
        yield engine


def state_of(folder: Path) -> Path:
    (file,) = (folder / "alert").glob("*.json")
    return file


def later(folder: Path, by: float = 60.0) -> None:
    """So much time passes since the last check, by every clock."""
    file = state_of(folder)
    kept = json.loads(file.read_text())
    kept["at"] -= by
    kept["uptime"] -= by
    for scrape in kept["scrapes"]:
        scrape["at"] -= by
    file.write_text(json.dumps(kept))
    time.sleep(0.3)


def test_an_empty_environment_is_enough_and_what_lacks_is_said(engine: Engine) -> None:
    ran = cron("-e", engine.url, *QUICK)
    assert ran.code == 0
    # Counters are whole: over 0.3 s the share is within one draft of what it was made.
    assert re.match(r"SPECCTL OK - acceptance 0\.(59\d|60\d), 1 engine, over ", ran.first)
    assert ran.over_s < ran.seconds
    assert "\x1b" not in ran.out
    assert ran.err == (
        "specctl: note: nothing is remembered: no folder for what is to be remembered: HOME is "
        "not set (give --state DIR or SPECCTL_STATE)\n"
    )


@pytest.mark.parametrize("dry", [False, True])
def test_channels_that_cannot_be_used_are_said_every_time_and_change_no_verdict(
    engine: Engine, tmp_path: Path, dry: bool
) -> None:
    words = ("-e", engine.url, "--state", tmp_path, *QUICK, *(("--dry-run",) if dry else ()))
    bad = ("--alertmanager", "nobody.invalid", "--notify", "bogus://secret")
    mark = "dry run: " if dry else ""
    for _ in range(2):
        ran = cron(*words, *bad)
        assert (ran.code, ran.first.split(" - ")[0]) == (0, "SPECCTL OK")
        assert ran.err.splitlines() == [
            f"specctl: note: {mark}Alertmanager http://nobody.invalid cannot be told anything: "
            "name not found",
            f"specctl: note: {mark}apprise bogus://… cannot be told anything: "
            "apprise does not know this URL",
        ]
    silent = cron(*words, "--alertmanager", "127.0.0.1:9", "--notify", "json://localhost:9/x")
    assert (silent.code, silent.err) == (0, "")


def test_speculation_that_a_restart_lost_pages_until_it_is_said_that_it_was_meant(
    engine: Engine, tmp_path: Path
) -> None:
    words = ("-e", engine.url, "--state", tmp_path, *QUICK)
    assert cron(*words).code == 0
    engine.plain, engine.began = True, time.time()
    for _ in range(2):
        ran = cron(*words)
        assert ran.code == 2
        assert ran.first.startswith("SPECCTL CRITICAL - SPEC_NOT_ACTIVE 127.0.0.1:")
        assert "drafted before, and has no speculative configuration now" in ran.first
    assert cron(*words, "--method", "none").code == 0
    ran = cron(*words)
    assert (ran.code, ran.first.split(" - ")[0]) == (0, "SPECCTL OK")


def test_a_server_that_never_drafted_pages_where_a_method_is_expected(
    engine: Engine, tmp_path: Path
) -> None:
    engine.plain = True
    words = ("-e", engine.url, "--state", tmp_path, *QUICK)
    assert cron(*words).code == 0
    assert cron(*words, "--method", "eagle3").code == 2
    assert cron(*words).code == 0


def test_low_acceptance_is_pending_until_its_hold_is_over(engine: Engine, tmp_path: Path) -> None:
    engine.accepted = 0.08
    words = ("-e", engine.url, "--state", tmp_path, *QUICK)
    ran = cron(*words)
    assert (ran.code, ran.first.split(" - ")[0]) == (0, "SPECCTL OK")
    assert ran.first.split(" | ")[0].endswith("; pending: LOW_ACCEPTANCE")
    (line,) = ran.out.splitlines()[1:]
    assert re.match(r"PENDING LOW_ACCEPTANCE 127\.0\.0\.1:\d+/0: accepted ", line)
    assert re.search(r"; under 0\.4 for [0-9.]+ s of 60 min\. ", line)
    told = json.loads(cron(*words, "-o", "json").out)
    assert [f["code"] for f in told["pending"]] == ["LOW_ACCEPTANCE"]
    assert (told["findings"], told["exit"]) == ([], 0)
    ran = cron(*words, "--hold", "0.1s")
    assert ran.code == 1
    assert "PENDING" not in ran.out


def test_with_a_folder_it_is_quiet_and_judges_what_grew_since_the_last_check(
    engine: Engine, tmp_path: Path
) -> None:
    began = time.monotonic()
    first = cron("-e", engine.url, *QUICK, env={"XDG_STATE_HOME": str(tmp_path)})
    assert (first.code, first.err) == (0, "")
    asked = engine.asked
    later(tmp_path / "specctl")
    second = cron("-e", engine.url, env={"SPECCTL_STATE": str(tmp_path / "specctl")})
    assert (second.code, second.err) == (0, "")
    assert 60 <= second.over_s <= 60 + time.monotonic() - began + 1
    assert engine.asked - asked <= 4  # the page, once, and what the server says of itself


def test_a_draft_that_broke_between_two_checks_is_critical(engine: Engine, tmp_path: Path) -> None:
    cron("-e", engine.url, *QUICK, "--state", tmp_path)
    later(tmp_path)
    engine.began, engine.accepted = time.time() - 1, 0.0  # restarted, with a broken draft
    ran = cron("-e", engine.url, "--state", tmp_path)
    assert ran.code == 2
    assert ran.first.startswith("SPECCTL CRITICAL - ZERO_ACCEPTANCE")


def test_an_engine_that_answered_before_and_does_not_now_is_critical(
    engine: Engine, tmp_path: Path
) -> None:
    never = cron("-e", "http://127.0.0.1:9", "--deadline", "30s")
    assert never.code == 3
    cron("-e", engine.url, *QUICK, "--state", tmp_path)
    later(tmp_path)
    engine.down = True
    for _ in range(2):
        ran = cron("-e", engine.url, "--state", tmp_path, "--deadline", "30s")
        assert ran.code == 2
        assert "ENGINE_DOWN" in ran.first
    engine.down = False
    assert cron("-e", engine.url, *QUICK, "--state", tmp_path).code == 0


def test_a_corrupted_state_is_moved_aside_and_the_verdict_stands(
    engine: Engine, tmp_path: Path
) -> None:
    cron("-e", engine.url, *QUICK, "--state", tmp_path)
    state_of(tmp_path).write_bytes(b'{"schema": "specctl.alert-state/v1", "at": 17')
    ran = cron("-e", engine.url, *QUICK, "--state", tmp_path)
    assert ran.code == 0
    assert "it is not JSON; moved to" in ran.err
    assert json.loads(state_of(tmp_path).read_text())["at"] > 1e9


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def test_a_read_only_folder_changes_no_verdict_and_is_said(engine: Engine, disk: Path) -> None:
    cron("-e", engine.url, *QUICK, "--state", disk)
    later(disk)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    engine.accepted, engine.began = 0.0, time.time() - 10
    ran = cron("-e", engine.url, "--state", disk)
    assert ran.code == 2
    assert "restarted" in ran.first or ran.over_s >= 60  # what was remembered is used
    assert "Read-only file system" in ran.err


def test_a_full_disk_changes_no_verdict_and_loses_nothing(engine: Engine, disk: Path) -> None:
    cron("-e", engine.url, *QUICK, "--state", disk)
    later(disk)
    kept = state_of(disk).read_text()
    with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
        while file.write(b"x" * 1024):
            pass
    engine.accepted, engine.began = 0.0, time.time() - 10
    ran = cron("-e", engine.url, "--state", disk)
    assert ran.code == 2
    assert "No space left on device" in ran.err
    assert state_of(disk).read_text() == kept


@pytest.mark.parametrize("by", [-7200.0, 1500.0, 864_000.0])
def test_a_clock_that_jumped_is_said_and_no_growth_is_told_from_it(
    engine: Engine, tmp_path: Path, by: float
) -> None:
    cron("-e", engine.url, *QUICK, "--state", tmp_path)
    file = state_of(tmp_path)
    kept = json.loads(file.read_text())
    kept["at"] -= by
    for scrape in kept["scrapes"]:
        scrape["at"] -= by
    file.write_text(json.dumps(kept))
    ran = cron("-e", engine.url, *QUICK, "--state", tmp_path)
    assert ran.code == 0
    assert f"the clock was set {'back' if by < 0 else 'forward'} by" in ran.err
    assert ran.over_s < ran.seconds


def test_two_at_once_the_second_waits_and_both_answer(engine: Engine, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "speccli", "alert", "check", "-e", engine.url]
    command += ["--window", "1s", "--state", str(tmp_path)]
    both = [subprocess.Popen(command, env={}, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outs = [process.communicate(timeout=180)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all(out.startswith("SPECCTL OK") for out in outs)


def test_a_second_one_that_waits_too_long_says_so(engine: Engine, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "speccli", "alert", "check", "-e", engine.url]
    command += ["--window", "100s", "--deadline", "200s", "--state", str(tmp_path)]
    with subprocess.Popen(command, env={}, stdout=subprocess.DEVNULL) as first:
        while not list(tmp_path.glob("alert/*.lock")):
            time.sleep(0.02)
        before = usual_s(engine)
        ran = cron("-e", engine.url, "--state", tmp_path, "--deadline", "10s")
        after = usual_s(engine)
        assert first.poll() is None, "it was waited for"
        first.terminate()
    # Its start is not of its deadline: a few of them, as slow as this machine is now.
    assert ran.seconds < 10 + 5 * max(before, after)
    assert ran.code == 3
    assert "another check of this deployment is running" in ran.first


def test_one_hanging_engine_does_not_hide_the_others_and_the_deadline_holds(
    engine: Engine, tmp_path: Path
) -> None:
    hung = Engine(hang_s=170)
    words = (*QUICK, "--deadline", "60s", "--state", tmp_path)
    with serving(hung):
        ran = cron("-e", engine.url, "-e", hung.url, *words)
    assert ran.seconds < 60  # a sixth of it is enough, and the rest is for a busy machine's start
    assert ran.code == 2
    assert "ENGINE_DOWN" in ran.first
    assert "no answer within" in ran.first
    told = re.search(r"\bengines=1;.* acceptance_rate=([0-9.]+);", ran.first)
    assert told, ran.first
    assert float(told[1]) == pytest.approx(0.6, abs=0.02)


def test_a_prometheus_that_accepts_and_never_answers_is_unknown_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        ran = cron("--prometheus", f"http://127.0.0.1:{port}", "--deadline", "3")
    assert ran.code == 3
    assert ran.first.startswith("SPECCTL UNKNOWN - ")
    assert ran.seconds < 20


def test_json_when_nothing_can_be_judged_is_still_the_contracts_object() -> None:
    ran = cron("--prometheus", "http://127.0.0.1:9", "--deadline", "3", "-o", "json")
    told = json.loads(ran.out)
    assert (ran.code, told["exit"], told["verdict"]) == (3, 3, "unknown")
    assert (told["findings"], told["status"]) == ([], None)
