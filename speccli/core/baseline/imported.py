"""Baselines from files: another machine's, or a run of `vllm bench serve`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speccli.core.baseline.from_bench import of_bench, speeds
from speccli.core.baseline.model import SCHEMA, Baseline, BatchSpeed, Key, from_json
from speccli.core.bench import form, results
from speccli.core.bench.compare import baseline_of
from speccli.core.errors import UsageError
from speccli.core.stats.drift import Dispersion, per_draft_variance

_TOLERANCE = 0.02
"""Share of the length a fixed set of prompts may lose: what vLLM's own acceptance tests allow."""
_CLUSTERING = 2.0
"""Drafts of one request resemble each other; a bench repeats its requests, so less than traffic."""


def read_any(path: Path, name: str | None, told: Key, arm: str | None = None) -> Baseline:
    """The baseline of a file.

    Args:
        path: A baseline, a bench, or a result of `vllm bench serve`.
        name: What to call it; None: as the file.
        told: Parts of the key that the operator knows.
        arm: Which one of a bench; None: the one that speculates.

    Raises:
        UsageError: the file is missing, or of no form that is known.
    """
    value = _json(path)
    if isinstance(value, dict) and value.get("schema") == results.SCHEMA:
        return of_bench(form.read(path), arm, name or path.stem, told)
    if isinstance(value, dict) and value.get("schema") == SCHEMA:
        found = from_json(value, str(path))
        key = told.over(found.key)
        return replace(found, name=name or found.name, key=key, origin="imported")
    if isinstance(value, dict) and "spec_decode_num_drafts" in value:
        return _from_bench(value, str(path), name or path.stem, told)
    raise UsageError(
        f"{path} is neither a baseline nor a bench result with acceptance",
        hint=f"want {SCHEMA}, {results.SCHEMA}, or --save-result of `vllm bench serve` (0.14.1)",
    )


def plain_speed(path: Path) -> tuple[BatchSpeed, ...]:
    """What a bench run without speculation made, at its concurrency.

    Raises:
        UsageError: the file is missing, or no such run.
    """
    value = _json(path)
    if isinstance(value, dict) and value.get("schema") == results.SCHEMA:
        result = form.read(path)
        return speeds(result, baseline_of(result, None))
    try:
        row = BatchSpeed(
            float(value["max_concurrency"]),
            float(value["output_throughput"]),
            float(value["duration"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is no bench run with a --max-concurrency") from error
    if "spec_decode_num_drafts" in value:
        raise UsageError(f"{path} was run with speculation", hint="bench the server without it")
    if row.batch < 1 or not all(map(math.isfinite, (row.batch, row.output_tokens_per_s))):
        raise UsageError(f"{path}: {row.output_tokens_per_s} tokens/s at batch {row.batch}")
    return (row,)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error


def _from_bench(value: Mapping[str, Any], where: str, name: str, told: Key) -> Baseline:
    try:
        drafts = float(value["spec_decode_num_drafts"])
        drafted = float(value["spec_decode_draft_tokens"])
        accepted = float(value["spec_decode_accepted_tokens"])
        positions = tuple(
            float(p) for p in value.get("spec_decode_per_position_acceptance_rates", ())
        )
        requests = float(value["completed"])
        rate, length = accepted / drafted, 1 + accepted / drafts
        prompts = float(value["total_input_tokens"]) / requests
        output = float(value["total_output_tokens"]) / requests
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise UsageError(f"{where} is not a whole bench result: {error!r}") from error
    if not 0 <= rate <= 1 or not all(0 <= p <= 1 for p in positions):
        raise UsageError(f"{where}: acceptance outside 0..1", hint="was other traffic on the pod?")
    scatter = Dispersion(per_draft=per_draft_variance(positions, rate), clustering=_CLUSTERING)
    full = drafted >= 0.999 * len(positions) * drafts
    key = told.over(
        Key(engine="vllm", target=_text(value, "model_id"), k=len(positions) if full else None)
    )
    return Baseline(
        name=name,
        key=key,
        rate=rate,
        length=length,
        positions=positions if full else (),
        drafts=drafts,
        origin="imported",
        created=_text(value, "date"),
        source=f"vllm bench serve, {value.get('num_prompts', '?')} prompts",
        tolerance=_TOLERANCE if key.dataset else None,
        prompt_tokens=prompts,
        output_tokens=output,
        fleet=scatter,
        engine=scatter,
    )


def _text(value: Mapping[str, Any], name: str) -> str | None:
    found = value.get(name)
    return str(found) if found else None
