from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from aiohttp import web

from speccli.core.config import Settings
from speccli.core.errors import SourceError, UsageError
from speccli.core.findings.base import Thresholds
from speccli.core.oneshot import Answer, ask
from speccli.core.open import Opened, access_of, open_source, pricing_of, thresholds_of
from speccli.core.poll import Poller
from speccli.core.sources.base import Scrape
from speccli.core.stats.window import Settings as WindowSettings
from speccli.core.stats.window import Window
from speccli.core.units import seconds
from tests.core.pages import TARGET, spec_page
from tests.support.recordings import failed, scraped, speculation, written
from tests.support.servers import RawServer, Server

AT = 1_795_975_200.0


class Scripted:
    """Rounds by a list; the last one repeats."""

    interval_s = 1.0
    simulated = False

    def __init__(self, *rounds: str | None) -> None:
        """A page, or None for a scrape that fails."""
        self._rounds = list(rounds)
        self.asked = 0
        self.closed = False

    async def scrapes(self) -> list[Scrape] | None:
        page = self._rounds[min(self.asked, len(self._rounds) - 1)]
        self.asked += 1
        at = AT + self.asked
        if page is None:
            return [Scrape(at, TARGET, error="connection reset")]
        return [Scrape(at, TARGET, 200, page.encode())]

    async def aclose(self) -> None:
        self.closed = True


class Clock:
    """Time that passes by sleeping."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def page(n: float) -> str:
    return spec_page(drafts=100 * n, drafted=300 * n, accepted=150 * n)


async def asked(source: Scripted, window_s: float = 5.0) -> Answer:
    poller = Poller(source, Window(WindowSettings(window_s=window_s)))
    opened = Opened(poller, Thresholds(), True, 1.0, window_s)
    clock = Clock()
    return await ask(opened, clock=clock, sleep=clock.sleep)


async def test_a_live_source_is_read_until_the_window_is_full() -> None:
    source = Scripted(*(page(n) for n in range(1, 10)))
    answer = await asked(source)
    assert source.asked == 6
    assert source.closed
    assert answer.snapshot.covered_s == pytest.approx(5.0)
    assert answer.snapshot.fleet.drafts.value == 500
    assert answer.readable


async def test_a_window_of_two_hours_is_two_hours() -> None:
    settings = Settings(endpoint=("h:1",), window="2h", interval="60s")
    opened = open_source(settings, replay=None, default_window_s=10.0)

    class EveryMinute(Scripted):
        interval_s = 60.0

        async def scrapes(self) -> list[Scrape] | None:
            self.asked += 1
            return [Scrape(AT + 60 * self.asked, TARGET, 200, page(self.asked).encode())]

    source, clock = EveryMinute(), Clock()
    opened.poller.source, opened.poller._now = source, None
    answer = await ask(opened, clock=clock, sleep=clock.sleep)
    assert source.asked == 121
    assert answer.snapshot.covered_s == pytest.approx(7200)
    assert answer.snapshot.fleet.drafts.value == 12_000


async def test_one_scrape_is_one_scrape() -> None:
    source = Scripted(page(1))
    answer = await asked(source, window_s=0.0)
    assert source.asked == 1
    assert answer.snapshot.fleet.drafts.value == 100


async def test_where_nothing_ever_answers_one_round_is_enough() -> None:
    source = Scripted(None)
    answer = await asked(source)
    assert source.asked == 1
    assert not answer.readable


async def test_one_failing_scrape_does_not_end_a_reading() -> None:
    source = Scripted(page(1), page(2), None, page(4), page(5), page(6))
    answer = await asked(source)
    assert source.asked == 6
    assert answer.snapshot.engines[0].state == "ok"
    assert answer.snapshot.fleet.drafts.value == 500


async def test_an_engine_that_dies_while_it_is_watched_was_read() -> None:
    answer = await asked(Scripted(page(1), page(2), None))
    assert answer.readable
    assert answer.snapshot.engines[0].state == "stale"


async def test_a_target_that_hangs_does_not_make_the_others_stale() -> None:
    pages = itertools.count(1)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=page(next(pages)), status=200)

    async with Server(handler) as server, RawServer(b"", hang=True) as dead:
        settings = Settings(
            endpoint=(server.url, dead.url), window="1s", interval="0.2s", deadline="2s"
        )
        answer = await ask(open_source(settings, replay=None, default_window_s=10.0))
    engines = {each.target: each for each in answer.snapshot.engines}
    assert engines[server.url].state == "ok"
    assert engines[dead.url].state == "down"
    assert engines[dead.url].reason == "no answer within 2 s"
    assert answer.snapshot.fleet.acceptance_rate.value == pytest.approx(0.5)
    assert 0.5 < answer.snapshot.covered_s < 1.8, "its own window, not that of the slowest"


@pytest.mark.parametrize(("interval", "deadline"), [(None, None), ("2s", "30s"), ("30s", None)])
def test_a_sample_stands_for_now_while_the_next_may_still_come(
    interval: str | None, deadline: str | None
) -> None:
    settings = Settings(endpoint=("h:1",), interval=interval, deadline=deadline)
    opened = open_source(settings, replay=None, default_window_s=10.0)
    longest = opened.interval_s + (seconds(deadline) if deadline else 5.0)
    assert opened.poller.window.settings.stale_s > longest


async def test_the_source_is_closed_when_it_breaks() -> None:
    class Broken(Scripted):
        async def scrapes(self) -> list[Scrape] | None:
            raise SourceError("it is gone")

    source = Broken()
    with pytest.raises(SourceError, match="gone"):
        await asked(source)
    assert source.closed


async def test_a_recording_is_read_to_its_end_and_its_note_is_passed_on(tmp_path: Path) -> None:
    lines = [scraped(60 * i, speculation(300 * i, 150 * i, 100 * i)) for i in range(5)]
    path = written(tmp_path / "r", lines)
    with path.open("a") as file:
        file.write('{"at": 179597')
    opened = open_source(Settings(), replay=path, default_window_s=10.0)
    answer = await ask(opened)
    assert answer.snapshot.covered_s == 240.0, "the whole recording, not the usual window"
    assert "cut line (line 7)" in (answer.note or "")
    assert [f.code for f in answer.findings] == ["PARTIAL_DATA"]


async def test_a_window_can_be_asked_of_a_recording(tmp_path: Path) -> None:
    lines = [scraped(60 * i, speculation(300 * i, 150 * i, 100 * i)) for i in range(5)]
    path = written(tmp_path / "r", lines)
    opened = open_source(Settings(window="2m"), replay=path, default_window_s=10.0)
    assert (await ask(opened)).snapshot.covered_s == 120.0


async def test_a_recording_without_a_scrape_is_no_engine(tmp_path: Path) -> None:
    opened = open_source(Settings(), replay=written(tmp_path / "r", []), default_window_s=10.0)
    answer = await ask(opened)
    assert answer.snapshot.engines == ()
    assert not answer.readable


async def test_a_recording_of_nothing_but_failures_is_no_engine(tmp_path: Path) -> None:
    path = written(tmp_path / "r", [failed(0, "connect refused")])
    answer = await ask(open_source(Settings(), replay=path, default_window_s=10.0))
    assert not answer.readable


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return written(tmp_path / "r", [failed(0, "connect refused")])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(), "no source of metrics"),
        (
            Settings(endpoint=("h:1",), prometheus="http://p"),
            "--endpoint and --prometheus together",
        ),
        (Settings(endpoint=("ftp://h",)), "scheme 'ftp'"),
        (Settings(endpoint=("h:1",), interval="fast"), "--interval 'fast' is not a duration"),
        (Settings(endpoint=("h:1",), interval="0.01s"), "--interval 0.01s: at least 0.1 s"),
        (Settings(prometheus="http://p", interval="0.001s"), "--interval 0.001s: at least 0.1 s"),
        (Settings(prometheus="http://p", interval="0"), "--interval 0: at least 0.1 s"),
        (Settings(endpoint=("h:1",), deadline="0"), "--deadline 0: at least 0.1 s"),
        (Settings(endpoint=("h:1",), window="-5s"), "--window '-5s' is not a duration"),
        (Settings(endpoint=("h:1",), hold="1 week"), "--hold '1 week' is not a duration"),
    ],
)
def test_what_cannot_be_opened_is_a_usage_error(settings: Settings, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_source(settings, replay=None, default_window_s=10.0)
    assert words in caught.value.message
    assert caught.value.hint


def test_a_recording_and_a_live_source_are_one_too_many(recording: Path) -> None:
    with pytest.raises(UsageError, match="--endpoint and --replay together"):
        open_source(Settings(endpoint=("h:1",)), replay=recording, default_window_s=10.0)


def test_settings_become_what_numbers_are_held_against() -> None:
    thresholds = thresholds_of(Settings(floor=0.0, hold="5m", queue_wait_ms=200.0, cost_target=2.0))
    assert (thresholds.acceptance_floor, thresholds.hold_s) == (0.0, 300.0)
    assert (thresholds.queue_wait_ms, thresholds.cost_per_1m_usd) == (200.0, 2.0)
    assert thresholds_of(Settings()) == Thresholds()
    assert pricing_of(Settings(gpu_hour_usd=2.0)).gpus_per_engine == 1


def test_what_drift_and_stalls_take_can_be_set() -> None:
    settings = Settings(
        drift_every="2s",
        drift_min_drafts=50,
        drift_looks=100,
        drift_margin=0.0,
        slope_fall=0.1,
        stalled="5m",
    )
    assert thresholds_of(settings) == Thresholds(
        drift_every_s=2.0,
        drift_min_drafts=50,
        drift_looks=100,
        drift_margin=0.0,
        slope_fall=0.1,
        stalled_s=300.0,
    )
    for wrong in (Settings(drift_every="0s"), Settings(stalled="0.5s")):
        with pytest.raises(UsageError, match="at least 1 s"):
            thresholds_of(wrong)


def test_files_of_the_user_may_begin_with_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    access = access_of(Settings(token_file="~/t", ca="~/ca", cert="~/c", key="~/k"))
    files = (access.token_file, access.ca_file, access.cert_file, access.key_file)
    assert [str(file) for file in files] == [f"/home/me/{name}" for name in ("t", "ca", "c", "k")]
    with pytest.raises(UsageError, match="no-such-user"):
        access_of(Settings(ca="~no-such-user/ca"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5m", 90),
        ("5min", 300),
        ("1h", 3600),
        ("2D", 172800),
        ("200 ms", 0.2),
    ],
)
def test_durations_as_people_type_them(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


def test_a_duration_that_is_too_short_is_refused() -> None:
    assert seconds("1s", least=1) == 1
    with pytest.raises(UsageError, match="^--deadline 0: at least 1 s$"):
        seconds("0", what="--deadline", least=1)


@pytest.mark.parametrize("text", ["367d", "99999999d", "9" * 400])
def test_a_duration_that_is_too_long_is_refused(text: str) -> None:
    assert seconds("366d") == 366 * 86400
    with pytest.raises(UsageError, match=r"^--window \S{3,21}: at most 366 d$"):
        seconds(text, what="--window")


@pytest.mark.parametrize("text", ["", "s", "-1", "1e3", "1w", "1h30m", "inf", "nan", "١s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        seconds(text, what="--for")
