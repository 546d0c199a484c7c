"""What a server says of its memory: vLLM's metrics page tells its KV cache, its log the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from speccli.core.bench.gpu import Look
from speccli.core.bench.results import ServerFacts
from speccli.core.errors import UsageError
from speccli.core.values import Number

CONFIG = "vllm:cache_config_info{"
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_GIB = 2.0**30
_MIB = 2.0**20
_LOGGED = {
    "kv_cache_tokens": (re.compile(r"[GC]PU KV cache size: ([\d,]+) tokens"), 1.0),
    "kv_cache_bytes": (re.compile(r"Available KV cache memory: ([\d.]+) GiB"), _GIB),
    "weights_bytes": (re.compile(r"Model loading took ([\d.]+) GiB"), _GIB),
    "cuda_graph_bytes": (re.compile(r"Graph capturing finished in .* took ([\d.]+) GiB"), _GIB),
}
_NO_LOG = "its log was not read: --server-log ARM=FILE"
_NO_PAGE = "its metrics tell no cache configuration"


def facts(page: Sequence[str], log: str | None) -> ServerFacts:
    """What both say.

    Args:
        page: The lines of /metrics that hold the cache's configuration, one an engine.
        log: All that it printed; None where nobody knows.
    """
    told = _of_page(page)
    for name, (pattern, scale) in _LOGGED.items():
        found = pattern.findall(log or "")
        if found and name not in told:
            # Each worker of a server says its own: of one GPU, as the form has it.
            value = float(found[0].replace(",", "")) * scale
            told[name] = Number.known(value, reason="its log")
    blocks, size = told.get("num_gpu_blocks"), told.get("block_size")
    if "kv_cache_tokens" not in told and blocks and size:
        tokens = (blocks.value or 0) * (size.value or 0)
        told["kv_cache_tokens"] = Number.known(tokens, reason="its metrics: blocks x block size")
    for name in _LOGGED:
        told.setdefault(name, Number.unknown(_NO_LOG if log is None else "its log does not say"))
    for name in ("num_gpu_blocks", "block_size"):
        told.setdefault(name, Number.unknown(_NO_PAGE))
    return ServerFacts(**told)


def _of_page(page: Sequence[str]) -> dict[str, Number]:
    """Sums over the engines (data parallel) of one server, but for what is of each."""
    labels = [dict(_LABEL.findall(line)) for line in page]
    told = {}
    for name, label, add in (
        ("num_gpu_blocks", "num_gpu_blocks", True),
        ("block_size", "block_size", False),
        ("kv_cache_tokens", "kv_cache_size_tokens", True),
        ("kv_cache_bytes", "kv_cache_memory_bytes", False),
    ):
        values = [int(each[label]) for each in labels if each.get(label, "").isdigit()]
        if values and len(values) == len(labels):
            words = "its metrics" if len(values) == 1 else f"its metrics, {len(values)} engines"
            told[name] = Number.known(sum(values) if add else values[0], reason=words)
    return told


def with_memory(
    told: ServerFacts, before: Sequence[Look] | None, after: Sequence[Look] | None
) -> ServerFacts:
    """With what a GPU holds more of than before the server was started, the mean of its GPUs."""
    if before is None or after is None:
        why = "not started here" if before is None else "the GPU does not tell"
        return replace(told, gpu_memory_bytes=Number.unknown(why))
    was = {look.index: look.memory_mib or 0.0 for look in before}
    more = [(look.memory_mib or 0.0) - was.get(look.index, 0.0) for look in after]
    taken = [each for each in more if each > 1]
    if not taken:
        return replace(told, gpu_memory_bytes=Number.unknown("no GPU holds more than before"))
    mean = sum(taken) / len(taken) * _MIB
    words = f"more than before its start, mean of {len(taken)} GPU(s)"
    return replace(told, gpu_memory_bytes=Number.known(mean, reason=words))


def log_of(path: Path | None) -> str | None:
    """A server's log; None where none was named.

    Raises:
        UsageError: it cannot be read.
    """
    if path is None:
        return None
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise UsageError(f"--server-log: cannot read {path}: {error.strerror}") from error


def known(told: ServerFacts) -> bool:
    """Whether anything is."""
    return any(getattr(told, each.name).value is not None for each in fields(told))
