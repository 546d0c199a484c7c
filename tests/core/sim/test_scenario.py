"""Scripts: what each does to a fleet, and how they are named, hastened and put together."""

from __future__ import annotations

import pytest

from speccli.core.sim import Fleet, Scenario, build_fleet
from speccli.core.sim.config import Method
from tests.core.sim.conftest import ManualClock

NAMES = (
    "steady", "drift", "traffic-shift", "cliff", "drop", "zero", "stall", "restart", "down",
    "version-skew", "no-traffic",
)  # fmt: skip


def rates(fleet: Fleet) -> list[tuple[int, int, list[int], int]]:
    return [
        (
            engine.ledger.drafts,
            engine.ledger.accepted_tokens,
            engine.ledger.accepted_per_position,
            engine.ledger.generation_tokens,
        )
        for engine in fleet.engines
    ]


def acceptance(fleet: Fleet, clock: ManualClock, seconds: float) -> list[float]:
    """Return the acceptance of each engine over the coming seconds."""
    before = rates(fleet)
    clock.now += seconds
    fleet.advance()
    k = fleet.engines[0].config.k
    return [
        (now[1] - then[1]) / (k * (now[0] - then[0]))
        for now, then in zip(rates(fleet), before, strict=True)
    ]


def started(name: str, clock: ManualClock, method: Method = "eagle3") -> Fleet:
    return build_fleet(
        2, method=method, k=3, clock=clock, warmup_s=30, scenario=Scenario.named(name), fluid=False
    )


def test_the_built_in_ones_are_these_and_each_says_what_it_shows() -> None:
    assert Scenario.names() == NAMES
    for name in NAMES:
        description = Scenario.named(name).description
        assert description.endswith(".")
        assert "\n" not in description


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        pytest.param("drfit", "did you mean 'drift'", id="typo"),
        pytest.param("version_skew", "did you mean 'version-skew'", id="underscore"),
        pytest.param("qqqq", "one of: steady", id="nothing-like-it"),
    ],
)
def test_an_unknown_name_gives_the_nearest(wrong: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        Scenario.named(wrong)


def test_steady_keeps_its_acceptance(clock: ManualClock) -> None:
    fleet = started("steady", clock)
    designed = fleet.engines[0].config.acceptance.mean_accepted / 3
    for rate in acceptance(fleet, clock, 120):
        assert rate == pytest.approx(designed, abs=0.02)


def test_drift_slides_on_every_engine(clock: ManualClock) -> None:
    fleet = started("drift", clock)
    first = acceptance(fleet, clock, 30)
    middle = acceptance(fleet, clock, 300)
    clock.now += 300
    fleet.advance()
    last = acceptance(fleet, clock, 60)
    for one, two, three in zip(first, middle, last, strict=True):
        assert one > two + 0.05 > three + 0.1


def test_drop_befalls_one_named_engine_at_once(clock: ManualClock) -> None:
    fleet = started("drop", clock)
    clock.now += 21
    fleet.advance()
    healthy, dropped = acceptance(fleet, clock, 60)
    assert dropped < healthy / 2


def test_zero_accepts_nothing_while_drafts_go_on(clock: ManualClock) -> None:
    fleet = started("zero", clock)
    clock.now += 21
    fleet.advance()
    before = fleet.engines[1].ledger.drafts
    assert acceptance(fleet, clock, 30)[1] == 0.0
    assert fleet.engines[1].ledger.drafts > before + 100


def test_cliff_spares_position_0(clock: ManualClock) -> None:
    fleet = started("cliff", clock, "p-eagle")
    clock.now += 31
    fleet.advance()
    before = rates(fleet)[0]
    clock.now += 60
    fleet.advance()
    now = rates(fleet)[0]
    drafts = now[0] - before[0]
    by_position = [(a - b) / drafts for a, b in zip(now[2], before[2], strict=True)]
    assert by_position[0] == pytest.approx(0.74, abs=0.03)
    assert by_position[1] / by_position[0] < 0.35


def test_stall_keeps_requests_running_and_ends(clock: ManualClock) -> None:
    fleet = started("stall", clock)
    clock.now += 25
    fleet.advance()
    stuck = fleet.engines[1].ledger.generation_tokens
    clock.now += 100
    fleet.advance()
    assert fleet.engines[1].ledger.generation_tokens == stuck
    assert fleet.engines[1].ledger.running > 0
    assert not fleet.replicas[1].refusing
    clock.now += 60
    fleet.advance()
    assert fleet.engines[1].ledger.generation_tokens > stuck


def test_restart_refuses_for_a_while_and_begins_again(clock: ManualClock) -> None:
    fleet = started("restart", clock)
    start = fleet.engines[1].started_at
    clock.now += 22
    fleet.advance()
    assert [replica.refusing for replica in fleet.replicas] == [False, True]
    clock.now += 10
    fleet.advance()
    assert not fleet.replicas[1].refusing
    assert fleet.engines[1].started_at == start + 30 + 28
    assert fleet.engines[1].ledger.drafts < fleet.engines[0].ledger.drafts / 2


def test_down_does_not_come_back(clock: ManualClock) -> None:
    fleet = started("down", clock)
    clock.now += 1000
    fleet.advance()
    assert [replica.refusing for replica in fleet.replicas] == [False, True]


def test_version_skew_gives_one_server_the_old_names(clock: ManualClock) -> None:
    fleet = started("version-skew", clock)
    clock.now += 1
    fleet.advance()
    new, old = (replica.metrics() for replica in fleet.replicas)
    assert b"vllm:inter_token_latency_seconds" in new
    assert b"vllm:inter_token_latency_seconds" not in old
    assert b"vllm:time_per_output_token_seconds" in old
    assert fleet.replicas[1].version == "0.8.5"


def test_no_traffic_dries_every_engine_up(clock: ManualClock) -> None:
    fleet = started("no-traffic", clock)
    clock.now += 60
    fleet.advance()
    before = rates(fleet)
    clock.now += 60
    fleet.advance()
    assert rates(fleet) == before


def test_speed_compresses_the_script_and_not_the_engines(clock: ManualClock) -> None:
    scenario = Scenario.named("restart", speed=4, target="sim-0")
    (event,) = scenario.events
    assert (event.at_s, event.change.value, event.target) == (5.0, 2.0, "sim-0")
    assert scenario.after(10).events[0].at_s == 15.0
    with pytest.raises(ValueError, match="above 0"):
        scenario.faster(0)


def test_scripts_add_up() -> None:
    both = Scenario.named("drop", target="first") + Scenario.named("stall")
    assert both.name == "drop+stall"
    assert len(both.events) == 3


def test_a_server_that_is_not_there_is_named_with_the_nearest(clock: ManualClock) -> None:
    fleet = build_fleet(2, clock=clock)
    with pytest.raises(ValueError, match="did you mean 'sim-1'"):
        fleet.play(Scenario.named("drop", target="sim-l"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n": 0}, "at least one"),
        ({"n": 1, "gpu": "H10"}, "did you mean 'H100'"),
        ({"n": 1, "method": "eagel3"}, "did you mean 'eagle3'"),
        ({"n": 1, "acceptance": [0.5]}, "K=3"),
        ({"n": 1, "time_scale": 0.0}, "above 0"),
    ],
)
def test_a_fleet_that_makes_no_sense_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_fleet(**wrong)  # type: ignore[arg-type]


def test_time_can_run_faster(clock: ManualClock) -> None:
    fleet = build_fleet(1, clock=clock, time_scale=10)
    clock.now += 6
    fleet.advance()
    assert fleet.engines[0].now == clock.now - 6 + 60
    assert fleet.engines[0].ledger.generation_tokens > 10_000
