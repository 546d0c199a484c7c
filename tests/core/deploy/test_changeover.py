"""A local deployment changes while clients go on: who serves, and what is said of it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from speccli.core.deploy import local
from speccli.core.deploy import place as places
from speccli.core.deploy.beside import room_beside
from speccli.core.deploy.changeover import Change
from speccli.core.deploy.look import deployed_here
from speccli.core.deploy.place import DeletedError, Here, ask_at, delete, place
from speccli.core.deploy.wanted import Launch
from speccli.core.errors import ExitCode, UnreachableError
from speccli.core.findings import evaluate
from speccli.core.findings.base import Thresholds
from speccli.core.kube.proven import Proof, ServerProof, Verdict
from speccli.core.sources.base import Scrape
from speccli.core.stats.window import Settings, Window
from speccli.core.views.deploy import local as as_json
from speccli.core.views.deploy import local_words
from tests.core.deploy.test_local import Deploy, deploy, engine_of, gone

__all__ = ["deploy"]
BESIDE = {"beside": True}
START = b"process_start_time_seconds "
FIRST = {"beside": False}


@contextmanager
def clients(url: str, count: int = 4) -> Iterator[list[int]]:
    """Clients that never stop; the statuses that they got (0: no answer)."""
    over, got = threading.Event(), []

    def ask() -> None:
        body = {"prompt": "Say it again.", "max_tokens": 8}
        while not over.wait(0.02):
            try:
                got.append(ask_at(url, 60.0)("POST", "/v1/completions", body)[0])
            except UnreachableError:
                got.append(0)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield got
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return place(tmp_path, "tiny")


@pytest.mark.slow
def test_no_request_fails_while_an_engine_is_replaced(deploy: Deploy, here: Here) -> None:
    first = deploy()
    former = engine_of(here)
    with clients(first.url) as got:
        second = deploy("draft.K=3", **BESIDE)
        back = deploy(**BESIDE)
        answered = len(got)
        while len(got) < answered + 8:
            pass
    assert [each.exit_code for each in (second, back)] == [ExitCode.OK] * 2
    assert set(got) == {200}
    assert gone(former)
    assert (second.serves, back.serves) == (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("side", [BESIDE, FIRST], ids=["beside", "stopped-first"])
def test_what_is_deleted_during_a_change_is_not_started_again(
    side: dict[str, bool], deploy: Deploy, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy()
    deploy("draft.K=3", wait=False, **side)
    before, stop = here.wanted, places.stop

    def stop_and_linger(here: Here) -> None:
        stop(here)
        time.sleep(1.0)  # who waits for the engine looks twice a second, and sees that it is gone

    def delete_it() -> None:
        while here.wanted == before:
            time.sleep(0.01)
        delete(here, lambda _: None)

    monkeypatch.setattr(places, "stop", stop_and_linger)
    deleting = threading.Thread(target=delete_it)
    deleting.start()
    with pytest.raises(DeletedError, match="tiny was deleted meanwhile"):
        deploy("draft.K=3", "engine.env.SLOW=1", **side)
    deleting.join()
    assert not here.alive
    assert not here.record()


@pytest.mark.slow
def test_counters_that_begin_again_at_a_switch_are_no_finding(deploy: Deploy) -> None:
    first = deploy()
    pages: list[Scrape] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.25):
            status, body = ask_at(first.url, 10.0)("GET", "/metrics")
            pages.append(Scrape(time.time(), first.url, status, body))

    looking = threading.Thread(target=look)
    with clients(first.url):
        looking.start()
        deploy("draft.K=3", **BESIDE)
        seen = len(pages)
        while len(pages) < seen + 12:
            time.sleep(0.1)
    over.set()
    looking.join()
    window = Window(Settings(window_s=None, span_s=None))
    for page in pages:
        window.push([page])
        snapshot = window.snapshot()
        rate = snapshot.fleet.acceptance_rate.value
        assert rate is None or 0 <= rate <= 1
        assert [f for f in evaluate(snapshot, Thresholds()) if f.severity != "info"] == []
    (engine,) = snapshot.engines
    assert engine.state == "ok"
    assert (
        len({line for page in pages for line in page.body.splitlines() if line.startswith(START)})
        == 2
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        pytest.param("BREAK", ExitCode.CRITICAL, "vocabularies differ", id="does-not-load"),
        pytest.param("USELESS", ExitCode.CRITICAL, "REFUTED", id="refuted"),
        pytest.param("SILENT", ExitCode.CRITICAL, "REFUTED", id="does-not-draft"),
    ],
)
def test_one_that_does_not_do_leaves_the_former_one_serving(
    change: str, code: ExitCode, words: str, deploy: Deploy, here: Here
) -> None:
    first = deploy()
    former = engine_of(here)
    with clients(first.url) as got:
        outcome = deploy(f"engine.env.{change}=1", **BESIDE)
    assert outcome.exit_code is code
    assert set(got) == {200}
    said = local_words(outcome)[1]
    assert words in said
    assert "revision 1 serves" in said
    told = as_json(outcome)
    assert (told["revision"], told["serving_revision"], told["state"]) == (2, 1, "failed")
    assert engine_of(here) == former, "what failed is ended, what served goes on"
    assert deployed_here(here).words == f"revision 1 is serving at {first.url}; revision 2 is not"
    mended = deploy("draft.K=3", **BESIDE)
    assert (mended.exit_code, mended.serves, mended.url) == (ExitCode.OK, 3, first.url)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["BREAK", "USELESS"])
def test_where_the_former_one_was_stopped_first_it_is_started_again(
    change: str, deploy: Deploy
) -> None:
    first = deploy()
    outcome = deploy(f"engine.env.{change}=1", **FIRST)
    assert outcome.exit_code is ExitCode.CRITICAL
    assert outcome.serves == 1
    assert ask_at(first.url, 5.0)("GET", "/health")[0] == 200
    again = deploy()
    assert (again.exit_code, again.record.current.number) == (ExitCode.OK, 3)
    assert again.serves == 3


@pytest.mark.slow
def test_a_change_that_was_cut_short_is_completed_by_the_same_again(
    deploy: Deploy, here: Here
) -> None:
    first = deploy()
    with clients(first.url) as got:
        begun = deploy("draft.K=3", wait=False, **BESIDE)
        assert "revision 1 serves" in local_words(begun)[1]
        assert begun.serves == 1
        candidate = engine_beside(here, 1)
        done = deploy("draft.K=3", **BESIDE)
    assert (done.exit_code, done.serves) == (ExitCode.OK, 2)
    assert engine_of(here) == candidate, "it was started twice"
    assert set(got) == {200}


@pytest.mark.slow
def test_a_command_that_was_killed_right_after_the_switch_is_completed(
    deploy: Deploy, here: Here
) -> None:
    deploy()
    former = engine_of(here)
    deploy("draft.K=3", wait=False, **BESIDE)
    wanted = here.wanted
    assert wanted is not None
    first, second = wanted.engines
    here.want(wanted.port, second, first)  # and no more
    done = deploy("draft.K=3")
    assert (done.exit_code, done.serves) == (ExitCode.OK, 2)
    assert gone(former)


@pytest.mark.slow
def test_another_change_takes_the_place_of_one_that_was_cut_short(
    deploy: Deploy, here: Here
) -> None:
    deploy()
    deploy("draft.K=3", wait=False, **BESIDE)
    left = engine_beside(here, 1)
    done = deploy("draft.K=2", **BESIDE)
    assert (done.exit_code, done.serves) == (ExitCode.OK, 3)
    assert gone(left)


def engine_beside(here: Here, revision: int) -> int:
    """The process of the engine that is started beside a revision's."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        others = [pid for key, pid in here.told.pids.items() if not key.startswith(f"{revision}:")]
        if others:
            return others[0]
        time.sleep(0.05)
    raise AssertionError("nothing was started")


@pytest.mark.parametrize(
    ("beside", "verdict", "back"),
    [
        (True, "proven", False),
        (True, "refuted", True),
        (True, "unknown", True),
        (False, "proven", False),
        (False, "refuted", True),
        (False, "unknown", False),
    ],
)
def test_what_nobody_could_tell_takes_no_traffic_from_what_serves(
    beside: bool, verdict: Verdict, back: bool, here: Here
) -> None:
    launch = Launch(2, "x", "python", "m", (), {}, 1, 1.0)
    proof = Proof((ServerProof("it", "main", verdict, "ngram", ""),), 1, "now")
    change = Change(here, launch, replace(launch, revision=1), beside)
    assert local._goes_back(change, proof) is back
    assert not local._goes_back(replace(change, former=None, beside=False), proof)


# ---- room ----

KB_PER_GIB = 2**20


def machine(folder: Path, *, takes_gib: float | None, free_gib: float | None) -> Path:
    """A folder of processes: a server of two, and another's."""
    for pid, session in ((10, 10), (11, 10), (12, 12)):
        process = folder / str(pid)
        (process / "fd").mkdir(parents=True)
        (process / "stat").write_text(f"{pid} (a name) S 1 {session} {session} 0")
        if takes_gib is not None:
            kb = int(takes_gib / 2 * KB_PER_GIB)
            (process / "smaps_rollup").write_text(f"Rss: 1 kB\nPss:      {kb} kB\n")
    if free_gib is not None:
        (folder / "meminfo").write_text(f"MemAvailable: {int(free_gib * KB_PER_GIB)} kB\n")
    return folder


@pytest.mark.parametrize(
    ("takes", "free", "fits", "words"),
    [
        (3.0, 6.0, True, "another takes up to 4.4 GiB, and 6.0 GiB are free"),
        (3.0, 4.0, False, "another takes up to 4.4 GiB, and 4.0 GiB are free"),
        (None, 6.0, False, "cannot be read"),
        (3.0, None, False, "free memory cannot be read"),
    ],
)
def test_room_is_measured_by_the_server_that_runs(
    takes: float | None, free: float | None, fits: bool, words: str, tmp_path: Path
) -> None:
    proc = machine(tmp_path, takes_gib=takes, free_gib=free)
    found = room_beside(10, 2**30, proc)
    assert found.fits is fits
    assert words in found.words


def test_a_gpu_has_no_room_for_two_unless_somebody_says_so(tmp_path: Path) -> None:
    proc = machine(tmp_path, takes_gib=1.0, free_gib=100.0)
    (proc / "11" / "fd" / "7").symlink_to("/dev/nvidia0")
    found = room_beside(10, 0, proc)
    assert not found.fits
    assert "GPU" in found.words


def test_this_machine_can_be_measured() -> None:
    # A session of its own: who leads that of the tests may be out of this container's sight.
    waits = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, start_new_session=True) as own:
        found = room_beside(own.pid, 2**60)
        own.communicate(b"\n")
    assert not found.fits
    assert "are free" in found.words
