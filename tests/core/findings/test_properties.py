"""Whatever fleets write on their pages: rules do not raise, and say nothing impossible."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speccli.core.cost import Pricing
from speccli.core.findings import CODES, Finding, Thresholds, evaluate
from speccli.core.findings.base import WORST_FIRST
from speccli.core.sources.base import Scrape
from speccli.core.stats.window import Settings, Window
from tests.core.findings.bodies import AT, SPEC

NAMES = (
    f"{SPEC}_drafts_total",
    f"{SPEC}_draft_tokens_total",
    f"{SPEC}_accepted_tokens_total",
    'position="0"',
    'position="1"',
    'position="2"',
    "vllm:generation_tokens_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:request_queue_time_seconds_sum",
    "sglang:generation_tokens_total",
    "sglang:spec_accept_length",
)
HISTOGRAMS = (
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:time_per_output_token_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_time_per_output_token_seconds",
)
TARGETS = tuple(f"http://h{i}:8000" for i in range(5))
VALUES = st.one_of(st.integers(0, 3000).map(float), st.floats(allow_nan=True))


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A page with some of the series, in numbers that need not agree."""
    version = draw(st.sampled_from(["", ',version="0.10.1"', ',version="?"', ',pid="7"']))
    lines = []
    for engine in draw(st.lists(st.sampled_from("012"), max_size=3, unique=True)):
        labels = f'engine="{engine}",model_name="m"{version}'
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
            metric, more = name, ""
            if name.startswith("position"):
                metric, more = f"{SPEC}_accepted_tokens_per_pos_total", f",{name}"
            lines.append(f"{metric}{{{labels}{more}}} {draw(VALUES)}")
        for name in draw(st.lists(st.sampled_from(HISTOGRAMS), max_size=2, unique=True)):
            for le in ("0.1", "1.0", "+Inf"):
                lines.append(f'{name}_bucket{{{labels},le="{le}"}} {draw(VALUES)}')
    if draw(st.booleans()):
        started = draw(st.sampled_from([AT - 100, AT - 50, AT + 5, 3.0]))
        lines.append(f"process_start_time_seconds {started}")
    return ("\n".join(lines) + "\n").encode()


@st.composite
def rounds(draw: st.DrawFn) -> list[list[Scrape]]:
    """Rounds of a fleet of up to five servers."""
    at, result = AT, []
    info = st.sampled_from([{}, {"method": "none"}, {"method": "ngram"}, {"method": "eagle3"}])
    for _ in range(draw(st.integers(1, 6))):
        at += draw(st.sampled_from([-5.0, 0.0, 1.0, 30.0, 4000.0]))
        scrapes = []
        for target in draw(st.lists(st.sampled_from(TARGETS), unique=True)):
            status = draw(st.sampled_from([200, 200, 200, 200, 401, 500, None]))
            scrapes.append(
                Scrape(
                    at,
                    target,
                    status,
                    draw(bodies()) if status == 200 else b"",
                    error=None if status else "connect refused",
                    truncated=draw(st.booleans()) and draw(st.booleans()),
                    info=draw(info),
                )
            )
        result.append(scrapes)
    return result


THRESHOLDS = st.builds(
    Thresholds,
    expect_speculation=st.sampled_from([None, True, False]),
    min_tokens=st.sampled_from([0.0, 200.0]),
    hold_s=st.sampled_from([0.0, 60.0, 3600.0]),
    min_draft_tokens=st.sampled_from([0.0, 1.0, 200.0]),
    acceptance_floor=st.floats(0, 1),
    cliff_first=st.floats(0, 1),
    stalled_s=st.sampled_from([0.0, 30.0]),
    queue_wait_ms=st.sampled_from([None, 0.0, 200.0]),
    ttft_p99_ms=st.sampled_from([None, 0.0, 500.0]),
    tpot_p99_ms=st.sampled_from([None, 0.0, 500.0]),
    cost_per_1m_usd=st.sampled_from([None, 0.0, 5.0]),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(rounds(), THRESHOLDS, st.sampled_from([10.0, 60.0, None]), st.floats(-10, 9000))
def test_no_fleet_makes_a_rule_raise(
    fleet: list[list[Scrape]], thresholds: Thresholds, window_s: float | None, late: float
) -> None:
    window = Window(Settings(window_s=window_s, pricing=Pricing(gpu_hour_usd=3.0)))
    for scrapes in fleet:
        window.push(scrapes)
        for now in (None, AT + late):
            snapshot = window.snapshot(now)
            findings = evaluate(snapshot, thresholds)
            _sound(findings)
            assert evaluate(snapshot, thresholds) == findings


def _sound(findings: tuple[Finding, ...]) -> None:
    for finding in findings:
        assert finding.code in CODES
        assert finding.subject
        assert finding.evidence
        assert finding.cause
        assert finding.action
        for text in (finding.evidence, finding.cause, finding.action):
            assert "\n" not in text
            assert not text.endswith(".")
    ranks = [WORST_FIRST.index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks)
