"""The page of each version against names, labels, types and ladders read off real pages."""

from __future__ import annotations

from collections import defaultdict

import pytest
from prometheus_client.parser import text_string_to_metric_families

from speccli.core.sim import build_fleet
from speccli.core.sim.config import METHODS, Method
from speccli.core.sim.families import KNOWN_VERSIONS, known_version, token_ladder

TTFT = (
    "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 "
    "160.0 640.0 2560.0 +Inf"
)
ITL = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 +Inf"
REQUEST = (
    "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0 "
    "1920.0 7680.0 +Inf"
)
ITERATION = "1.0 8.0 16.0 32.0 64.0 128.0 256.0 512.0 1024.0 2048.0 4096.0 8192.0 16384.0 +Inf"

SPEC = {
    "vllm:spec_decode_num_drafts_total": "",
    "vllm:spec_decode_num_draft_tokens_total": "",
    "vllm:spec_decode_num_accepted_tokens_total": "",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": "position",
}
EVERYWHERE = {
    "vllm:num_requests_running": "",
    "vllm:num_requests_waiting": "",
    "vllm:num_preemptions_total": "",
    "vllm:prompt_tokens_total": "",
    "vllm:generation_tokens_total": "",
    "vllm:request_success_total": "finished_reason",
    "vllm:cache_config_info": None,
}
HISTOGRAMS_EVERYWHERE = {
    "vllm:time_to_first_token_seconds": TTFT,
    "vllm:e2e_request_latency_seconds": REQUEST,
    "vllm:request_queue_time_seconds": REQUEST,
    "vllm:request_inference_time_seconds": REQUEST,
    "vllm:request_prefill_time_seconds": REQUEST,
    "vllm:request_decode_time_seconds": REQUEST,
    "vllm:iteration_tokens_total": ITERATION,
}
TPOT = {"vllm:request_time_per_output_token_seconds": ITL}
NEW_ITL = {"vllm:inter_token_latency_seconds": ITL}
OLD_ITL = {"vllm:time_per_output_token_seconds": ITL}
NEW_CACHE = {
    "vllm:kv_cache_usage_perc": "",
    "vllm:prefix_cache_queries_total": "",
    "vllm:prefix_cache_hits_total": "",
}
OLD_CACHE = {
    "vllm:gpu_cache_usage_perc": "",
    "vllm:gpu_prefix_cache_queries_total": "",
    "vllm:gpu_prefix_cache_hits_total": "",
}
SOURCES = {"vllm:prompt_tokens_by_source_total": "source", "vllm:prompt_tokens_cached_total": ""}
RECOMPUTED = {"vllm:prompt_tokens_recomputed_total": ""}
BY_REASON = {"vllm:num_requests_waiting_by_reason": "reason"}
FLOPS = {"vllm:estimated_flops_per_gpu_total": ""}
NEWEST = {
    "vllm:admission_rejections_total": "reason",
    "vllm:prompt_tokens_cached_by_source_total": "source",
}

PRESENT: dict[str, list[dict[str, str]]] = {
    "0.8.5": [OLD_CACHE, OLD_ITL],
    "0.10.2": [OLD_CACHE, NEW_CACHE, OLD_ITL, NEW_ITL],
    "0.12.0": [NEW_CACHE, NEW_ITL, TPOT],
    "0.16.0": [NEW_CACHE, NEW_ITL, TPOT, SOURCES, RECOMPUTED],
    "0.20.2": [NEW_CACHE, NEW_ITL, TPOT, SOURCES, BY_REASON, FLOPS],
    "0.24.0": [NEW_CACHE, NEW_ITL, TPOT, SOURCES, BY_REASON, FLOPS],
    "0.32.0": [NEW_CACHE, NEW_ITL, TPOT, SOURCES, BY_REASON, FLOPS, NEWEST],
}
VARYING = [
    OLD_CACHE, NEW_CACHE, OLD_ITL, NEW_ITL, TPOT, SOURCES, RECOMPUTED, BY_REASON, FLOPS, NEWEST,
]  # fmt: skip
REASONS = {
    "0.8.5": {"stop", "length", "abort"},
    "0.10.2": {"stop", "length", "abort"},
    "0.12.0": {"stop", "length", "abort"},
    "0.16.0": {"stop", "length", "abort", "error"},
    "0.20.2": {"stop", "length", "abort", "error", "repetition"},
    "0.24.0": {"stop", "length", "abort", "error", "repetition"},
    "0.32.0": {"stop", "length", "abort", "error", "repetition"},
}


class Read:
    """A page as a reader sees it."""

    def __init__(self, version: str, method: Method = "eagle3") -> None:
        fleet = build_fleet(1, method=method, k=3, version=version, clock=lambda: 1.79e9)
        self.text = fleet.replicas[0].metrics().decode()
        self.labels: dict[str, set[str]] = {}
        self.values: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.ladders: dict[str, list[str]] = defaultdict(list)
        for family in text_string_to_metric_families(self.text):
            for sample in family.samples:
                self.labels[sample.name] = set(sample.labels)
                for label, value in sample.labels.items():
                    self.values[sample.name, label].add(value)
                if "le" in sample.labels:
                    self.ladders[sample.name].append(sample.labels["le"])

    def type_of(self, name: str) -> str:
        line = next(x for x in self.text.splitlines() if x.startswith(f"# TYPE {name} "))
        return line.rsplit(" ", 1)[1]


@pytest.fixture(scope="module", params=KNOWN_VERSIONS)
def page(request: pytest.FixtureRequest) -> tuple[str, Read]:
    return request.param, Read(request.param)


def test_the_table_covers_every_known_version() -> None:
    assert tuple(PRESENT) == KNOWN_VERSIONS


def test_a_version_exposes_its_own_names_with_their_labels(page: tuple[str, Read]) -> None:
    version, read = page
    wanted = {**SPEC, **EVERYWHERE}
    for group in PRESENT[version]:
        wanted |= group
    for name, extra in wanted.items():
        if extra in (TTFT, ITL, REQUEST, ITERATION):
            continue
        assert name in read.labels, name
        if extra is None:
            continue
        labels = {"engine", "model_name", *([extra] if extra else [])}
        if name == "vllm:admission_rejections_total":
            labels -= {"engine"}
        assert read.labels[name] == labels, name
        assert read.type_of(name) == ("counter" if name.endswith("_total") else "gauge"), name


def test_a_version_exposes_no_name_of_another(page: tuple[str, Read]) -> None:
    version, read = page
    present = {name for group in PRESENT[version] for name in group}
    for group in VARYING:
        for name in group:
            seen = name in read.labels or f"{name}_bucket" in read.labels
            assert seen == (name in present), name


def test_buckets_are_the_real_ones(page: tuple[str, Read]) -> None:
    version, read = page
    ladders = dict(HISTOGRAMS_EVERYWHERE)
    for group in PRESENT[version]:
        ladders |= {name: text for name, text in group.items() if text in (ITL,)}
    for name, ladder in ladders.items():
        assert " ".join(read.ladders[f"{name}_bucket"]) == ladder, name
        assert read.type_of(name) == "histogram", name
        assert read.labels[f"{name}_bucket"] == {"engine", "model_name", "le"}
        assert read.labels[f"{name}_count"] == {"engine", "model_name"}
        assert f"{name}_sum" in read.labels


def test_finished_reasons_grow_with_the_version(page: tuple[str, Read]) -> None:
    version, read = page
    assert read.values["vllm:request_success_total", "finished_reason"] == REASONS[version]


def test_every_position_exists_from_the_start(page: tuple[str, Read]) -> None:
    positions = page[1].values["vllm:spec_decode_num_accepted_tokens_per_pos_total", "position"]
    assert positions == {"0", "1", "2"}


def test_every_counter_and_histogram_has_a_created_gauge(page: tuple[str, Read]) -> None:
    read = page[1]
    for line in read.text.splitlines():
        if line.startswith("# TYPE vllm:"):
            _, _, name, kind = line.split()
            if kind == "counter":
                assert read.type_of(f"{name.removesuffix('_total')}_created") == "gauge"
            elif kind == "histogram":
                assert read.type_of(f"{name}_created") == "gauge"


def test_the_page_says_that_it_is_simulated(page: tuple[str, Read]) -> None:
    read = page[1]
    assert read.text.startswith("# SIMULATED")
    assert "\nspecctl_simulated 1.0\n" in read.text
    assert read.values["vllm:num_requests_running", "model_name"] == {"SIMULATED/llama-3.3-70b"}
    assert "\nprocess_start_time_seconds 1.79e+09\n" in read.text


def test_the_oldest_version_has_no_engine_label_on_its_cache_configuration() -> None:
    assert "engine" not in Read("0.8.5").labels["vllm:cache_config_info"]
    assert "engine" in Read("0.10.2").labels["vllm:cache_config_info"]


@pytest.mark.parametrize("version", KNOWN_VERSIONS)
def test_without_speculation_no_spec_series_exists(version: str) -> None:
    assert "spec_decode" not in Read(version, "none").text


@pytest.mark.parametrize("method", [method for method in METHODS if method != "none"])
def test_every_method_has_the_same_four_counters(method: Method) -> None:
    assert set(SPEC) <= set(Read("0.32.0", method).labels)


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        pytest.param("0.8.5", (0, 8, 5), id="exact"),
        pytest.param("0.11.0", (0, 10, 2), id="between-two"),
        pytest.param("0.31.9", (0, 24, 0), id="just-before-one"),
        pytest.param("1.0.0", (0, 32, 0), id="newer-than-all"),
    ],
)
def test_an_unknown_version_exposes_what_the_one_before_did(
    asked: str, known: tuple[int, int, int]
) -> None:
    assert known_version(asked) == known


@pytest.mark.parametrize("text", ["0.8.4", "nightly", "0.32", "0.32.0rc1", ""])
def test_a_version_that_cannot_be_served_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="version"):
        known_version(text)


def test_token_buckets_end_at_the_model_length() -> None:
    assert token_ladder(1024) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    assert token_ladder(8192)[-1] == 5000
