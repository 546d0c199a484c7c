"""Requests that ended, and those of them that failed, by the engines' own counters."""

from __future__ import annotations

from speccli.core.metrics.parse import LineError, parse_sample

_ENDED = (b"vllm:request_success_total{", b"sglang:num_requests_total{")
_BY_HTTP = b"http_requests_total{"
"""Of vLLM's API server: what a crash of the engine answers is counted here only."""
_FAILED = frozenset({"error"})
_ASKED = "/v1/"


def ended(page: bytes) -> tuple[float, float] | None:
    """Requests that ended since the process began, and how many of them failed.

    None: the page counts none. A request that its client gave up is no failure.
    """
    total = by_engine = by_http = 0.0
    seen = False
    for line in page.splitlines():
        if not line.startswith((*_ENDED, _BY_HTTP)):
            continue
        try:
            series, value = parse_sample(line)
        except LineError:
            continue
        if line.startswith(_BY_HTTP):
            server_error = series.labels.get("status", "").startswith("5")
            if server_error and series.labels.get("handler", "").startswith(_ASKED):
                by_http += value
            continue
        seen = True
        total += value
        if series.labels.get("finished_reason") in _FAILED:
            by_engine += value
    if not seen:
        return None
    # A request that never reached an engine is counted by the API server alone.
    failed = max(by_engine, by_http)
    return total - by_engine + failed, failed
