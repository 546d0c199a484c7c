"""The state file: whole or not there, one run at a time, and never a reason to fail."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from speccli.core.alert import look
from speccli.core.alert.memory import SCHEMA, Keeper, Memory, file_name
from speccli.core.errors import DeadlineError
from speccli.core.sources.base import Scrape

SCRAPE = Scrape(1e9, "http://a:8000", 200, b'vllm:generation_tokens_total{engine="0"} 4\n')


def keeper(folder: Path) -> Keeper:
    return Keeper(folder, "check-x.json")


def remembered() -> Memory:
    return Memory(
        at=1e9, scrapes=[SCRAPE], floor=0.4, low={("http://a:8000", "0"): 5.0}, holds=[], sent={}
    )


def test_what_is_kept_is_what_is_loaded(tmp_path: Path) -> None:
    assert keeper(tmp_path).save(remembered())
    loaded = keeper(tmp_path).load()
    assert (loaded.at, loaded.scrapes, loaded.low) == (1e9, [SCRAPE], remembered().low)
    assert json.loads((tmp_path / "alert" / "check-x.json").read_text())["schema"] == SCHEMA


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    keeper(tmp_path).save(remembered())
    assert (tmp_path / "alert" / "check-x.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"schema": "specctl.alert-state/v9", "at": 1}',
        b'{"schema": "specctl.alert-state/v1"}',
        b'{"schema": "specctl.alert-state/v1", "at": 1, "scrapes": [3], "low": []}',
        b'{"schema": "specctl.alert-state/v1", "at": 1, "scrapes": [], "low": [[1]]}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_moved_aside_and_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "alert" / "check-x.json"
    path.parent.mkdir()
    path.write_bytes(content)
    mine = keeper(tmp_path)
    assert mine.load() == Memory()
    assert "moved to check-x.damaged" in mine.notes[0]
    assert path.with_suffix(".damaged").read_bytes() == content
    assert mine.save(remembered())
    assert keeper(tmp_path).load().at == 1e9


def test_nothing_is_remembered_at_first_and_nothing_said(tmp_path: Path) -> None:
    mine = keeper(tmp_path / "not" / "there")
    assert mine.load() == Memory()
    assert mine.notes == []


def test_without_a_folder_nothing_fails() -> None:
    mine = Keeper(None, "x.json")
    with mine.locked(0):
        assert mine.load() == Memory()
        assert not mine.save(remembered())


def test_a_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "alert").write_text("")
    mine = keeper(tmp_path)
    with mine.locked(0):
        assert mine.load() == Memory()
        assert not mine.save(remembered())
    assert "cannot write" in mine.notes[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper(tmp_path).save(remembered())

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    mine = keeper(tmp_path)
    assert not mine.save(Memory(at=2e9))
    assert "No space left on device" in mine.notes[0]
    monkeypatch.undo()
    assert keeper(tmp_path).load().at == 1e9
    assert [p.name for p in (tmp_path / "alert").iterdir()] == ["check-x.json"]


def _hold(folder: Path, held: object, release: object) -> None:
    with keeper(folder).locked(5):
        held.set()  # type: ignore[attr-defined]
        release.wait(20)  # type: ignore[attr-defined]


def test_a_second_run_waits_and_then_says_who_has_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    held, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, held, release))
    other.start()
    try:
        assert held.wait(10)
        with pytest.raises(DeadlineError, match=f"process {other.pid}"), keeper(tmp_path).locked(0):
            raise AssertionError("it was locked")
        now = [0.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds
            release.set()
            other.join(10)

        with keeper(tmp_path).locked(5, clock=lambda: now[0], sleep=sleep):
            assert now[0] > 0
    finally:
        release.set()
        other.join(10)


def test_a_run_that_died_leaves_no_lock_behind(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        with keeper(tmp_path).locked(1):
            os._exit(9)
    os.waitpid(pid, 0)
    with keeper(tmp_path).locked(0):
        pass


def test_file_names_tell_deployments_apart() -> None:
    names = [
        file_name("check", "prod", ""),
        file_name("watch", "prod", ""),
        file_name("check", "pr/od", ""),
        file_name("check", "pr-od", ""),
        file_name("check", None, "http://a:8000"),
        file_name("check", None, "http://b:8000"),
        file_name("check", "../../etc/passwd", ""),
    ]
    assert len(set(names)) == len(names)
    assert all("/" not in name and not name.startswith(".") for name in names)


@pytest.mark.parametrize(
    ("later", "up", "jump"),
    [(300, 300, None), (300, 301, None), (-100, 300, -400), (7200, 300, 6900)],
)
def test_a_clock_that_was_set_is_told_from_one_that_ran(
    later: float, up: float, jump: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(at=1e9, boot="b", uptime=50.0)
    monkeypatch.setattr(look, "boot", lambda: ("b", 50.0 + up))
    found = look.clock_was_set(memory, 1e9 + later)
    assert found == (None if jump is None else pytest.approx(jump))


def test_after_a_reboot_only_a_clock_set_back_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(at=1e9, boot="b", uptime=50.0, scrapes=[SCRAPE])
    monkeypatch.setattr(look, "boot", lambda: ("c", 3.0))
    assert look.clock_was_set(memory, 1e9 + 7200) is None
    assert look.clock_was_set(memory, 1e9 - 7200) == -7200
    earlier, said = look.usable(memory, 1e9 - 7200)
    assert earlier == []
    assert said is not None
    assert "set back by 120 min" in said
