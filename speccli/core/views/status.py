"""A snapshot as the contract's `specctl.status/v1` object."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from speccli.core.findings.base import Finding
from speccli.core.stats.histogram import quantile
from speccli.core.stats.increase import Buckets
from speccli.core.stats.measures import Metrics
from speccli.core.stats.snapshot import BatchRow, EngineSnapshot, Snapshot
from speccli.core.values import Latency, Number, Quantile
from speccli.core.views.document import json_text

SCHEMA = "specctl.status/v1"
BATCH_P99_MIN_N = 500
"""Observations a batch range needs before its p99 is said."""
_TPOT = "observed when a request finishes: it cannot be tied to a batch size"


def status(snapshot: Snapshot, findings: Sequence[Finding]) -> dict[str, Any]:
    """The whole object."""
    return {
        "schema": SCHEMA,
        "at": rfc3339(snapshot.at),
        "window_s": round(snapshot.covered_s, 3),
        "simulated": snapshot.simulated,
        "fleet": metrics(snapshot.fleet),
        "engines": [engine(each) for each in snapshot.engines],
        "p99_by_batch": [batch(row) for row in snapshot.by_batch],
        "findings": [finding(each) for each in findings],
    }


def status_text(snapshot: Snapshot, findings: Sequence[Finding]) -> str:
    """The same as a JSON document."""
    return json_text(status(snapshot, findings))


def engine(each: EngineSnapshot) -> dict[str, Any]:
    """One engine."""
    return {
        "target": each.target,
        "engine": each.engine,
        "model": each.model,
        "engine_kind": each.kind,
        "version": each.version,
        "method": each.method,
        "k": each.k,
        "draft": each.draft,
        "state": each.state,
        "reason": each.reason,
        "fix": each.fix,
        "resets": each.resets,
        "sources": dict(each.sources),
        **metrics(each.metrics),
    }


def metrics(values: Metrics) -> dict[str, Any]:
    """METRICS."""
    shown: dict[str, Any] = {}
    for field in fields(values):
        value = getattr(values, field.name)
        if isinstance(value, Number):
            shown[field.name] = number(value)
        elif isinstance(value, Latency):
            shown[field.name] = latency(value)
        else:
            shown[field.name] = [number(each) for each in value]
    return shown


def number(value: Number) -> dict[str, Any]:
    """A measured number."""
    return {"value": value.value, "state": value.state, "reason": value.reason, "n": value.n}


def interval(value: Quantile) -> dict[str, Any]:
    """A quantile from buckets, seconds."""
    return {
        "low": value.low,
        "high": value.high,
        "state": value.state,
        "reason": value.reason,
        "n": value.n,
    }


def latency(value: Latency) -> dict[str, Any]:
    """One latency."""
    return {
        "p50": interval(value.p50),
        "p95": interval(value.p95),
        "p99": interval(value.p99),
        "mean": number(value.mean),
    }


def batch(row: BatchRow) -> dict[str, Any]:
    """One row of p99 by batch size; `n` is the number of inter-token observations."""

    def p99(buckets: Buckets | None) -> dict[str, Any]:
        if buckets is None:
            return interval(Quantile.unknown("not observed"))
        return interval(quantile(buckets, 0.99, min_n=BATCH_P99_MIN_N))

    return {
        "batch": row.batch,
        "n": 0 if row.itl is None else round(row.itl.n),
        "itl_s": p99(row.itl),
        "ttft_s": p99(row.ttft),
        "tpot_s": interval(Quantile.unknown(_TPOT)),
    }


def finding(each: Finding) -> dict[str, Any]:
    """One finding."""
    return {
        "code": each.code,
        "severity": each.severity,
        "subject": each.subject,
        "evidence": each.evidence,
        "cause": each.cause,
        "action": each.action,
        "since": None if each.since is None else rfc3339(each.since),
    }


def rfc3339(at: float) -> str:
    """Unix seconds as RFC 3339, UTC, milliseconds."""
    if not math.isfinite(at) or not 0 <= at < 253402300800:
        at = 0.0
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
