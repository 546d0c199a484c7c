"""A pooled fleet, refreshed from a scripted Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from speccli.core.errors import DeadlineError
from speccli.core.findings.base import Thresholds
from speccli.core.oneshot import ask
from speccli.core.open import Opened
from speccli.core.poll_prometheus import PrometheusPoller
from speccli.core.sources.promapi import Answer, Series
from speccli.core.sources.prometheus import PrometheusSource
from speccli.core.sources.promql import RULES_VERSION
from speccli.core.stats.window import Settings, Window

T0 = 1795975200.0


class Api:
    """Answers by what is asked for."""

    url = "http://prometheus:9090"

    def __init__(self) -> None:
        self.engines = 1000
        self.asked = 0
        self.sums: dict[str, float] = {
            "drafts": 1e6,
            "draft_tokens": 3e6,
            "accepted_tokens": 1.8e6,
            "generation_tokens": 2.9e6,
            "ttft.count": 1e5,
            "ttft.sum": 2e4,
            "itl.count": 1e6,
            "itl.sum": 1e4,
            "steps": 5e5,
            "running": 3000,
            "waiting": 0,
        }
        self.lacking: dict[str, int] = {}
        """Engines that have a counter, where not all have it."""
        self.buckets_wait = asyncio.Event()
        self.buckets_wait.set()
        self.page_error: Exception | None = None
        self.rules: tuple[str, ...] = ()
        """Versions of recording rules."""
        self.whole = True
        """Whether those of our version cover the window."""
        self.summed = 0
        """How often the fleet's counters were summed anew."""

    def now(self) -> float:
        return T0

    async def aclose(self) -> None:
        pass

    async def query(self, expression: str, *, at: float | None = None) -> Answer:
        self.asked += 1
        if '"engines.vllm"' in expression:
            found = _answer({"engines.vllm": self.engines, "job:vllm": 1})
            info = [{"slot": "rules", "version": v, "engine_kind": "vllm"} for v in self.rules]
            return Answer((*found.series, *(Series(each, [(T0, "1")]) for each in info)))
        if "recording_rules:info" in expression and "timestamp(" in expression:
            return _answer({"": T0 - 20} if self.whole else {})
        if ":rate2m" in expression:
            return _answer({slot: n / 60 for slot, n in self.sums.items()})
        if "timestamp(" in expression:
            return _answer({"": T0 - 3})
        if ".series" in expression:
            await self.buckets_wait.wait()
            name = "ttft" if '"ttft"' in expression else "other"
            n = self.sums["ttft.count"]
            return _answer({f"{name}|0.1": n / 2, f"{name}|0.5": n, f"{name}|+Inf": n})
        if expression.endswith("s]"):
            if self.page_error:
                raise self.page_error
            return Answer(())
        if '"with.' in expression:
            counts = {f"with.{slot}": self.engines for slot in self.sums}
            return _answer(counts | {f"with.{s}": n for s, n in self.lacking.items()})
        if '"joined.' in expression:
            return _answer({f"joined.{slot}": n / 2 for slot, n in self.sums.items()})
        if '"down.named"' in expression:
            return _answer({"up": 998, "down": 2, "down.named@a:8000": 0, "low@b:8000": 0.2})
        self.summed += '"drafts"' in expression
        return _answer({s: n for s, n in self.sums.items() if f'"{s}"' in expression})

    async def query_range(
        self, expression: str, *, end: float, span_s: float, step_s: float
    ) -> Answer:
        """The past, minute by minute."""
        self.asked += 1
        assert (span_s, step_s) == (600, 60)
        return Answer(
            tuple(
                Series({"slot": s}, [(end - 60 * i, str(n)) for i in reversed(range(10))])
                for s, n in self.sums.items()
                if f'"{s}"' in expression
            )
        )


def _answer(values: Mapping[str, float]) -> Answer:
    found = []
    for key, value in values.items():
        slot, _, instance = key.partition("@")
        slot, _, le = slot.partition("|")
        slot, _, job = slot.partition(":")
        labels = {"slot": slot, "instance": instance, "le": le, "job": job}
        kept = {name: text for name, text in labels.items() if text}
        found.append(Series(kept, [(T0, str(value))]))
    return Answer(tuple(found))


def poller(api: Api) -> PrometheusPoller:
    source = PrometheusSource(api, window_s=60)  # type: ignore[arg-type]
    return PrometheusPoller(source, Window(Settings(), source="prometheus"))


async def test_a_large_fleet_is_pooled() -> None:
    taken = await poller(Api()).round()
    assert taken is not None
    fleet = taken.fleet
    assert taken.pooled_engines == 1000
    assert fleet.acceptance_rate.value == pytest.approx(0.6)
    assert fleet.acceptance_length.value == pytest.approx(2.8)
    assert fleet.tokens_per_step.value == pytest.approx(2.8)
    assert fleet.batch_size.value == pytest.approx(2.2)
    assert fleet.running.value == 3000
    assert (fleet.ttft_s.p99.low, fleet.ttft_s.p99.high) == (0.1, 0.5)
    assert fleet.ttft_s.mean.value == pytest.approx(0.2)
    assert taken.note == "2 of 1000 targets down"
    assert taken.at == pytest.approx(T0 - 3, abs=0.01)
    assert taken.unbinned


async def test_rules_that_cover_the_window_are_read() -> None:
    api = Api()
    api.rules = (RULES_VERSION,)
    taken = await poller(api).round()
    assert taken is not None
    assert (api.summed, taken.window_s) == (0, 120)
    assert taken.at == pytest.approx(T0 - 20, abs=0.01)
    assert taken.fleet.drafts.value == pytest.approx(2e6)
    assert taken.note == "2 of 1000 targets down"


async def test_rules_that_do_not_yet_cover_it_are_asked_of_at_every_round_and_not_read() -> None:
    api = Api()
    api.rules, api.whole = (RULES_VERSION,), False
    polled = poller(api)
    taken = await polled.round()
    assert taken is not None
    assert (api.summed, taken.window_s) == (1, 60)
    assert taken.at == pytest.approx(T0 - 3, abs=0.01)
    assert taken.fleet.drafts.value == pytest.approx(1e6)
    api.whole = True
    later = await polled.round()
    assert later is not None
    assert (api.summed, later.window_s) == (1, 120)


async def test_latencies_still_being_summed_are_given_up_when_rules_have_them() -> None:
    api = Api()
    api.rules, api.whole = (RULES_VERSION,), False
    api.buckets_wait.clear()
    polled = poller(api)
    rounds = polled.snapshots()
    await anext(aiter(rounds))
    (task,) = (each for each in polled.source.background if not each.done())
    api.whole = True
    await anext(aiter(rounds))
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()


@pytest.mark.parametrize("versions", [("1",), ("1", RULES_VERSION), (RULES_VERSION, "1")])
async def test_rules_of_another_version_are_not_read_and_told(versions: tuple[str, ...]) -> None:
    api = Api()
    api.rules = versions
    taken = await poller(api).round()
    assert taken is not None
    assert (api.summed, taken.window_s) == (1, 60)
    said = str(taken.note).removeprefix("2 of 1000 targets down; recording rules there are version")
    assert said.startswith(" 1, this" if len(versions) == 1 else f"s 1 and {RULES_VERSION}, this")
    assert all(engine.state != "partial" for engine in taken.engines)


async def test_one_look_says_the_note_of_a_pooled_fleet() -> None:
    api = Api()
    api.rules = ("1",)
    opened = Opened(poller(api), Thresholds(), live=True, window_s=60, interval_s=1)
    answer = await ask(opened)
    assert answer.note == answer.snapshot.note
    assert "specctl alert rules --out DIR" in str(answer.note)


async def until_the_past_is_there(source: PrometheusSource) -> None:
    await asyncio.gather(*source.background)


@pytest.mark.parametrize(("engines", "points"), [(500, 10), (1000, 0)])
async def test_charts_begin_with_what_was_before_where_that_is_cheap(
    engines: int, points: int
) -> None:
    api = Api()
    api.engines = engines
    polled = poller(api)
    rounds = polled.snapshots()
    first = await anext(aiter(rounds))
    assert len(first.trail) == 1
    await until_the_past_is_there(polled.source)
    second = await anext(aiter(rounds))
    assert len(second.trail) == points + 2
    ends = [point.at for point in second.trail]
    assert ends == sorted(ends)
    if points:
        begin = second.trail[0]
        assert begin.accepted_tokens / begin.draft_tokens == pytest.approx(0.6)
        assert (begin.seconds, begin.running) == (60.0, 3000)


async def test_the_first_look_does_not_wait_for_latencies() -> None:
    api = Api()
    api.buckets_wait.clear()
    polled = poller(api)
    rounds = polled.snapshots()
    first = await anext(aiter(rounds))
    assert first.fleet.acceptance_rate.value == pytest.approx(0.6)
    assert first.fleet.ttft_s.p99.reason == "the buckets are still being fetched"
    api.buckets_wait.set()
    second = await anext(aiter(rounds))
    assert second.fleet.ttft_s.p99.high == 0.5
    await polled.source.aclose()


async def test_closing_ends_what_still_runs() -> None:
    api = Api()
    api.buckets_wait.clear()
    polled = poller(api)
    await anext(aiter(polled.snapshots()))
    (task,) = polled.source.background
    await polled.source.aclose()
    assert task.cancelled()


async def test_counters_that_some_engines_lack_leave_the_ratio() -> None:
    api = Api()
    api.lacking = {"ttft.count": 500}
    taken = await poller(api).round()
    assert taken is not None
    assert taken.pooled is not None
    assert taken.pooled.sums("generation_tokens", "ttft.count", "itl.count") == (1.45e6, 5e4, 5e5)
    assert taken.pooled.sums("generation_tokens") == pytest.approx((2.9e6,))
    assert taken.fleet.acceptance_rate.value == pytest.approx(0.6)


async def test_single_engines_that_cannot_be_read_do_not_cost_the_fleet() -> None:
    api = Api()
    api.page_error = DeadlineError("http://prometheus:9090 has not answered within 10 s")
    taken = await poller(api).round()
    assert taken is not None
    assert taken.fleet.acceptance_rate.value == pytest.approx(0.6)
    assert "single engines: http://prometheus:9090 has not answered" in (taken.note or "")


async def test_another_window_is_asked_for_from_the_next_round_on() -> None:
    polled = poller(Api())
    await polled.round()
    assert polled.snapshot(300.0).window_s == 60
    assert polled.wake.is_set()
    taken = await polled.round()
    assert taken is not None
    assert taken.window_s == 300
    assert polled.snapshot().window_s == 300


async def test_engines_that_vanish_are_an_event() -> None:
    api = Api()
    polled = poller(api)
    await polled.round()
    api.engines = 900
    polled.source._counted_at = float("-inf")
    taken = await polled.round()
    assert taken is not None
    assert [event.text for event in taken.events] == ["900 engines, 1000 before"]
