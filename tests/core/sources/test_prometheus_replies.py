"""What a fleet looks like behind a Prometheus that answers badly."""

from __future__ import annotations

import time

import pytest

from speccli.core.errors import DeadlineError, ExitCode, SourceError
from speccli.core.poll_prometheus import open_prometheus
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings
from tests.core.sources.far_end import Reply, failure, far_end, silent, success

DEADLINE_S = 0.5
PATIENT_S = 30.0
"""The deadline where an answer comes, and how long after one a busy machine may take to say so."""


async def polled(url: str, deadline_s: float = PATIENT_S) -> Snapshot | None:
    poller = open_prometheus(url, Settings(), deadline_s=deadline_s)
    began = time.monotonic()
    try:
        return await poller.round()
    finally:
        await poller.source.aclose()
        assert time.monotonic() - began < deadline_s + PATIENT_S


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        pytest.param(
            success([{"metric": {}, "value": [1, "NaN"]}]), "NO_TRAFFIC: every value is NaN", id="a"
        ),
        pytest.param(success([]), "Prometheus has no series of an engine", id="b"),
        pytest.param(success([], warnings=["partial response"]), "PARTIAL: partial", id="i"),
    ],
)
async def test_t20_answers_without_an_engine_are_a_state_with_words(
    reply: Reply, words: str
) -> None:
    with far_end(reply) as end:
        taken = await polled(end.url)
    assert taken is not None
    (engine,) = taken.engines
    assert engine.state == "missing"
    assert words in (engine.reason or "")
    assert engine.metrics.acceptance_rate.value is None


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(success([1, "1"], "scalar"), id="c"),
        pytest.param(Reply(body=b"<html>"), id="d"),
        pytest.param(Reply(302, headers={"Location": "/login"}), id="e"),
        pytest.param(Reply(401), id="f"),
        pytest.param(Reply(503), id="g"),
        pytest.param(failure(400, "bad_data", "parse error"), id="j"),
    ],
)
async def test_t20_everything_else_is_unknown(reply: Reply) -> None:
    with far_end(reply) as end, pytest.raises(SourceError) as caught:
        await polled(end.url)
    assert caught.value.exit_code is ExitCode.UNKNOWN


async def test_t20_h_is_unknown_at_the_deadline() -> None:
    with silent() as url, pytest.raises(DeadlineError):
        await polled(url, DEADLINE_S)
