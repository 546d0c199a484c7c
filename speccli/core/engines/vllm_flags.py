"""The `vllm serve` line of a recipe, and what that version would refuse of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speccli.core.engines.advice import version_of
from speccli.core.engines.vllm_speculative import Refusal, Version, check, dotted
from speccli.core.recipes.model import Recipe

OLDEST: Version = (0, 16, 0)
"""Lines are written for this version and newer; older ones differ in more than flags."""
NEWEST: Version = (0, 33, 0)
"""Newer versions were not read."""

FLAGS_SINCE: Mapping[str, Version] = {
    "--shutdown-timeout": (0, 18, 0),
    "--disable-access-log-for-endpoints": (0, 16, 0),
    "--custom-histogram-buckets": (0, 32, 0),
    "--cudagraph-capture-sizes": (0, 12, 0),
    "--cudagraph-metrics": (0, 13, 0),
    "--enable-logging-iteration-details": (0, 14, 1),
    "--spec-method": (0, 22, 0),
    "--spec-model": (0, 22, 0),
    "--spec-tokens": (0, 22, 0),
    "--max-num-queued-reqs": (0, 29, 0),
    "--max-num-queued-tokens": (0, 29, 0),
    "--per-request-spec-decode-metrics": (0, 29, 0),
}
"""Flags that are not in every version."""
FLAGS_GONE: Mapping[str, tuple[Version, str]] = {
    name: ((0, 8, 3), "--speculative-config, as JSON")
    for name in (
        "--speculative-model",
        "--num-speculative-tokens",
        "--speculative-draft-tensor-parallel-size",
        "--speculative-disable-by-batch-size",
        "--ngram-prompt-lookup-max",
        "--ngram-prompt-lookup-min",
    )
}
_OWN = frozenset({"--speculative-config", "-sc", "--spec-method", "--spec-model", "--spec-tokens"})
BUCKETS = {
    "request_latency": [
        0.005,
        0.01,
        0.02,
        0.05,
        0.1,
        0.2,
        0.3,
        0.5,
        1,
        2,
        5,
        10,
        30,
        60,
        120,
        300,
    ],
    "inter_token_latency": [
        0.002,
        0.004,
        0.006,
        0.008,
        0.01,
        0.015,
        0.02,
        0.03,
        0.05,
        0.1,
        0.2,
        0.5,
        1,
    ],
}
"""vLLM's own ladder puts every wait under 0.3 s into one bucket, and most steps into two."""


@dataclass(frozen=True, slots=True)
class Line:
    """What starts the engine."""

    command: tuple[str, ...]
    speculative: Mapping[str, Any] | None
    refusals: tuple[Refusal, ...]


def engine_version(recipe: Recipe) -> Version | None:
    """The recipe's version as numbers."""
    return version_of(recipe.engine.version)


def speculative_config(recipe: Recipe) -> dict[str, Any] | None:
    """`--speculative-config`, in vLLM's own words; None without a draft."""
    draft = recipe.draft
    if draft.method == "none":
        return None
    parallel = draft.method == "p-eagle"
    pairs: tuple[tuple[str, Any], ...] = (
        ("method", "eagle3" if parallel else draft.method),
        ("model", draft.model),
        ("revision", draft.revision),
        ("num_speculative_tokens", draft.k or None),
        ("parallel_drafting", parallel or None),
        ("draft_tensor_parallel_size", draft.tensor_parallel),
        ("prompt_lookup_max", draft.prompt_lookup_max),
        ("prompt_lookup_min", draft.prompt_lookup_min),
        ("draft_sample_method", draft.sampling),
        (
            "num_speculative_tokens_per_batch_size",
            [list(row) for row in draft.schedule] if draft.schedule else None,
        ),
    )
    return {key: value for key, value in pairs if value is not None} | dict(draft.extra)


def line(recipe: Recipe, capture_sizes: Sequence[int] | None) -> Line:
    """The command; `capture_sizes` are written where the default does not cover every batch."""
    version = engine_version(recipe) or NEWEST
    config = speculative_config(recipe)
    words = ["vllm", "serve", recipe.target.model, *_serving(recipe)]
    if capture_sizes:
        words += ["--cudagraph-capture-sizes", *(str(size) for size in capture_sizes)]
    if config is not None:
        words += ["--speculative-config", json.dumps(config, separators=(",", ":"))]
    words += _operating(recipe, version)
    words += recipe.engine.extra_args
    refusals = [*_arguments(recipe, version), *(check(config, version) if config else ())]
    return Line(tuple(words), config, tuple(refusals))


def _serving(recipe: Recipe) -> list[str]:
    target, serving = recipe.target, recipe.serving
    words: list[str] = []
    valued: tuple[tuple[str, Any], ...] = (
        ("--revision", target.revision),
        ("--dtype", target.dtype),
        ("--served-model-name", recipe.engine.served_model_name),
        ("--tensor-parallel-size", serving.tensor_parallel),
        ("--data-parallel-size", serving.data_parallel if serving.data_parallel > 1 else None),
        ("--max-model-len", serving.max_model_len),
        ("--max-num-seqs", serving.max_num_seqs),
        ("--max-num-batched-tokens", serving.max_num_batched_tokens),
        ("--gpu-memory-utilization", f"{serving.gpu_memory_utilization:g}"),
        ("--kv-cache-dtype", None if serving.kv_cache_dtype == "auto" else serving.kv_cache_dtype),
    )
    for flag, value in valued:
        if value is not None:
            words += [flag, str(value)]
    if serving.prefix_caching is not None:
        words.append(f"--{'' if serving.prefix_caching else 'no-'}enable-prefix-caching")
    if serving.enforce_eager:
        words.append("--enforce-eager")
    if serving.lora:
        words.append("--enable-lora")
    return words


def _operating(recipe: Recipe, version: Version) -> list[str]:
    words: list[str] = []
    given = {word.partition("=")[0] for word in recipe.engine.extra_args}
    timeout = recipe.serving.shutdown_timeout_s
    wanted: tuple[tuple[str, str | None], ...] = (
        ("--shutdown-timeout", str(timeout) if timeout else None),
        ("--disable-access-log-for-endpoints", "/health,/metrics"),
        ("--custom-histogram-buckets", json.dumps(BUCKETS, separators=(",", ":"))),
    )
    for flag, value in wanted:
        if value is not None and version >= FLAGS_SINCE[flag] and flag not in given:
            words += [flag, value]
    return words


def _arguments(recipe: Recipe, version: Version) -> Iterator[Refusal]:
    """What is wrong with the arguments an operator added, and with the version itself."""
    if version < OLDEST:
        yield Refusal(
            "engine.version",
            f"vLLM {dotted(version)} is older than {dotted(OLDEST)}",
            "the line is written for newer versions",
            f"use {dotted(OLDEST)} or newer",
        )
    for word in recipe.engine.extra_args:
        flag = word.partition("=")[0]
        since, gone = FLAGS_SINCE.get(flag), FLAGS_GONE.get(flag)
        if flag in _OWN:
            yield Refusal(
                flag,
                f"{flag} in engine.extra_args",
                "the recipe writes it itself, and vLLM refuses the two together",
                "set draft.* instead",
            )
        elif gone and version >= gone[0]:
            yield Refusal(
                flag,
                f"{flag} is gone since vLLM {dotted(gone[0])}",
                "vLLM refuses flags it does not know",
                f"write {gone[1]}",
            )
        elif since and version < since:
            yield Refusal(
                flag,
                f"{flag} needs vLLM {dotted(since)}, this is {dotted(version)}",
                "vLLM refuses flags it does not know",
                "use a newer engine, or remove it",
            )
