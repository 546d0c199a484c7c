"""Failed requests on a page: what an engine counts, and what only its API server saw."""

from __future__ import annotations

import pytest

from speccli.core.engines.failures import ended

STOP = 'vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 90.0\n'
ERROR = 'vllm:request_success_total{engine="0",finished_reason="error",model_name="m"} 4.0\n'
ABORT = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 6.0\n'
HTTP = 'http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 10.0\n'
PROBE = 'http_requests_total{handler="/health",method="GET",status="5xx"} 70.0\n'


@pytest.mark.parametrize(
    ("page", "told"),
    [
        pytest.param("", None, id="nothing-counted-is-not-zero"),
        pytest.param(PROBE, None, id="probes-are-no-requests"),
        pytest.param(STOP, (90.0, 0.0), id="none-failed"),
        pytest.param(STOP + ABORT, (96.0, 0.0), id="given-up-by-its-client"),
        pytest.param(STOP + ERROR, (94.0, 4.0), id="by-the-engine"),
        pytest.param(STOP + ERROR + HTTP + PROBE, (100.0, 10.0), id="before-the-engine-too"),
        pytest.param(STOP + "vllm:request_success_total{ 1\n", (90.0, 0.0), id="no-line"),
    ],
)
def test_requests_that_ended_and_failed(page: str, told: tuple[float, float] | None) -> None:
    assert ended(page.encode()) == told
