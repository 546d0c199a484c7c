"""Pages: format, caching, several engines, restarts, and what a page costs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import utils
from prometheus_client.parser import text_string_to_metric_families

from speccli.core.sim import Change, Traffic, build_fleet
from speccli.core.sim.exposition import format_value, label_text
from tests.core.sim.conftest import ManualClock
from tests.support.tracing import untraced


def samples(body: bytes) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def value(body: bytes, name: str, **labels: str) -> float:
    found = [
        number
        for sample, has, number in samples(body)
        if sample == name and labels.items() <= has.items()
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]


@given(st.floats() | st.integers(0, 2**53).map(float))
def test_numbers_are_written_as_prometheus_client_writes_them(number: float) -> None:
    assert format_value(number) == utils.floatToGoString(number)  # type: ignore[no-untyped-call]
    assert math.isnan(number) or float(format_value(number)) == number


def test_labels_are_sorted_and_escaped() -> None:
    assert label_text({"b": 'x"y', "a": "p\\q\nr"}) == '{a="p\\\\q\\nr",b="x\\"y"}'


def test_a_page_shows_the_ledger(clock: ManualClock) -> None:
    fleet = build_fleet(1, clock=clock, warmup_s=60)
    replica = fleet.replicas[0]
    ledger = replica.engines[0].ledger
    body = replica.metrics()
    for name, wanted in {
        "vllm:spec_decode_num_drafts_total": ledger.drafts,
        "vllm:spec_decode_num_accepted_tokens_total": ledger.accepted_tokens,
        "vllm:generation_tokens_total": ledger.generation_tokens,
        "vllm:num_requests_running": ledger.running,
        "vllm:kv_cache_usage_perc": ledger.kv_usage,
        "vllm:inter_token_latency_seconds_count": ledger.histograms["itl"].count,
        "vllm:inter_token_latency_seconds_sum": ledger.histograms["itl"].total,
        "process_start_time_seconds": clock.now - 60,
    }.items():
        assert value(body, name) == wanted, name
    per_position = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    for position, count in enumerate(ledger.accepted_per_position):
        assert value(body, per_position, position=str(position)) == count
    bucket = "vllm:inter_token_latency_seconds_bucket"
    assert value(body, bucket, le="+Inf") == ledger.histograms["itl"].count
    assert value(body, bucket, le="0.025") == sum(ledger.histograms["itl"].counts[:2])
    by_source = "vllm:prompt_tokens_by_source_total"
    parts = [
        value(body, by_source, source=source) for source in ("local_compute", "local_cache_hit")
    ]
    assert sum(parts) == ledger.prompt_tokens
    assert value(body, "vllm:request_success_total", finished_reason="stop") > 0


def test_a_page_is_made_anew_only_after_something_happened(clock: ManualClock) -> None:
    replica = build_fleet(1, clock=clock, warmup_s=10).replicas[0]
    first = replica.metrics()
    replica.advance()
    assert replica.metrics() is first
    clock.now += 5
    replica.advance()
    second = replica.metrics()
    tokens = "vllm:generation_tokens_total"
    assert value(second, tokens) > value(first, tokens)


def test_a_server_with_two_engines_tells_them_apart_under_one_type_line(
    clock: ManualClock,
) -> None:
    replica = build_fleet(1, clock=clock, engines_per_server=2, warmup_s=10).replicas[0]
    body = replica.metrics()
    for label, engine in zip("01", replica.engines, strict=True):
        drafts = value(body, "vllm:spec_decode_num_drafts_total", engine=label)
        assert drafts == engine.ledger.drafts
    assert body.count(b"# TYPE vllm:spec_decode_num_drafts_total ") == 1
    rejections = "vllm:admission_rejections_total"
    assert value(body, rejections, reason="max_num_queued_reqs") == 0


def test_a_restart_is_a_new_start_time_and_counters_from_zero(clock: ManualClock) -> None:
    replica = build_fleet(1, clock=clock, warmup_s=30).replicas[0]
    before = replica.metrics()
    replica.engines[0].apply(Change("restart", 2.0))
    clock.now += 2.0
    replica.advance()
    after = replica.metrics()
    start = "process_start_time_seconds"
    assert value(after, start) == clock.now > value(before, start)
    assert value(after, "vllm:generation_tokens_total") == 0
    created = "vllm:spec_decode_num_drafts_created"
    assert value(after, created) == clock.now


def test_an_upgrade_changes_the_names(clock: ManualClock) -> None:
    replica = build_fleet(1, clock=clock, version="0.8.5").replicas[0]
    assert b"vllm:gpu_cache_usage_perc" in replica.metrics()
    replica.engines[0].apply(Change("version", text="0.32.0"))
    assert b"vllm:gpu_cache_usage_perc" not in replica.metrics()
    assert b"vllm:kv_cache_usage_perc" in replica.metrics()


def test_a_fleet_page_has_every_engine_by_instance_and_what_specctl_reads(
    clock: ManualClock,
) -> None:
    fleet = build_fleet(5, clock=clock, warmup_s=20)
    fleet.replicas[4].engines[0].apply(Change("version", text="0.8.5"))
    body = fleet.metrics()
    for replica in fleet.replicas:
        drafts = value(body, "vllm:spec_decode_num_drafts_total", instance=replica.name)
        assert drafts == replica.engines[0].ledger.drafts
        value(body, "process_start_time_seconds", instance=replica.name)
    old = "vllm:time_per_output_token_seconds_count"
    assert [has["instance"] for name, has, _ in samples(body) if name == old] == ["sim-4"]
    types = [line for line in body.decode().splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert b"mm_cache" not in body
    assert b"_created" not in body


def test_shards_of_a_fleet_page_make_up_the_whole(clock: ManualClock) -> None:
    fleet = build_fleet(7, clock=clock, warmup_s=5)

    def running(body: bytes) -> set[str]:
        return {
            has["instance"] for name, has, _ in samples(body) if name == "vllm:num_requests_running"
        }

    shards = [running(fleet.metrics(index, 3)) for index in range(3)]
    assert set().union(*shards) == running(fleet.metrics())
    assert sum(map(len, shards)) == 7


def test_a_page_costs_less_than_a_millisecond(clock: ManualClock) -> None:
    replica = build_fleet(1, clock=clock, traffic=Traffic(clients=64), warmup_s=20).replicas[0]
    replica.metrics()
    best = math.inf
    for _ in range(20):
        replica.engines[0].revision += 1
        with untraced():
            begin = time.thread_time()
            replica.metrics()
            best = min(best, time.thread_time() - begin)
    assert best < 0.001


@pytest.mark.parametrize("count", [1, 3])
def test_the_same_seed_gives_the_same_page(clock: ManualClock, count: int) -> None:
    one, same = (build_fleet(count, clock=clock, warmup_s=10, seed=4) for _ in range(2))
    assert one.metrics() == same.metrics()
    assert build_fleet(count, clock=clock, warmup_s=10, seed=5).metrics() != one.metrics()
