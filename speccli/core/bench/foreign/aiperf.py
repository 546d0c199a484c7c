"""AIPerf: `profile_export_aiperf.json`, and beside it the records, the prompts, the counters.

AIPerf's time to the first token holds what it takes to connect. Its conversation ids are made anew
in every run, so prompts are told by their text (`inputs.json`), else by their place in the dataset.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speccli.core.bench.foreign.level import Fields, Latencies, Level, latencies, prompt_id, summary
from speccli.core.bench.results import Acceptance, Samples, Spread
from speccli.core.bench.spread import spread
from speccli.core.errors import UsageError
from speccli.core.values import Number

_PROMPTS = "inputs.json"
_COUNTERS = "server_metrics_export.json"
_NS = 1e-9
_MS = 1e-3
_FULL = 0.9
"""Share of K that drafts must reach for positions to share one denominator."""


def matches(document: Any) -> bool:
    """Whether it looks like one."""
    return isinstance(document, Mapping) and {"aiperf_version", "input_config"} <= set(document)


def read(document: Mapping[str, Any], path: Path) -> Level:
    """The run in a summary and the files beside it.

    Raises:
        UsageError: a number is missing, or the load is neither a concurrency nor a rate.
    """
    fields = Fields(document, str(path))
    samples, errors, gaps, started = _records(path)
    completed = int(fields.number("request_count", "avg"))
    each = latencies(samples, gaps) if samples.prompt else _summaries(fields, completed, gaps)
    batch, rate = _load(fields)
    endpoint = fields.at("input_config", "endpoint", "urls")
    models = fields.at("input_config", "models", "items")
    failed = fields.maybe("error_request_count", "avg")
    return Level(
        tool="aiperf",
        version=fields.text("aiperf_version"),
        where=str(path),
        model=models[0].get("name") if isinstance(models, list) and models else None,
        endpoint=endpoint[0] if isinstance(endpoint, list) and endpoint else None,
        batch=batch,
        rate=rate,
        started=started,
        duration_s=fields.number("benchmark_duration", "avg"),
        requests=completed,
        errors=int(failed) if failed is not None else sum(errors.values()),
        error_kinds=errors,
        output_tokens=int(fields.number("total_output_tokens", "avg")),
        input_tokens=_whole(fields.maybe("total_isl", "avg")),
        output_tokens_per_s=fields.number("output_token_throughput", "avg"),
        samples=samples,
        latencies=each,
        acceptance=_acceptance(path),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _load(fields: Fields) -> tuple[int | None, float | None]:
    phases = fields.at("input_config", "phases")
    phase = (
        next((p for p in phases if isinstance(p, Mapping) and p.get("kind") == "profiling"), {})
        if isinstance(phases, list)
        else {}
    )
    told = Fields(phase, fields.where)
    concurrency = told.maybe("concurrency")
    rate = told.maybe("rate")
    if rate is not None:
        return None, rate
    if concurrency is None or concurrency < 1:
        raise UsageError(
            f"{fields.where} tells neither a concurrency nor a request rate",
            hint="run aiperf profile with --concurrency or --request-rate",
        )
    return int(concurrency), None


def files(path: Path) -> tuple[Path, ...]:
    """A summary and what is read from beside it; none of them need exist."""
    others = path.with_name(_PROMPTS), path.with_name(_COUNTERS)
    return path, _beside(path, ".jsonl"), *others


def _beside(path: Path, suffix: str) -> Path:
    """A file of the same run: `profile_export_aiperf.json` → `profile_export` + suffix."""
    return path.with_name(path.name.removesuffix(".json").removesuffix("_aiperf") + suffix)


def _records(path: Path) -> tuple[Samples, Mapping[str, int], Spread, str | None]:
    records = _beside(path, ".jsonl")
    if not records.is_file():
        return Samples(), {}, Spread.unknown(f"{records.name} is not beside it"), None
    prompts = _prompts(path.with_name(_PROMPTS))
    good, errors, gaps = [], Counter[str](), list[float]()
    for number, line in enumerate(_lines(records), 1):
        record = Fields(line, f"{records} line {number}")
        if record.text("metadata", "benchmark_phase") != "profiling":
            continue
        problem = line.get("error")
        if problem or record.at("metadata", "was_cancelled"):
            words = problem.get("message") if isinstance(problem, Mapping) else problem
            errors[str(words or "cancelled")[:120]] += 1
            continue
        good.append(record)
        told = record.at("metrics", "inter_chunk_latency", "value")
        gaps += [gap * _MS for gap in told if isinstance(gap, int | float)] if told else []
    good.sort(key=lambda record: record.number("metadata", "request_start_ns"))
    if not good:
        return Samples(), errors, Spread.unknown("no record of an answered request"), None
    origin = good[0].number("metadata", "request_start_ns")
    samples = Samples(
        prompt=tuple(_prompt(record, prompts) for record in good),
        start_s=tuple(
            (record.number("metadata", "request_start_ns") - origin) * _NS for record in good
        ),
        ttft_s=tuple(_metric(record, "time_to_first_token") * _MS for record in good),
        e2e_s=tuple(_metric(record, "request_latency") * _MS for record in good),
        output_tokens=tuple(int(_metric(record, "output_sequence_length")) for record in good),
        input_tokens=tuple(int(_metric(record, "input_sequence_length")) for record in good),
    )
    started = datetime.fromtimestamp(origin * _NS, UTC).isoformat(timespec="seconds")
    return samples, errors, spread(gaps, independent=False), started


def _metric(record: Fields, name: str) -> float:
    return record.number("metrics", name, "value")


def _prompt(record: Fields, prompts: Mapping[str, str]) -> str:
    conversation = record.text("metadata", "conversation_id") or ""
    return prompts.get(conversation) or f"{record.number('metadata', 'session_num'):g}"


def _prompts(path: Path) -> dict[str, str]:
    """Conversation → an id of what was asked in it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))["data"]
        return {
            each["session_id"]: prompt_id(
                json.dumps(
                    [p.get("messages") or p.get("prompt") for p in each["payloads"]], sort_keys=True
                )
            )
            for each in data
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path} line {number} is not JSON: {error}") from error
        if isinstance(value, dict):
            found.append(value)
    return found


def _summaries(fields: Fields, n: int, gaps: Spread) -> Latencies:
    def of(name: str) -> Spread:
        return summary([fields.maybe(name, q) for q in ("p50", "p95", "p99", "avg")], n)

    return Latencies(
        of("time_to_first_token"), of("inter_token_latency"), of("request_latency"), gaps
    )


def _acceptance(path: Path) -> Acceptance:
    """From the server metrics that AIPerf scraped meanwhile, where it did."""
    try:
        metrics = json.loads(path.with_name(_COUNTERS).read_text(encoding="utf-8"))["metrics"]
        drafts, drafted, accepted = (
            sum(_grown(metrics, name)) for name in ("drafts", "draft_tokens", "accepted_tokens")
        )
        by_position = _grown(metrics, "accepted_tokens_per_pos")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Acceptance.unknown("AIPerf kept no counters of the server beside the file")
    if not drafts or not drafted or not 0 <= accepted <= drafted:
        return Acceptance.unknown("the counters that AIPerf kept show no drafts")
    why = "counted by the server between AIPerf's scrapes: other traffic would be in it"
    return Acceptance(
        source="counters",
        rate=Number.known(accepted / drafted, n=drafted, reason=why),
        length=Number.known(1 + accepted / drafts, n=drafts, reason=why),
        by_position=tuple(Number.known(each / drafts, n=drafts) for each in by_position)
        if drafted >= _FULL * drafts * len(by_position)
        else (),
        tokens_per_step=Number.unknown("the file does not tell the steps"),
        drafts=int(drafts),
        draft_tokens=int(drafted),
        accepted_tokens=int(accepted),
    )


def _grown(metrics: Mapping[str, Any], name: str) -> list[float]:
    """What a counter of speculation grew by, by position where it has positions."""
    family = metrics[f"vllm:spec_decode_num_{name}"]
    sums: dict[int, float] = {}
    for series in family["series"]:
        position = int(series["labels"].get("position", 0))
        sums[position] = sums.get(position, 0.0) + float(series["stats"]["total"])
    return [sums[position] for position in sorted(sums)]
