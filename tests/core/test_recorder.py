from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from speccli.core.errors import RecordingError, SourceError, UsageError
from speccli.core.findings.base import Thresholds
from speccli.core.open import Opened
from speccli.core.poll import Poller
from speccli.core.recorder import record, refuse_to_lose
from speccli.core.sources.base import Scrape
from speccli.core.sources.recording import Recording
from speccli.core.stats.window import Settings, Window

TARGET = "http://a:8000"


class Scripted:
    """A scrape a round, and what a test puts between them."""

    simulated = False
    interval_s = 0.01

    def __init__(self, rounds: int | None = None) -> None:
        self.rounds = rounds
        self.asked = 0
        self.closed = False

    async def scrapes(self) -> list[Scrape] | None:
        if self.rounds is not None and self.asked >= self.rounds:
            return None
        self.asked += 1
        return [Scrape(float(self.asked), TARGET, 200, b"vllm:num_requests_running 1\n")]

    async def aclose(self) -> None:
        self.closed = True


def opened(source: Scripted) -> Opened:
    poller = Poller(source, Window(Settings()))
    return Opened(poller, Thresholds(), True, source.interval_s, 60.0)


async def test_a_source_that_ends_ends_the_recording(tmp_path: Path) -> None:
    source, told = Scripted(5), []
    done = await record(
        opened(source), tmp_path / "r", lasting_s=None, tell=lambda *n: told.append(n)
    )
    assert (done.scrapes, done.answered) == (5, 5)
    assert told == [(n, 0) for n in range(1, 6)]
    assert source.closed
    assert len(list(Recording(tmp_path / "r"))) == 5


async def test_the_time_counts_from_the_first_answers(tmp_path: Path) -> None:
    now = [0.0]

    class Slow(Scripted):
        async def scrapes(self) -> list[Scrape] | None:
            now[0] += 1.0 if self.asked else 10.0  # a first connection takes its time
            return await super().scrapes()

    source = Slow()
    done = await record(opened(source), tmp_path / "r", lasting_s=5.0, clock=lambda: now[0])
    assert done.scrapes == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_with_everything_on_disk(
    tmp_path: Path, number: signal.Signals
) -> None:
    class Told(Scripted):
        async def scrapes(self) -> list[Scrape] | None:
            if self.asked == 3:
                os.kill(os.getpid(), number)
            return await super().scrapes()

    async with asyncio.timeout(60):
        done = await record(opened(Told()), tmp_path / "r.gz", lasting_s=None)
    assert done.scrapes == len(list(Recording(tmp_path / "r.gz"))) >= 3
    after = {signal.SIG_IGN} if number == signal.SIGINT else {signal.SIG_DFL}
    assert signal.getsignal(number) in after  # Ctrl-C once more does not cut off what is said


async def test_a_hanging_round_does_not_hold_up_the_end(tmp_path: Path) -> None:
    class Hanging(Scripted):
        async def scrapes(self) -> list[Scrape] | None:
            if self.asked == 2:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(60)
            return await super().scrapes()

    async with asyncio.timeout(60):
        done = await record(opened(Hanging()), tmp_path / "r", lasting_s=None)
    assert done.scrapes == len(list(Recording(tmp_path / "r"))) == 2


async def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:

        class HungUp(Scripted):
            async def scrapes(self) -> list[Scrape] | None:
                os.kill(os.getpid(), signal.SIGHUP)
                return await super().scrapes()

        done = await record(opened(HungUp(4)), tmp_path / "r", lasting_s=None)
        assert done.scrapes == 4, "nohup means it"
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_source_that_breaks_at_once_is_an_error(tmp_path: Path) -> None:
    class Broken(Scripted):
        async def scrapes(self) -> list[Scrape] | None:
            raise SourceError("no answer from http://prometheus")

    source = Broken()
    (tmp_path / "r").write_text("precious")
    with pytest.raises(SourceError, match="no answer"):
        await record(opened(source), tmp_path / "r", lasting_s=None)
    assert source.closed
    assert (tmp_path / "r").read_text() == "precious", "nothing was there to put in its place"


async def test_a_source_that_breaks_for_a_while_is_waited_for(tmp_path: Path) -> None:
    class Flaky(Scripted):
        failures = 0

        async def scrapes(self) -> list[Scrape] | None:
            if self.asked == 2 and self.failures < 3:
                self.failures += 1
                raise SourceError("no answer from http://prometheus")
            return await super().scrapes()

    done = await record(opened(Flaky(5)), tmp_path / "r", lasting_s=None)
    assert done.scrapes == 5


async def test_a_full_disk_is_one_error_and_closes_the_source(tmp_path: Path) -> None:
    path, source = tmp_path / "full", Scripted()
    path.symlink_to("/dev/full")
    with pytest.raises(RecordingError, match="No space left on device"):
        await record(opened(source), path, lasting_s=None)
    assert source.closed


async def test_answers_are_counted_apart_from_scrapes(tmp_path: Path) -> None:
    class Refusing(Scripted):
        async def scrapes(self) -> list[Scrape] | None:
            if await super().scrapes() is None:
                return None
            return [Scrape(float(self.asked), TARGET, error="connect refused")]

    done = await record(opened(Refusing(3)), tmp_path / "r", lasting_s=None)
    assert (done.scrapes, done.answered) == (3, 0)


def test_an_existing_file_is_overwritten_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "r"
    refuse_to_lose(path, force=False, replay=None)
    path.write_text("precious")
    with pytest.raises(UsageError, match="exists") as caught:
        refuse_to_lose(path, force=False, replay=None)
    assert "--force" in (caught.value.hint or "")
    refuse_to_lose(path, force=True, replay=None)


def test_the_recording_that_is_read_is_never_overwritten(tmp_path: Path) -> None:
    path, link = tmp_path / "r", tmp_path / "link"
    path.write_text("precious")
    link.symlink_to(path)
    with pytest.raises(UsageError, match="is the recording that is read"):
        refuse_to_lose(link, force=True, replay=path)
    refuse_to_lose(tmp_path / "new", force=False, replay=path)
    refuse_to_lose(path, force=True, replay=tmp_path / "missing")


def test_a_name_that_no_file_can_have_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError):
        refuse_to_lose(tmp_path / "r\0", force=False, replay=None)
    with pytest.raises(RecordingError, match="cannot read"):
        Recording(tmp_path / "r\0")
