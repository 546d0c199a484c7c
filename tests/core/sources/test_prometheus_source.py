"""Raw samples of a Prometheus become the pages they were scraped from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.config import Settings as Asked
from speccli.core.engines.registry import PROCESS_START
from speccli.core.errors import SourceError
from speccli.core.findings.base import Thresholds
from speccli.core.metrics.parse import parse_sample
from speccli.core.oneshot import ask
from speccli.core.open import Opened, open_source
from speccli.core.poll_prometheus import PrometheusPoller
from speccli.core.recorder import record
from speccli.core.sources.census import Census, interval_of
from speccli.core.sources.promapi import Answer, Series
from speccli.core.sources.prometheus import DOWN, PrometheusSource, rounds_of, to_scrapes
from speccli.core.sources.recording import Recording
from speccli.core.stats.window import Settings, Window

T0 = 1795975200.0
TARGET = {"job": "vllm", "instance": "10.0.0.7:8000", "namespace": "prod"}
OTHER = TARGET | {"instance": "10.0.0.8:8000"}
ENGINE = {"engine": "0", "model_name": "llama"}


def series(
    name: str, samples: Mapping[float, float | str], target: Mapping[str, str] = TARGET, **own: str
) -> Series:
    labels = {"__name__": name, **target, **own}
    return Series(labels, [(T0 + at, str(value)) for at, value in samples.items()])


def growing(name: str, per_s: float, *ats: float, target: Mapping[str, str] = TARGET) -> Series:
    return series(name, {at: 1000 + per_s * at for at in ats}, {**target, **ENGINE})


def test_a_page_is_what_one_target_was_scraped_for_at_one_time() -> None:
    found = to_scrapes(
        [growing("vllm:generation_tokens_total", 10, 0, 15), growing("vllm:x_total", 1, 15)],
        [series("up", {0: 1, 15: 1}), series("process_start_time_seconds", {0: 5, 15: 5})],
        {},
    )
    assert [(scrape.at, scrape.target, scrape.status) for scrape in found] == [
        (T0, "http://10.0.0.7:8000", 200),
        (T0 + 15, "http://10.0.0.7:8000", 200),
    ]
    assert found[1].body.decode().splitlines() == [
        'vllm:generation_tokens_total{engine="0",model_name="llama"} 1150',
        'vllm:x_total{engine="0",model_name="llama"} 1015',
        "process_start_time_seconds 5",
    ]


def test_labels_that_up_has_are_the_targets_and_the_engines_own_stay() -> None:
    target = TARGET | {"team": "search"}
    found = to_scrapes([growing("vllm:x", 1, 0, target=target)], [series("up", {0: 1}, target)], {})
    assert found[0].body == b'vllm:x{engine="0",model_name="llama"} 1000\n'


def test_the_label_pool_of_a_target_is_its_pool() -> None:
    standby = OTHER | {"pool": "standby"}
    found = to_scrapes(
        [growing("vllm:x", 1, 0), growing("vllm:x", 1, 0, target=standby)],
        [series("up", {0: 1}), series("up", {0: 1}, standby)],
        {},
    )
    assert {scrape.target[-6:-5]: scrape.pool for scrape in found} == {"7": None, "8": "standby"}


def test_a_target_that_is_down_says_so_and_one_that_lost_its_engine_too() -> None:
    found = to_scrapes(
        [growing("vllm:x", 1, 0)],
        [series("up", {0: 1, 15: 1, 30: 0}), series("up", {0: 0}, OTHER)],
        {},
    )
    assert [(s.at - T0, s.target[-6:-5], s.error, s.body != b"") for s in found] == [
        (0, "7", None, True),
        (0, "8", DOWN, False),
        (15, "7", None, False),
        (30, "7", DOWN, False),
    ]


def test_a_target_of_the_job_that_is_no_engine_is_not_shown() -> None:
    assert to_scrapes([], [series("up", {0: 1})], {}) == []


def test_what_was_delivered_is_not_delivered_again() -> None:
    found = to_scrapes(
        [growing("vllm:x", 1, 0, 15, 30)],
        [series("up", {0: 1, 15: 1, 30: 0})],
        {"http://10.0.0.7:8000": T0 + 15},
    )
    assert [scrape.at for scrape in found] == [T0 + 30]


@given(st.text())
def test_label_values_survive(value: str) -> None:
    found = to_scrapes([series("vllm:x", {0: 1}, model_name=value)], [], {})
    lines = found[0].body.split(b"\n")
    assert len(lines) == 2
    assert parse_sample(lines[0])[0].labels == {"model_name": value}


def test_without_an_instance_the_pod_names_the_target() -> None:
    found = to_scrapes([series("vllm:x", {0: 1}, {"pod": "llama-0"})], [], {})
    assert found[0].target == "http://llama-0"


@pytest.mark.parametrize("label", ["cluster", "namespace", "job", "pod"])
def test_one_address_in_two_places_is_two_targets(label: str) -> None:
    here, there = TARGET | {label: "a"}, TARGET | {label: "b"}
    found = to_scrapes(
        [growing("vllm:x", 1, 0, 15, target=here), growing("vllm:x", 2, 5, 20, target=there)],
        [series("up", {0: 1, 15: 1}, here), series("up", {5: 1, 20: 1}, there)],
        {},
    )
    name = f"http://10.0.0.7:8000#{label}="
    assert [(s.at - T0, s.target, s.error) for s in found] == [
        (0, f"{name}a", None),
        (5, f"{name}b", None),
        (15, f"{name}a", None),
        (20, f"{name}b", None),
    ]


def test_a_pod_that_took_over_an_address_is_the_same_target() -> None:
    before, after = TARGET | {"pod": "a"}, TARGET | {"pod": "b"}
    found = to_scrapes(
        [growing("vllm:x", 1, 0, 15, target=before), growing("vllm:x", 1, 30, target=after)], [], {}
    )
    assert {scrape.target for scrape in found} == {"http://10.0.0.7:8000"}


def test_a_server_that_two_jobs_scrape_is_one_target() -> None:
    other = TARGET | {"job": "again"}
    started: dict[float, float | str] = {0: 1795975000.25, 15: 1795975000.25}
    found = to_scrapes(
        [growing("vllm:x", 1, 0, 15), growing("vllm:x", 1, 5, 20, target=other)],
        [series(PROCESS_START, started), series(PROCESS_START, started, other)],
        {},
    )
    assert {scrape.target for scrape in found} == {"http://10.0.0.7:8000"}


async def test_an_address_that_turns_out_to_be_two_is_two_from_then_on() -> None:
    api = fed()
    polled = poller(api)
    await polled.round()
    there = TARGET | {"namespace": "stage"}
    api.engines += [
        growing("vllm:generation_tokens_total", 5, 70, target=there),
        series("vllm:num_requests_running", {70: 1}, there | ENGINE),
    ]
    for api.present in (T0 + 75, T0 + 90):
        taken = await polled.round()
    assert taken is not None
    assert {(e.target[7:], e.resets) for e in taken.engines} == {
        ("10.0.0.7:8000#namespace=prod", 0),
        ("10.0.0.7:8000#namespace=stage", 0),
    }


def test_rounds_hold_each_target_once() -> None:
    both = [growing("vllm:x", 1, 0, 15), growing("vllm:x", 1, 5, 20, target=OTHER)]
    cut = [[scrape.at - T0 for scrape in part] for part in rounds_of(to_scrapes(both, [], {}))]
    assert cut == [[0, 5], [15, 20]]


def test_the_scrape_interval_is_the_usual_gap() -> None:
    assert interval_of([growing("vllm:x", 1, 0, 15, 30, 75)]) == 15
    assert interval_of([growing("vllm:x", 1, 0)]) is None


class Api:
    """A Prometheus that answers from a script."""

    url = "http://prometheus:9090"

    def __init__(self) -> None:
        self.present = T0 + 60
        self.engines: list[Series] = []
        self.targets: list[Series] = []
        self.count: list[Series] = []
        self.warnings: tuple[str, ...] = ()
        self.asked: list[str] = []

    def now(self) -> float:
        return self.present

    async def query(self, expression: str, *, at: float | None = None) -> Answer:
        self.asked.append(expression)
        if expression.startswith("label_replace("):
            return Answer(tuple(self.count))
        found = self.targets if "process_start" in expression else self.engines
        span = re.search(r"\[(\d+)(ms|s)\]$", expression)
        assert span is not None
        since = self.present - int(span[1]) / (1000 if span[2] == "ms" else 1)
        seen = [
            Series(s.labels, samples)
            for s in found
            if (samples := [sample for sample in s.samples if since <= sample[0] <= self.present])
        ]
        return Answer(tuple(seen), self.warnings)

    async def aclose(self) -> None:
        pass


class Ending(Api):
    """A scrape ends when its page was asked for and its `up` was not yet."""

    async def query(self, expression: str, *, at: float | None = None) -> Answer:
        if "process_start" in expression and self.present == T0 + 75:
            self.engines = [growing("vllm:x", 1, 0, 15, 30, 45, 60, 75)]
            self.targets = [series("up", dict.fromkeys((0, 15, 30, 45, 60, 75), 1))]
        return await super().query(expression, at=at)


async def test_a_scrape_that_ends_between_two_questions_is_read_whole() -> None:
    api = Ending()
    api.engines = [growing("vllm:x", 1, 0, 15, 30, 45, 60)]
    api.targets = [series("up", dict.fromkeys((0, 15, 30, 45, 60), 1))]
    api.count = counted()
    source = PrometheusSource(api, window_s=60)  # type: ignore[arg-type]
    await source.scrapes()
    api.present = T0 + 75
    (found,) = await source.scrapes()
    assert (found.at, found.body) == (T0 + 75, b'vllm:x{engine="0",model_name="llama"} 1075\n')


def counted(engines: int = 1) -> list[Series]:
    labels = [({"slot": "engines.vllm"}, str(engines)), ({"slot": "job", "job": "vllm"}, "1")]
    labels.append(({"slot": "example", "job": "vllm", "instance": "10.0.0.7:8000"}, "1"))
    return [Series(each, [(T0, value)]) for each, value in labels]


def poller(api: Api, settings: Settings | None = None) -> PrometheusPoller:
    source = PrometheusSource(api, window_s=60)  # type: ignore[arg-type]
    return PrometheusPoller(source, Window(settings or Settings(), source="prometheus"))


SCRAPED = (0, 15, 30, 45, 60, 75, 90)


def fed() -> Api:
    api = Api()
    api.count = counted()
    names = {"spec_decode_num_drafts": 10, "spec_decode_num_draft_tokens": 30}
    names |= {"spec_decode_num_accepted_tokens": 18, "generation_tokens": 28}
    api.engines = [growing(f"vllm:{n}_total", rate, *SCRAPED) for n, rate in names.items()]
    api.engines.append(
        series("vllm:num_requests_running", dict.fromkeys(SCRAPED, 3), TARGET | ENGINE)
    )
    api.targets = [series("up", dict.fromkeys(SCRAPED, 1))]
    return api


async def test_the_first_round_brings_the_whole_window_and_the_next_only_what_is_new() -> None:
    api = fed()
    polled = poller(api)
    first = await polled.round()
    assert first is not None
    assert first.fleet.acceptance_rate.value == pytest.approx(0.6)
    assert first.fleet.output_tokens_per_s.value == pytest.approx(28)
    assert first.covered_s == 60
    assert len(first.trail) == 4
    api.present = T0 + 75
    scrapes = await polled.source.scrapes()
    assert [scrape.at for scrape in scrapes] == [T0 + 75]
    assert await polled.source.scrapes() == []


def an_hour() -> Api:
    api = fed()
    minutes = range(-3600, 61, 15)
    names = ("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "generation_tokens")
    counts: dict[float, float | str] = {at: 100_000 + 10 * at for at in minutes}
    api.engines = [series(f"vllm:{name}_total", counts, TARGET | ENGINE) for name in names]
    api.targets = [series("up", dict.fromkeys(minutes, 1))]
    return api


async def test_a_longer_window_is_fetched_at_once_where_prometheus_has_it() -> None:
    api = an_hour()
    polled = poller(api)
    first = await polled.round()
    assert first is not None
    assert first.covered_s == 60
    polled.window.settings = replace(polled.window.settings, window_s=1800)
    assert polled.snapshot(1800).covered_s < 120, "what there is, until there is more"
    assert polled.wake.is_set()
    taken = await polled.round()
    assert taken is not None
    assert taken.covered_s == pytest.approx(1800, rel=0.07)
    assert [event.text for event in taken.events] == []
    api.asked.clear()
    polled.snapshot(600)
    await polled.round()
    assert not any("[18" in asked for asked in api.asked), "it is there already"


async def test_a_longer_window_wanted_during_a_round_is_fetched_by_the_next() -> None:
    api = an_hour()
    polled = poller(api)
    await polled.round()
    real = api.query

    async def meanwhile(expression: str, *, at: float | None = None) -> Answer:
        polled.snapshot(1800)
        return await real(expression, at=at)

    api.query = meanwhile  # type: ignore[method-assign]
    await polled.round()
    api.query = real  # type: ignore[method-assign]
    await polled.round()
    assert polled.snapshot(1800).covered_s == pytest.approx(1800, rel=0.07)


async def test_a_longer_window_is_not_fetched_where_that_would_forget_what_is_known() -> None:
    api = fed()
    api.count = counted(64)
    polled = poller(api)
    await polled.round()
    polled.source._since = T0 - 3000
    polled.snapshot(3600)
    assert not polled.wake.is_set(), "a round fetches seven minutes of 64 engines"


def staggered() -> Api:
    """Two engines, each scraped every 30 s, 14 s apart."""
    api = fed()
    places = {0: TARGET, 14: OTHER}
    times = {offset: range(offset, 200, 30) for offset in places}
    names = {"spec_decode_num_drafts": 10, "spec_decode_num_draft_tokens": 30}
    names |= {"spec_decode_num_accepted_tokens": 18, "generation_tokens": 28}
    api.engines = [
        growing(f"vllm:{name}_total", rate, *times[offset], target=place)
        for offset, place in places.items()
        for name, rate in names.items()
    ]
    api.targets = [series("up", dict.fromkeys(times[o], 1), place) for o, place in places.items()]
    seen = growing("vllm:num_requests_running", 0, *times[0])
    real = api.query

    async def query(expression: str, *, at: float | None = None) -> Answer:
        # What an engine's samples are looked at for, to see how often it is scraped.
        return Answer((seen,)) if expression.endswith("[300s]") else await real(expression, at=at)

    api.query = query  # type: ignore[method-assign]
    return api


async def test_a_replay_says_what_was_said_live(tmp_path: Path) -> None:
    live, api, path = poller(staggered()), staggered(), tmp_path / "r"
    presents = (T0 + 70, T0 + 101, T0 + 130, T0 + 173)
    for live.source.api.present in presents:  # type: ignore[attr-defined]
        was = await live.round()
    watched = poller(api)
    ticks, over = iter(presents), []

    def tell(scrapes: int, failing: int) -> None:
        if (present := next(ticks, None)) is None:
            over.append(scrapes)
        else:
            api.present = present

    def clock() -> float:
        return 1.0 if over else 0.0

    watched.source._asked_interval = watched.source.interval_s = 0.01
    tell(0, 0)
    opened = Opened(watched, Thresholds(), True, 5.0, 60.0)
    await record(opened, path, lasting_s=0.5, tell=tell, clock=clock)
    assert Recording(path).header.interval_s == 30
    replayed = open_source(Asked(window="60s"), replay=path, default_window_s=60.0)
    assert replayed.poller.window.settings.stale_s == live.window.settings.stale_s == 76
    now = (await ask(replayed)).snapshot
    assert was is not None
    assert [(e.target, e.state, e.at) for e in now.engines] == [
        (e.target, e.state, e.at) for e in was.engines
    ]
    assert {e.state for e in now.engines} == {"ok"}
    assert now.fleet.acceptance_rate.value == was.fleet.acceptance_rate.value
    assert now.fleet.drafts.value == was.fleet.drafts.value


async def test_stale_series_do_not_look_alive() -> None:
    api = fed()
    gone = [growing("vllm:generation_tokens_total", 5, 0, 15, target=OTHER)]
    gone.append(series("vllm:num_requests_running", {0: 1, 15: 1}, OTHER | ENGINE))
    api.engines += gone
    taken = await poller(api).round()
    assert taken is not None
    states = {engine.target[-6:-5]: (engine.state, engine.reason) for engine in taken.engines}
    assert states == {"7": ("ok", None), "8": ("stale", "last sample 45 s ago")}


async def test_a_store_that_gets_nothing_any_more_makes_everything_stale() -> None:
    api = fed()
    polled = poller(api)
    await polled.round()
    api.present = T0 + 90 + 76
    taken = await polled.round()
    assert taken is not None
    assert {engine.state for engine in taken.engines} == {"stale"}


async def test_a_target_that_left_prometheus_is_forgotten() -> None:
    api = fed()
    polled = poller(api)
    await polled.round()
    api.present = T0 + 500
    taken = await polled.round()
    assert taken is not None
    assert {engine.target for engine in taken.engines} == {api.url}


async def test_a_simulator_that_left_the_pool_leaves_it_real() -> None:
    api = fed()
    api.count.append(Series({"slot": "simulated"}, [(T0, "1")]))
    now = [0.0]
    source = PrometheusSource(api, window_s=60, clock=lambda: now[0])  # type: ignore[arg-type]
    polled = PrometheusPoller(source, Window(Settings(), source="prometheus"))
    first = await polled.round()
    api.count.pop()
    now[0] += 31
    second = await polled.round()
    assert first is not None
    assert second is not None
    assert (first.simulated, second.simulated) == (True, False)


async def test_no_series_is_missing_with_the_selector_that_found_none() -> None:
    taken = await poller(Api()).round()
    assert taken is not None
    (engine,) = taken.engines
    assert engine.state == "missing"
    assert "Prometheus has no series of an engine" in (engine.reason or "")


async def test_a_partial_answer_makes_engines_partial() -> None:
    api = fed()
    api.warnings = ("store-1 did not answer",)
    taken = await poller(api).round()
    assert taken is not None
    assert taken.engines[0].state == "partial"
    assert "PARTIAL: store-1 did not answer" in (taken.engines[0].reason or "")
    assert taken.note == "PARTIAL: store-1 did not answer"


async def test_too_many_engines_are_not_fetched_raw() -> None:
    api = fed()
    api.count = counted(1000)
    with pytest.raises(SourceError, match="1000 engines: too many"):
        await PrometheusSource(api, window_s=60).scrapes()  # type: ignore[arg-type]


@pytest.mark.parametrize("window_s", [60, 3600, 86400])
@pytest.mark.parametrize("engines", [1, 16, 64])
def test_a_long_window_is_asked_for_in_pieces_and_never_without_bound(
    engines: int, window_s: float
) -> None:
    source = PrometheusSource(Api(), window_s=window_s)  # type: ignore[arg-type]
    census = Census({"vllm": engines}, ("vllm",), 15.0, False, False)
    spans = source._spans(T0, census)
    per_second = engines * 170 / 15
    assert all(span * per_second <= 60_000 * 1.01 for _, span in spans)
    assert sum(span for _, span in spans) * per_second <= 300_000 * 1.01
    assert spans[-1][0] == T0
    for (end, _), (later, span) in zip(spans, spans[1:], strict=False):
        assert end == pytest.approx(later - span)
