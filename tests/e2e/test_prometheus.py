"""The same engines through a real Prometheus and by direct scrape, and a fleet pooled by it."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from speccli.core.engines.vllm import VLLM
from speccli.core.poll import Poller
from speccli.core.poll_prometheus import PrometheusPoller, open_prometheus
from speccli.core.sources.past import past
from speccli.core.sources.promql import newest
from speccli.core.sources.recorded import complete, rules_text
from speccli.core.sources.recording import Recorder
from speccli.core.sources.replay import ReplaySource
from speccli.core.sources.scrape import ScrapeSource
from speccli.core.sources.targets import parse_targets
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot
from speccli.core.stats.window import Settings, Window
from speccli.core.values import Number
from tests.e2e.prometheus_server import (
    PROMETHEUS,
    PROMTOOL,
    FakeEngine,
    FakeFleet,
    exporter,
    fleet_exporter,
    prometheus,
)

pytestmark = pytest.mark.real_prometheus
WINDOW_S = 10.0
AWAY_S = 0.1
"""How far from the time it is given a page may have been made, on a busy machine."""
PATIENT_S = 60.0
"""How long one answer about a large fleet may take on a busy machine."""
LARGE = 2000


Say = Callable[[str], None]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Prints a measured figure whatever pytest captures."""

    def printed(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}\n")

    return printed


def _or_skip(found: str | None, name: str) -> None:
    if found is None:
        reason = f"{name} is not installed: apt-get install prometheus"
        if os.environ.get("SPECCTL_REQUIRE_REAL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@dataclass
class World:
    url: str
    engines: dict[str, FakeEngine]
    addresses: dict[str, str]
    small: FakeFleet
    large: FakeFleet


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    _or_skip(PROMETHEUS, "prometheus")
    engines = {name: FakeEngine() for name in ("steady", "falls", "restarts")}
    small, large = FakeFleet("small", 10), FakeFleet("large", LARGE)
    with ExitStack() as stack:
        addresses = {n: stack.enter_context(exporter(e)) for n, e in engines.items()}
        fleets = [stack.enter_context(fleet_exporter(fleet)) for fleet in (small, large)]
        rules = rules_text().replace("interval: 30s", "interval: 2s")
        folder = tmp_path_factory.mktemp("prometheus")
        url = stack.enter_context(prometheus(folder, [*addresses.values()], fleets, rules))
        yield World(url, engines, addresses, small, large)


@asynccontextmanager
async def polled(world: World, selector: str, **more: object) -> AsyncIterator[PrometheusPoller]:
    settings = Settings(window_s=WINDOW_S, stale_s=2.0)
    poller = open_prometheus(
        world.url,
        settings,
        selector=selector,
        deadline_s=PATIENT_S,
        **more,  # type: ignore[arg-type]
    )
    try:
        yield poller
    finally:
        await poller.source.aclose()


async def until(
    poller: Poller, condition: Callable[[Snapshot], bool], *, within_s: float = 120.0
) -> Snapshot:
    end = time.monotonic() + within_s
    taken = None
    while time.monotonic() < end:
        taken = await poller.round()
        assert taken is not None
        if condition(taken):
            return taken
        await asyncio.sleep(0.3)
    raise AssertionError(f"never came about: {taken}")


def only(world: World, name: str) -> str:
    return f'instance="{world.addresses[name]}"'


def window_of(engine: EngineSnapshot) -> tuple[float, float]:
    """Start and end of what its numbers cover, Unix seconds."""
    assert engine.at is not None
    assert engine.increase is not None
    assert engine.increase.seconds is not None
    return engine.at - engine.increase.seconds, engine.at


async def _both(world: World, name: str) -> tuple[Snapshot, Snapshot]:
    """An engine scraped directly and read through Prometheus, over the same seconds."""
    targets = parse_targets([f"http://{world.addresses[name]}/metrics?quiet"])
    source = ScrapeSource(targets, identify_engines=False)
    direct = Poller(source, Window(Settings(window_s=WINDOW_S)))
    async with polled(world, only(world, name)) as through:
        end = time.monotonic() + WINDOW_S + 3
        while time.monotonic() < end:
            mine, theirs = await asyncio.gather(direct.round(), through.round())
            await asyncio.sleep(0.5)
        await source.aclose()
    assert mine is not None
    assert theirs is not None
    return mine, theirs


async def test_prometheus_and_a_direct_scrape_tell_the_same(world: World, say: Say) -> None:
    """What they differ by is that they do not cover the same time, and that can be calculated.

    The engine's counters are known functions of time. So for windows [s, e] and [s', e'] the
    difference to be expected is truth(s, e) - truth(s', e'), where s to e' are the sampling times
    that each reading names. What is left is not knowing when in a scrape the page was made: within
    `AWAY` of the time named, at each of the four ends. With W the shorter window and a ratio that
    swings between lo and hi, that is at most 4 AWAY (hi - lo) / W, and as much again times the
    rate for counts. Counters are whole numbers: one more at each end.
    """
    engine = world.engines["steady"]
    mine, theirs = await _both(world, "steady")
    (ours,), (other,) = mine.engines, theirs.engines
    windows = [window_of(ours), window_of(other)]
    spans = [end - start for start, end in windows]
    accepted = [engine.accepted_between(*window) for window in windows]
    drafts = [engine.drafts_per_s * span for span in spans]
    swing, shortest = engine.high - engine.low, min(spans)
    away = 4 * AWAY_S * swing / shortest + 8 / (3 * min(drafts))

    def as_expected(scraped: Number, told: Number, truth: list[float], within: float) -> None:
        assert scraped.value is not None
        assert told.value is not None
        assert scraped.value - told.value == pytest.approx(truth[0] - truth[1], abs=within)
        assert told.value == pytest.approx(truth[1], abs=within)

    a, b = mine.fleet, theirs.fleet
    rates = [part / (3 * whole) for part, whole in zip(accepted, drafts, strict=True)]
    say(
        f"acceptance {a.acceptance_rate.value:.4f} scraped, {b.acceptance_rate.value:.4f} through "
        f"Prometheus; {rates[0]:.4f} and {rates[1]:.4f} are exact, {away:.4f} is allowed"
    )
    as_expected(a.acceptance_rate, b.acceptance_rate, rates, away)
    lengths = [1 + 3 * rate for rate in rates]
    as_expected(a.acceptance_length, b.acceptance_length, lengths, 3 * away)
    for scraped, told in zip(a.acceptance_by_position, b.acceptance_by_position, strict=True):
        as_expected(scraped, told, rates, 2 * away)
    count_away = 4 * AWAY_S * engine.drafts_per_s + 4
    as_expected(a.drafts, b.drafts, drafts, count_away)
    output = [(x + y) / span for x, y, span in zip(accepted, drafts, spans, strict=True)]
    fastest = engine.drafts_per_s * (1 + 3 * engine.high)
    as_expected(
        a.output_tokens_per_s,
        b.output_tokens_per_s,
        output,
        4 * AWAY_S * fastest / shortest + 8 / shortest,
    )
    assert (a.itl_s.p99.low, a.itl_s.p99.high) == (b.itl_s.p99.low, b.itl_s.p99.high)
    assert a.itl_s.mean.value == pytest.approx(0.04, abs=1e-3)
    assert b.itl_s.mean.value == pytest.approx(0.04, abs=1e-3)
    assert (a.running.value, a.waiting.value) == (b.running.value, b.waiting.value) == (2, 0)
    assert ours.model == other.model == 'tiny "q"'


async def test_raw_samples_are_the_pages_that_were_served(world: World) -> None:
    """No sampling error at all against what the engine handed out: `increase()` is not involved."""
    engine = world.engines["steady"]
    async with polled(world, only(world, "steady")) as poller:
        await until(poller, lambda taken: taken.covered_s >= WINDOW_S - 1.5)
        taken = await poller.round()
    assert taken is not None
    (shown,) = taken.engines
    assert shown.increase is not None
    grown = {n: shown.increase.values[i] for n, i in shown.increase.layout.index.items()}
    names = ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens")
    steps = round(shown.increase.seconds or 0)
    assert any(
        all(later[n] - earlier[n] == grown[n] for n in names)
        for i, earlier in enumerate(engine.served)
        for later in engine.served[max(0, i + steps - 3) : i + steps + 4]
    )


async def test_a_recording_of_it_replays_the_same(world: World, tmp_path: Path) -> None:
    path = tmp_path / "incident.jsonl"
    recorder = Recorder(path, interval_s=1.0, source="prometheus")
    async with polled(world, only(world, "steady"), tap=recorder) as poller:
        live = await until(poller, lambda taken: taken.covered_s >= 5)
    recorder.close()
    source = ReplaySource(path)
    replayed = Poller(source, Window(poller.window.settings, source="prometheus"))
    while await replayed.round() is not None:
        pass
    again = replayed.snapshot()
    await source.aclose()
    assert again.fleet == live.fleet
    assert [e.name for e in again.engines] == [e.name for e in live.engines]


async def test_a_target_that_is_down_is_told(world: World) -> None:
    engine = world.engines["falls"]
    async with polled(world, only(world, "falls")) as poller:
        await until(poller, lambda taken: bool(taken.fresh))
        engine.down = True
        down = await until(poller, lambda taken: taken.engines[0].state == "down")
        assert down.engines[0].reason == "Prometheus says it is down (up 0)"
        assert down.engines[0].metrics.running.value is None
        engine.down = False
        await until(poller, lambda taken: taken.engines[0].state == "ok")


async def test_a_restart_is_counted_through(world: World) -> None:
    engine = world.engines["restarts"]
    async with polled(world, only(world, "restarts")) as poller:
        await until(poller, lambda taken: bool(taken.fresh) and taken.covered_s > 3)
        unseen = engine.counters()["drafts"] - engine.served[-1]["drafts"]
        engine.restart()
        after = await until(poller, lambda taken: taken.engines[0].resets == 1)
    rate = after.fleet.acceptance_rate.value
    assert rate is not None
    assert engine.low <= rate <= engine.high
    assert any("restarted" in event.text for event in after.events)
    drafts, seconds = after.fleet.drafts.value, after.covered_s
    assert drafts is not None
    # What was drafted between the last scrape and the restart is lost: of a second, or of more.
    least = engine.drafts_per_s * (seconds - 1) - max(unseen, engine.drafts_per_s)
    assert least <= drafts <= engine.drafts_per_s * (seconds + 1)


async def _pooled(
    world: World, fleet: FakeFleet, *, rules: bool, rounds: int = 2
) -> tuple[Snapshot, list[int]]:
    """A pooled snapshot, and how many questions each refresh took."""
    questions: list[int] = []
    async with polled(world, f'namespace="{fleet.namespace}"', mode="pooled") as poller:
        census = await poller.source.count()
        poller.source.assume(replace(census, rules=rules and census.rules))
        assert poller.source.census is not None
        assert poller.source.census.rules is rules
        counted = poller.source.census
        for _ in range(rounds):
            before = poller.source.api.asked
            taken = await poller.round()
            questions.append(poller.source.api.asked - before)
            # Buckets are asked for each time; what is asked every half minute is not, however slow.
            poller.source.assume(counted)
            assert poller.pooled is not None
            poller.pooled._buckets_due = 0.0
            poller.pooled._present_at = time.monotonic()
    assert taken is not None
    return taken, questions


@pytest.fixture(scope="module")
def warm(world: World) -> World:
    """The fleets have been scraped often enough for a window."""
    until = time.monotonic() + 120
    while world.large.pages < 7 and time.monotonic() < until:
        time.sleep(0.5)
    assert world.large.pages >= 7
    time.sleep(3)
    return world


async def test_2000_engines_pooled_give_the_exact_acceptance(warm: World) -> None:
    taken, _ = await _pooled(warm, warm.large, rules=False)
    fleet = taken.fleet
    assert taken.pooled_engines == LARGE
    assert fleet.acceptance_rate.value == pytest.approx(warm.large.acceptance, rel=1e-9)
    # Two positions of every engine, the third of those that draft it: none is diluted.
    positions = [number.value for number in fleet.acceptance_by_position]
    assert positions == pytest.approx([0.9, 0.6, 0.3], rel=1e-6)
    assert fleet.running.value == 3 * LARGE
    assert fleet.waiting.value == 90
    assert fleet.kv_cache_usage.value == pytest.approx(0.89)
    assert (fleet.ttft_s.p99.low, fleet.ttft_s.p99.high) == (0.025, 0.05)
    assert fleet.itl_s.mean.value == pytest.approx(0.04, rel=1e-3)
    assert taken.unbinned


async def test_outliers_are_read_one_by_one(warm: World) -> None:
    taken, _ = await _pooled(warm, warm.large, rules=False)
    assert 1 < len(taken.engines) <= 16
    shown = {engine.target: engine for engine in taken.engines}
    assert shown["http://large-5"].gauges["waiting"] == 90
    ratios = [warm.large.accepted(e) / warm.large.drafted(e) for e in range(LARGE)]
    lowest = min(e.metrics.acceptance_rate.value or 1 for e in taken.engines)
    assert lowest == pytest.approx(min(ratios), rel=1e-6)


async def test_recording_rules_give_the_same_numbers(warm: World) -> None:
    by_rules, few = await _pooled(warm, warm.large, rules=True)
    direct, more = await _pooled(warm, warm.large, rules=False)
    a, b = by_rules.fleet, direct.fleet
    assert by_rules.pooled_engines == direct.pooled_engines
    assert a.acceptance_rate.value == pytest.approx(b.acceptance_rate.value, rel=1e-6)
    assert a.acceptance_length.value == pytest.approx(b.acceptance_length.value, rel=1e-6)
    assert a.tokens_per_step.value == pytest.approx(b.tokens_per_step.value, rel=1e-6)
    assert [n.value for n in a.acceptance_by_position] == pytest.approx(
        [n.value for n in b.acceptance_by_position], rel=1e-6
    )
    assert a.itl_s.p99 == replace(b.itl_s.p99, n=a.itl_s.p99.n)
    assert a.running == b.running
    assert few[-1] < more[-1]


async def test_questions_do_not_grow_with_the_fleet(warm: World, say: Say) -> None:
    for rules in (False, True):
        _, small = await _pooled(warm, warm.small, rules=rules, rounds=3)
        _, large = await _pooled(warm, warm.large, rules=rules, rounds=3)
        say(f"questions a refresh, {rules=}: {small} of 10 engines, {large} of {LARGE}")
        assert small == large


async def test_the_mode_is_chosen_by_the_number_of_engines(warm: World, say: Say) -> None:
    async with polled(warm, 'namespace="small"') as poller:
        taken = await poller.round()
        assert taken is not None
        assert taken.pooled is None
        assert len(taken.engines) == 10
        assert taken.fleet.acceptance_rate.value == pytest.approx(warm.small.acceptance, rel=1e-9)
    began = time.perf_counter()
    async with polled(warm, 'namespace="large"') as poller:
        first = await anext(aiter(poller.snapshots()))
    took = time.perf_counter() - began
    load = os.getloadavg()[0]
    say(f"first snapshot of {LARGE} engines after {took:.2f} s at a load of {load:.1f}")
    assert first.pooled_engines == LARGE
    assert first.fleet.acceptance_rate.value == pytest.approx(warm.large.acceptance, rel=1e-9)


@pytest.mark.parametrize("rules", [True, False], ids=["recorded", "summed-anew"])
async def test_a_pooled_fleets_charts_begin_with_what_was_before(world: World, rules: bool) -> None:
    async with polled(world, 'namespace="small"') as poller:
        await until(poller, lambda _: world.small.pages >= 12)  # a minute of it
        api, selector = poller.source.api, poller.source.selector
        # Up to what is there whole, as a pooled fleet asks: rules may be being evaluated now.
        answer = await api.query(complete(120) if rules else newest(selector))
        (end,) = [series.value for series in answer.series]
        assert end is not None
        points = await past(api, selector, [VLLM], end=end, rules=rules)
    assert points[-1].at == math.floor(end)  # at whatever second of a minute this is asked
    drafted = [point for point in points if point.draft_tokens > 0]
    assert drafted[-1] is points[-1]
    assert [point.at for point in points] == sorted(point.at for point in points)
    rates = [point.accepted_tokens / point.draft_tokens for point in drafted]
    assert rates == pytest.approx([world.small.acceptance] * len(rates), rel=1e-6)


async def test_a_selector_that_matches_nothing_is_missing(world: World) -> None:
    async with polled(world, 'namespace="nowhere"') as poller:
        taken = await poller.round()
    assert taken is not None
    assert taken.engines[0].state == "missing"
    assert 'no series of an engine that matches {namespace="nowhere"}' in str(
        taken.engines[0].reason
    )


def test_promtool_accepts_the_rules() -> None:
    _or_skip(PROMTOOL, "promtool")
    assert PROMTOOL is not None
    path = Path(__file__).parents[2] / "manifests" / "monitoring" / "recording-rules.yaml"
    done = subprocess.run([PROMTOOL, "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
