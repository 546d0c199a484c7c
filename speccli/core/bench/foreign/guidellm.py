"""GuideLLM's JSON report: one or more loads in a file.

Its `time_per_output_token_ms` is e2e / tokens, the wait for the first one included, which others
do not mean by TPOT: latencies are made of the single requests here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from speccli.core.bench.foreign.level import Fields, Level, latencies, prompt_id, text_sha
from speccli.core.bench.results import Acceptance, Samples, Spread
from speccli.core.errors import UsageError

_MS = 1e-3


def matches(document: Any) -> bool:
    """Whether it looks like one."""
    metadata = document.get("metadata") if isinstance(document, Mapping) else None
    return isinstance(metadata, Mapping) and "guidellm_version" in metadata


def read(document: Mapping[str, Any], where: str) -> list[Level]:
    """Every load in a report.

    Raises:
        UsageError: there is none that has a concurrency or a rate, or no single requests.
    """
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        raise UsageError(f"{where} holds no benchmarks", hint="did GuideLLM finish?")
    version = Fields(document, where).text("metadata", "guidellm_version")
    found = [
        _level(each, version, f"{where} benchmark {i + 1}") for i, each in enumerate(benchmarks)
    ]
    told = [level for level in found if level is not None]
    if not told:
        raise UsageError(
            f"{where}: no load of it is a concurrency or a rate",
            hint="run it with --profile kind=concurrent, constant or poisson",
        )
    return told


def _level(benchmark: Any, version: str | None, where: str) -> Level | None:
    fields = Fields(benchmark if isinstance(benchmark, Mapping) else {}, where)
    load = _load(fields)
    if load is None:
        return None
    requests = [Fields(each, where) for each in fields.at("requests", "successful") or ()]
    if not requests:
        raise UsageError(
            f"{where} holds no single requests", hint="run it without --metrics sample_size"
        )
    errored = fields.at("requests", "errored") or ()
    samples = _samples(requests)
    duration = fields.number("duration")
    tokens = sum(samples.output_tokens)
    told = fields.maybe("scheduler_metrics", "requests_made", "successful")
    total = fields.maybe("metrics", "output_token_count", "successful", "total_sum") or tokens
    return Level(
        tool="guidellm",
        version=version,
        where=where,
        model=fields.text("config", "backend", "model"),
        endpoint=fields.text("config", "backend", "target"),
        batch=load[0],
        rate=load[1],
        started=_started(fields.maybe("start_time")),
        duration_s=duration,
        requests=int(told) if told is not None else len(requests),
        errors=len(errored),
        error_kinds=Counter(_error(each) for each in errored),
        output_tokens=round(total),
        input_tokens=sum(samples.input_tokens),
        output_tokens_per_s=total / duration if duration > 0 else 0.0,
        samples=samples,
        latencies=latencies(samples, Spread.unknown("GuideLLM keeps no gaps between chunks")),
        acceptance=Acceptance.unknown("GuideLLM does not read acceptance"),
    )


def _load(fields: Fields) -> tuple[int | None, float | None] | None:
    kind = fields.text("config", "strategy", "type_")
    if kind == "synchronous":
        return 1, None
    if kind == "concurrent":
        return int(fields.number("config", "strategy", "streams")), None
    rate = fields.maybe("config", "strategy", "rate")
    return None if rate is None else (None, rate)


def _samples(requests: list[Fields]) -> Samples:
    ordered = sorted(requests, key=lambda each: each.number("request_start_time"))
    origin = ordered[0].number("request_start_time")
    return Samples(
        prompt=tuple(_prompt(each) for each in ordered),
        start_s=tuple(each.number("request_start_time") - origin for each in ordered),
        ttft_s=tuple(each.number("time_to_first_token_ms") * _MS for each in ordered),
        e2e_s=tuple(each.number("request_latency") for each in ordered),
        output_tokens=tuple(int(each.number("output_tokens")) for each in ordered),
        input_tokens=tuple(int(each.maybe("prompt_tokens") or 0) for each in ordered),
        text_sha=tuple(text_sha(each.text("output") or "") for each in ordered),
    )


def _prompt(request: Fields) -> str:
    """By what was asked; by the request's own id, so unpaired, where that is not kept."""
    try:
        body = json.loads(request.text("request_args") or "")["body"]
        asked = body.get("messages") or body["prompt"]
        return prompt_id(json.dumps(asked, sort_keys=True))
    except (ValueError, KeyError, TypeError, AttributeError):
        return request.text("request_id") or "?"


def _error(each: Any) -> str:
    told = Fields(each if isinstance(each, Mapping) else {}, "").at("info", "error")
    return str(told or "failed")[:120]


def _started(at: float | None) -> str | None:
    if at is None or not math.isfinite(at):
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
