from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from speccli.core.sources.recording import Recording
from tests.support.engines import Served, serving
from tests.support.processes import started
from tests.support.recordings import specctl

QUICK = ("--interval", "0.1s")


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz", "r.jsonl.zst"])
def test_what_was_recorded_is_replayed_as_it_was(tmp_path: Path, name: str) -> None:
    with serving() as served:
        done = specctl("record", name, "-e", served.url, "--for", "0.3s", *QUICK)
    assert (done.exit_code, done.stdout) == (0, "")
    count = int(done.stderr.split()[1])
    assert done.stderr == f"specctl: {count} scrapes in {name}\n"
    assert count >= 3
    answer = specctl("status", "--replay", name, "-o", "json")
    assert answer.exit_code == 0
    assert answer.fleet["drafts"]["value"] == (count - 1) * 30
    assert answer.engine["target"] == served.url


@pytest.mark.parametrize(
    ("number", "suffix"),
    [(signal.SIGINT, ".zst"), (signal.SIGTERM, ".gz"), (signal.SIGHUP, "")],
)
def test_a_signal_keeps_every_scrape(tmp_path: Path, number: signal.Signals, suffix: str) -> None:
    path = tmp_path / f"r{suffix}"
    with (
        serving() as served,
        started("record", path, "-e", served.url, *QUICK, cwd=tmp_path) as process,
    ):
        deadline = time.monotonic() + 120
        while served.asked.count("/metrics") < 4:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (0, "")
    recording = Recording(path)
    found = list(recording)
    assert recording.note is None
    assert stderr == f"specctl: {len(found)} scrapes in {path}\n"
    assert len(found) >= 3


def test_a_file_that_is_there_is_overwritten_only_by_force(tmp_path: Path) -> None:
    Path("r").write_text("precious")
    answer = specctl("record", "r", "-e", "127.0.0.1:1", "--for", "0")
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert answer.stderr == "specctl: error: r exists\nhint: --force overwrites it\n"
    assert Path("r").read_text() == "precious"
    with serving() as served:
        assert specctl("record", "r", "-e", served.url, "--for", "0", "--force").exit_code == 0
    assert json.loads(Path("r").read_text().splitlines()[0])["schema"] == "specctl.recording/v1"


@pytest.mark.parametrize(
    "wrong", [("--ca", "no.pem"), ("--token-file", "none"), ("-e", "ftp://h"), ("--for", "x")]
)
def test_a_usage_error_leaves_no_file_and_no_hole_in_one(wrong: tuple[str, str]) -> None:
    Path("precious").write_text("precious")
    for name in ("new", "precious"):
        answer = specctl("record", name, "-e", "127.0.0.1:1", "--for", "0", "--force", *wrong)
        assert answer.exit_code == 64
    assert not Path("new").exists()
    assert Path("precious").read_text() == "precious"


def test_a_full_disk_is_one_clear_line() -> None:
    with serving() as served:
        answer = specctl("record", "/dev/full", "-e", served.url, "--force", "--for", "1s")
    assert (answer.exit_code, answer.stdout) == (3, "")
    assert answer.stderr == (
        "specctl: error: cannot write /dev/full: No space left on device\nhint: is the disk full?\n"
    )


@pytest.mark.parametrize("place", ["no/such/folder/r", "."])
def test_a_place_that_cannot_be_written_is_64(place: str) -> None:
    answer = specctl("record", place, "-e", "127.0.0.1:1", "--for", "0", "--force")
    assert answer.exit_code == 64
    assert len(answer.stderr.splitlines()) <= 2


def test_nothing_that_answers_is_3_and_still_recorded() -> None:
    answer = specctl("record", "r", "-e", "127.0.0.1:1", "--for", "0.1s", *QUICK)
    assert answer.exit_code == 3
    assert "no target answered" in answer.stderr
    assert {scrape.error for scrape in Recording(Path("r"))} == {"connect refused"}


def test_full_keeps_what_is_not_read_and_the_usual_does_not() -> None:
    with serving() as served:
        specctl("record", "full", "-e", served.url, "--for", "0", "--full")
        specctl("record", "usual", "-e", served.url, "--for", "0")
    assert "python_gc_objects_collected_total" in Path("full").read_text()
    assert "python_gc_objects_collected_total" not in Path("usual").read_text()
    assert "# HELP" in Path("full").read_text()


def test_no_credential_is_in_the_file_or_in_what_is_said() -> None:
    with serving(Served(token="hunter2hunter2")) as served:
        address = served.url.replace("://", "://me:hunter2@")
        said = [
            specctl("record", "a", "-e", served.url, "--token", "hunter2hunter2", "--for", "0"),
            specctl("record", "b", "-e", f"{address}/metrics?key=hunter2", "--for", "0"),
        ]
    for answer, name in zip(said, ("a", "b"), strict=True):
        assert "hunter2" not in Path(name).read_text() + answer.stdout + answer.stderr


def test_a_recording_can_be_made_of_a_recording() -> None:
    with serving() as served:
        specctl("record", "a", "-e", served.url, "--for", "0.2s", *QUICK)
    assert specctl("record", "b.gz", "--replay", "a").exit_code == 0
    assert [s.body for s in Recording(Path("b.gz"))] == [s.body for s in Recording(Path("a"))]
    answer = specctl("record", "a", "--replay", "a", "--force")
    assert answer.exit_code == 64
    assert "is the recording that is read" in answer.stderr
