"""One engine's history: whatever happens to it, no growth is negative and no ratio impossible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.cost import Pricing
from speccli.core.metrics.counters import Counters
from speccli.core.stats.increase import Increase, Pool
from speccli.core.stats.measures import Metrics, Subject, measure
from speccli.core.stats.track import Track
from tests.core.pages import STARTED, counters


def spec(
    at: float,
    accepted: float,
    drafted: float,
    drafts: float | None = None,
    *,
    started: float | None = None,
    generation: float | None = None,
) -> Counters:
    slots = {"accepted_tokens": accepted, "draft_tokens": drafted}
    if drafts is not None:
        slots["drafts"] = drafts
    if generation is not None:
        slots["generation_tokens"] = generation
    return counters(at, slots, started=started)


def follow(samples: Sequence[Counters], span_s: float | None = None) -> Track:
    track = Track(samples[0], span_s)
    for sample in samples[1:]:
        track.push(sample)
    return track


def growth(track: Track, window_s: float | None = None) -> dict[str, float]:
    increase = track.increase(window_s)
    assert increase is not None
    return {name: increase.values[i] for name, i in increase.layout.index.items()}


def measured(increase: Increase | None) -> Metrics:
    pool = Pool([increase] if increase else [])
    return measure(Subject(pool, [{}], "vllm"), Pricing(2.0))


# ---- restarts ----


def test_a_counter_reset_in_mid_window_is_taken_out() -> None:
    """Last minus first would say 0.4947, of two negative numbers."""
    history = [(0, 1000, 2000), (15, 1090, 2150), (30, 12, 20), (45, 60, 100)]
    track = follow([spec(at, accepted, drafted) for at, accepted, drafted in history])
    assert growth(track) == {"accepted_tokens": 150, "draft_tokens": 250}
    assert measured(track.increase(None)).acceptance_rate.value == pytest.approx(0.600)
    assert track.resets == 1


def test_speculation_counters_that_begin_again_alone_are_counted_through() -> None:
    history = [(0, 1000, 2000), (15, 1090, 2150), (30, 12, 20), (45, 60, 100)]
    samples = [
        spec(at, accepted, drafted, generation=1e6 + 100 * at) for at, accepted, drafted in history
    ]
    track = follow(samples)
    assert growth(track) == {
        "accepted_tokens": 150,
        "draft_tokens": 250,
        "generation_tokens": 3000,  # the interval of the reset is known to none but those that fell
    }
    assert track.resets == 1


@pytest.mark.parametrize("started", [STARTED + 5, 200.0])
def test_a_restart_hidden_by_counters_grown_past_the_old_ones_is_known_by_its_start_time(
    started: float,
) -> None:
    old = STARTED if started > STARTED else 100.0
    base = started - 5
    track = Track(spec(base, 100, 200, started=old), None)
    assert track.push(spec(base + 60, 900, 1000, started=started)) == "restart"
    assert growth(track) == {"accepted_tokens": 900, "draft_tokens": 1000}
    assert track.resets == 1


def test_one_accepted_of_none_drafted_is_never_said() -> None:
    """The smallest case that breaks per-counter and joint resets: nothing fell."""
    before, after = spec(0, 0, 1, 1), spec(1, 1, 1, 1)
    rate = measured(follow([before, after]).increase(None)).acceptance_rate
    assert (rate.value, rate.state) == (None, "unknown")
    told = [replace(before, started=100.0), replace(after, started=200.0)]
    assert growth(follow(told)) == {"accepted_tokens": 1, "draft_tokens": 1, "drafts": 1}


def test_a_restart_with_another_k_begins_a_history_from_zero() -> None:
    old = counters(0, {"drafts": 50, "accepted_at:0": 40}, started=100.0)
    new = counters(10, {"drafts": 8, "accepted_at:0": 6, "accepted_at:1": 3}, started=200.0)
    track = follow([old, new])
    assert growth(track) == {"drafts": 8, "accepted_at:0": 6, "accepted_at:1": 3}
    assert track.resets == 1


def test_counters_that_are_zero_do_not_hide_a_restart() -> None:
    before = counters(0, {"drafts": 500, "preemptions": 0})
    after = counters(1, {"drafts": 20, "preemptions": 2})
    track = follow([before, after])
    assert growth(track) == {"drafts": 20, "preemptions": 2}
    assert track.resets == 1


def test_a_fall_of_one_counter_alone_adds_nothing_to_any() -> None:
    track = follow([spec(0, 700, 1000, 250), spec(1, 770, 1100, 275)])
    assert track.push(spec(2, 0, 1200, 300)) == "reset"
    assert growth(track) == {"accepted_tokens": 70, "draft_tokens": 100, "drafts": 25}
    track.push(spec(3, 80, 1300, 325))
    assert growth(track) == {"accepted_tokens": 150, "draft_tokens": 200, "drafts": 50}


def test_counters_that_restart_apart_do_not_make_a_ratio_of_two_times() -> None:
    hists = {name: ([0.1], (n, n), 0.0) for name, n in (("itl", 1000), ("ttft", 0))}
    grown = {"itl": ([0.1], (1400.0, 1400.0), 0.0), "ttft": ([0.1], (0.0, 0.0), 0.0)}
    track = Track(counters(0, {"generation_tokens": 2500}, hists), None)
    track.push(counters(1, {"generation_tokens": 10}, grown))
    assert measured(track.increase(None)).tokens_per_step.value is None
    again = {"itl": ([0.1], (1500.0, 1500.0), 0.0), "ttft": ([0.1], (0.0, 0.0), 0.0)}
    track.push(counters(2, {"generation_tokens": 260}, again))
    assert measured(track.increase(None)).tokens_per_step.value == 2.5


def aged(*drafts: float, started: float | None = STARTED) -> list[Counters]:
    """Pages of one process, a second apart, by their drafts."""
    return [spec(STARTED + 500 + i, 2 * n, 3 * n, n, started=started) for i, n in enumerate(drafts)]


def test_an_older_page_of_the_same_process_is_no_reset_and_adds_nothing() -> None:
    samples = aged(10_000, 10_100, 10_090, 10_300)
    track = Track(samples[0], None)
    assert [track.push(sample) for sample in samples[1:]] == [None, "older", None]
    assert growth(track) == {"drafts": 300, "draft_tokens": 900, "accepted_tokens": 600}
    assert track.resets == 0


def test_an_older_page_does_not_take_an_engine_off_its_server() -> None:
    samples = aged(10_000, 10_100, 10_090)
    track = follow(samples)
    assert track.last.at == samples[-1].at
    assert track.growth is None


def test_counters_that_stay_fallen_in_the_same_process_go_on_from_there_and_add_nothing() -> None:
    samples = aged(10_000, 10_100, 20, 30, 40, 50, 70)
    track = Track(samples[0], None)
    said = [track.push(sample) for sample in samples[1:]]
    assert said == [None, "older", "older", "older", "reset", None]
    assert growth(track)["drafts"] == 100 + 20
    assert track.resets == 0


# ---- several processes behind one URL ----


def flips(*processes: int, age: float = 1000.0, apart: float = 300.0) -> list[Counters]:
    """Answers of processes that started `apart` seconds from one another, long ago."""
    born = [STARTED + apart * i for i in range(max(processes) + 1)]
    now = born[-1] + age
    return [
        spec(now + i, 10 * i + 5 * p, 20 * i + 9 * p, started=born[p])
        for i, p in enumerate(processes)
    ]


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0, 1), (0, 1, 2, 0, 2)])
def test_an_answer_of_another_living_process_is_no_restart(order: tuple[int, ...]) -> None:
    samples = flips(*order)
    track = Track(samples[0], None)
    seen = {order[0]}
    for which, sample in zip(order[1:], samples[1:], strict=True):
        assert track.push(sample) == ("mixed" if which in seen else "other")
        assert track.several_processes_at == (sample.at if which in seen else None)
        assert track.doubtful == (which not in seen)
        assert len(track.points) == 1
        seen.add(which)
    assert track.resets == 0


def test_a_restart_on_a_host_whose_clock_lags_is_a_restart_once_no_other_process_answers() -> None:
    now = STARTED + 1000
    track = Track(spec(now, 5000, 9000, started=STARTED), None)
    said = [
        track.push(spec(now + i, 700 + 5 * i, 900 + 9 * i, started=now - 30)) for i in range(1, 6)
    ]
    assert said == ["other", None, None, "restart", None]
    assert (track.resets, track.doubtful, track.several_processes_at) == (1, False, None)
    assert growth(track) == {"accepted_tokens": 20, "draft_tokens": 36}, "not 700 and 900 more"


def test_a_process_that_comes_back_is_no_restart_of_the_one_between() -> None:
    samples = flips(0, 1, 1, 0, 0, 0, 0)
    track = Track(samples[0], None)
    said = [track.push(sample) for sample in samples[1:]]
    assert said == ["other", None, "mixed", None, None, None]
    assert (track.resets, track.doubtful) == (0, False)


def test_young_processes_are_told_apart_when_the_first_comes_back() -> None:
    samples = flips(0, 1, 0, 1, apart=2.0, age=5.0)
    track = Track(samples[0], None)
    assert [track.push(sample) for sample in samples[1:]] == ["restart", "mixed", "mixed"]


def test_clocks_a_little_apart_do_not_make_two_processes_of_a_restart() -> None:
    track = Track(spec(STARTED + 100, 50, 90, started=STARTED), None)
    assert track.push(spec(STARTED + 130, 5, 9, started=STARTED + 95)) == "restart"


# ---- samples that cannot be taken as they are ----


def test_late_and_repeated_samples_are_left_out_and_counted() -> None:
    track = follow([spec(0, 0, 0), spec(10, 10, 20)])
    for at in (10, 9.9, 0, -5):
        assert track.push(spec(at, 999, 9999)) == "late"
        assert track.growth is None, "the growth of the last round is not this one's"
    assert track.late == 4
    assert growth(track) == {"accepted_tokens": 10, "draft_tokens": 20}


def test_several_processes_behind_one_url_are_told_without_a_start_time() -> None:
    track = follow([spec(0, 1000, 3000)])
    events = [
        track.push(spec(at, *counts))
        for at, counts in enumerate(
            [(10, 20), (1010, 3030), (20, 40), (1020, 3060), (30, 60)], start=1
        )
    ]
    assert "mixed" in events
    assert track.several_processes_at is not None


def test_a_clock_set_back_begins_a_new_history_instead_of_none() -> None:
    track = follow([spec(1000, 0, 0), spec(1010, 10, 20)])
    for step in range(4):
        assert track.push(spec(400 + step, 12 + step, 30 + step)) == "late"
    track.push(spec(404, 20, 50))
    assert growth(track) == {"accepted_tokens": 5, "draft_tokens": 17}


def test_a_torn_sample_is_waited_out_and_nothing_is_lost() -> None:
    track = follow([spec(0, 0, 0, 0), spec(1, 6, 9, 3)])
    track.push(spec(2, 14, 9, 3))  # accepted is a step ahead of what it is accepted from
    assert growth(track)["accepted_tokens"] == 6
    track.push(spec(3, 20, 27, 9))
    assert growth(track) == {"accepted_tokens": 20, "draft_tokens": 27, "drafts": 9}
    assert track.discarded == 0


def test_counters_that_go_on_contradicting_each_other_are_dropped_and_counted() -> None:
    track = follow([spec(0, 0, 0, 0)])
    for at in range(1, 9):
        track.push(spec(at, 10 * at, 5 * at, at))
        assert track.growth is not None
        assert list(track.growth) == [0, 0, 0]
    assert track.discarded == 2
    assert growth(track) == {"accepted_tokens": 0, "draft_tokens": 0, "drafts": 0}


@pytest.mark.parametrize("partial", [None, "TRUNCATED: the body ends"])
def test_a_sample_with_holes_is_waited_out_and_caught_up_on(partial: str | None) -> None:
    track = follow([spec(at, 7 * at, 10 * at, generation=20 * at, started=100.0) for at in (0, 1)])
    holed = counters(2, {"generation_tokens": 40}, started=None, partial=partial)
    assert track.push(holed) == "lacking"
    assert track.last.at == 2
    assert growth(track) == {"accepted_tokens": 7, "draft_tokens": 10, "generation_tokens": 20}
    assert track.push(spec(3, 21, 30, generation=60, started=100.0)) is None
    assert growth(track) == {"accepted_tokens": 21, "draft_tokens": 30, "generation_tokens": 60}


def test_a_sample_with_holes_does_not_make_one_api_server_of_several() -> None:
    slots = {"generation_tokens": 20.0, "steps": 5.0}
    track = follow([counters(0, slots, several=True)])
    track.push(counters(1, {"generation_tokens": 20.0}, partial="TRUNCATED: cut"))
    assert track.last.several_api_servers


def test_a_layout_that_was_made_anew_is_the_same_layout() -> None:
    sample = spec(1, 7, 10, generation=20)
    layout = sample.layout
    twin = type(layout)(layout.counters, layout.ladders)
    track = follow([spec(0, 0, 0, generation=0)])
    assert track.push(replace(sample, layout=twin)) is None
    assert growth(track) == {"accepted_tokens": 7, "draft_tokens": 10, "generation_tokens": 20}


def test_a_restart_is_known_across_a_sample_without_a_start_time() -> None:
    track = follow([spec(0, 7, 10, generation=20, started=100.0)])
    track.push(counters(1, {"generation_tokens": 22}, partial="TRUNCATED: cut"))
    assert track.push(spec(2, 8, 11, generation=30, started=200.0)) == "restart"
    assert growth(track) == {"accepted_tokens": 8, "draft_tokens": 11, "generation_tokens": 30}


def test_counters_that_stay_away_are_let_go() -> None:
    track = follow([spec(0, 7, 10, generation=20), spec(1, 8, 12, generation=30)])
    said = [track.push(counters(at, {"generation_tokens": 30.0 + at})) for at in range(2, 8)]
    assert said == ["lacking", "lacking", "lacking", "changed", None, None]
    assert growth(track) == {"generation_tokens": 2}


def test_counters_that_come_new_begin_a_history() -> None:
    track = follow([counters(0, {"generation_tokens": 5}), counters(1, {"generation_tokens": 9})])
    assert track.push(spec(2, 1, 2, generation=12)) == "changed"
    increase = track.increase(None)
    assert increase is not None
    assert increase.since_start


def test_one_sample_counts_from_the_start_of_the_process() -> None:
    track = Track(spec(STARTED + 50, 30, 60, started=STARTED), None)
    increase = track.increase(60)
    assert increase is not None
    assert (increase.seconds, increase.since_start) == (50, True)
    assert track.increase(60, pooled_start=False) is None
    unknown = Track(spec(50, 30, 60), None).increase(60)
    assert unknown is not None
    assert unknown.seconds is None


# ---- windows ----


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 50)), min_size=2, max_size=60),
    st.data(),
)
def test_a_history_split_in_two_grows_the_same(
    history: list[tuple[int, int]], data: st.DataObject
) -> None:
    samples = cumulative(history)
    track = follow(samples)
    at = data.draw(st.integers(0, len(track.points) - 1))
    whole, first, second = track.points[-1], track.points[at], track.points[0]
    split = [
        (a - b) + (b - c) for a, b, c in zip(whole.totals, first.totals, second.totals, strict=True)
    ]
    increase = track.increase(None)
    assert increase is not None
    assert list(increase.values) == split


def cumulative(history: list[tuple[int, int]]) -> list[Counters]:
    at = drafted = 0
    samples = [spec(0, 0, 0)]
    for seconds, more in history:
        at, drafted = at + seconds, drafted + 2 * more
        samples.append(spec(at, drafted / 2, drafted))
    return samples


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 50)), min_size=2, max_size=300),
    st.integers(1, 4000),
)
def test_thinning_keeps_the_whole_and_a_window_within_its_bound(
    history: list[tuple[int, int]], window: int
) -> None:
    samples = cumulative(history)
    track = follow(samples)
    assert growth(track)["draft_tokens"] == samples[-1].get("draft_tokens")
    increase = track.increase(window)
    assert increase is not None
    assert increase.seconds is not None
    end = samples[-1].at
    if end >= window:
        longest = max(seconds for seconds, _ in history)
        slack = max(2 * longest, (window + longest) / 15)
        assert window - 1e-3 <= increase.seconds <= window + slack
    start = next(s for s in samples if s.at == end - increase.seconds)
    expected = (samples[-1].get("draft_tokens") or 0) - (start.get("draft_tokens") or 0)
    assert increase.values[track.layout.index["draft_tokens"]] == expected


def test_a_long_history_takes_few_points() -> None:
    track = Track(spec(0, 0, 0), 3600.0)
    for at in range(1, 20_000):
        track.push(spec(at, at, 2 * at))
    assert len(track.points) < 200
    assert 3600 <= track.points[-1].at - track.points[0].at <= 3600 * 1.07
    assert growth(track, 60)["draft_tokens"] == pytest.approx(120, rel=0.07)


def test_a_window_longer_than_the_history_is_the_history() -> None:
    track = follow([spec(at, at, 2 * at) for at in (0, 10, 20)])
    assert growth(track, 1e9) == growth(track) == {"accepted_tokens": 20, "draft_tokens": 40}


# ---- whatever happens ----


@dataclass
class Process:
    """An engine process that obeys the counting laws."""

    started: float
    k: int = 3
    counts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ["drafts", "draft_tokens", "accepted_tokens", "generation_tokens", "steps"]
        names += [f"accepted_at:{i}" for i in range(self.k)]
        self.counts = dict.fromkeys([*names, "itl", "itl.sum", "ttft"], 0.0)

    def serve(self, drafts: int, kept: int, first: int) -> None:
        """`drafts` steps that each accept `kept` of K."""
        kept = min(kept, self.k)
        counts = self.counts
        counts["drafts"] += drafts
        counts["draft_tokens"] += self.k * drafts
        counts["accepted_tokens"] += kept * drafts
        for i in range(kept):
            counts[f"accepted_at:{i}"] += drafts
        counts["generation_tokens"] += drafts * (1 + kept) + first
        counts["itl"] += drafts
        counts["itl.sum"] += 0.013 * drafts
        counts["ttft"] += first
        counts["steps"] += drafts

    def sample(self, at: float, *, told: bool) -> Counters:
        slots = {n: v for n, v in self.counts.items() if n[:3] not in {"itl", "ttf"}}
        itl, ttft = self.counts["itl"], self.counts["ttft"]
        hists = {
            "itl": ([0.01, 0.1], (itl // 3, itl // 2, itl), self.counts["itl.sum"]),
            "ttft": ([1.0], (ttft, ttft), 0.1 * ttft),
        }
        return counters(at, slots, hists, started=self.started if told else None)


SERVE = st.tuples(st.integers(0, 40), st.integers(0, 4), st.integers(0, 5))
EVENTS = st.one_of(
    SERVE,
    SERVE,
    st.sampled_from(["restart", "other-k", "late", "torn", "single", "holes", "other", "again"]),
)


def tampered(sample: Counters, event: str, data: st.DataObject) -> Counters:
    """A sample that something happened to on its way."""
    values = sample.values[:]
    index = sample.layout.index
    if event == "torn":
        ahead = data.draw(st.sampled_from(["accepted_tokens", "drafts", "draft_tokens"]))
        values[index[ahead]] += data.draw(st.integers(1, 20))
    elif event == "single":
        values[data.draw(st.integers(0, len(values) - 1))] = 0.0
    elif event == "holes":
        kept = data.draw(st.sets(st.sampled_from(sorted(index)), max_size=len(index)))
        slots = {name: values[index[name]] for name in kept}
        return counters(sample.at, slots, partial="TRUNCATED: cut")
    return replace(sample, values=values)


@given(st.lists(EVENTS, min_size=1, max_size=30), st.booleans(), st.data())
def test_whatever_happens_no_growth_is_negative_and_no_ratio_impossible(
    events: list[tuple[int, int, int] | str], told: bool, data: st.DataObject
) -> None:
    at = STARTED + 1000
    process, other = Process(STARTED), Process(STARTED + 100)
    track = Track(process.sample(at, told=told), 300.0)
    for event in events:
        at += data.draw(st.sampled_from([0.5, 1, 7, 60]))
        if isinstance(event, tuple):
            process.serve(*event)
            other.serve(*event)
        elif event == "restart":
            process = Process(at - 1, process.k)
            process.serve(*data.draw(SERVE))
        elif event == "other-k":
            process = Process(at - 1, data.draw(st.integers(0, 5)))
        source = other if event == "other" else process
        sample = source.sample(at - (30 if event == "late" else 0), told=told)
        if isinstance(event, str):
            sample = tampered(sample, event, data)
        track.push(sample)
        for window in (None, 1.0, 10.0):
            possible(track, window)


def possible(track: Track, window: float | None) -> None:
    increase = track.increase(window)
    assert increase is not None
    assert min(increase.values, default=0.0) >= 0
    assert increase.seconds is None or increase.seconds >= 0
    metrics = measured(increase)
    ratios = [metrics.acceptance_rate, *metrics.acceptance_by_position]
    for number in ratios:
        assert number.value is None or 0 <= number.value <= 1
        assert (number.value is None) == (number.state == "unknown")
    assert (metrics.acceptance_length.value or 1) >= 1
    assert (metrics.tokens_per_step.value or 0) >= 0
    assert (metrics.batch_size.value or 0) >= 0
    assert (metrics.cost_per_1m_output_usd.value or 0) >= 0
    for grown in track.by_batch(window):
        assert grown is None or min(grown) >= -1e-9
    if track.growth is not None:
        assert min(track.growth, default=0.0) >= 0


@given(st.lists(st.one_of(SERVE, st.just("restart")), min_size=1, max_size=40))
def test_with_a_start_time_nothing_is_lost_over_restarts(
    events: list[tuple[int, int, int] | str],
) -> None:
    at, total = STARTED + 1000, 0.0
    process = Process(STARTED)
    track = Track(process.sample(at, told=True), None)
    for event in events:
        at += 1
        if isinstance(event, tuple):
            process.serve(*event)
            total += event[0]
        else:
            process = Process(at - 0.5)
        track.push(process.sample(at, told=True))
    assert growth(track)["drafts"] == total
    assert track.resets == events.count("restart")


@given(
    st.lists(
        st.one_of(SERVE, st.sampled_from(["restart", "holes", "late"])), min_size=1, max_size=30
    ),
    st.data(),
)
def test_whatever_is_counted_was_done(
    events: list[tuple[int, int, int] | str], data: st.DataObject
) -> None:
    """Holes and late samples may hide growth for a while; they never invent any."""
    at, done = STARTED + 1000, 0.0
    process = Process(STARTED)
    track = Track(process.sample(at, told=True), None)
    for event in events:
        at += 1
        if isinstance(event, tuple):
            process.serve(*event)
            done += event[0]
        elif event == "restart":
            process = Process(at - 0.5)
        sample = process.sample(at - (5 if event == "late" else 0), told=True)
        if event == "holes":
            sample = tampered(sample, event, data)
        track.push(sample)
        increase = track.increase(None)
        if increase is not None and not increase.since_start and "drafts" in increase.layout.index:
            assert growth(track)["drafts"] <= done
