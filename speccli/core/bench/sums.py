"""What all rows of a bench say together: prompt lengths, and what the client cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speccli.core.bench.datasets import Prompts
from speccli.core.bench.results import Client, Dataset, Row
from speccli.core.values import Number

BINS = (0, 128, 512, 2048, 8192, 32768)


def described(dataset: Prompts) -> Dataset:
    """The dataset as the result holds it."""
    return Dataset(
        dataset.name, dataset.source, dataset.sha256, len(dataset.prompts), note=dataset.note
    )


def counted(dataset: Dataset, rows: Sequence[Row]) -> Dataset:
    """With prompt lengths, which the servers count."""
    lengths: dict[str, int] = {}
    for row in rows:
        if row.dataset == dataset.name:
            lengths.update(zip(row.samples.prompt, row.samples.input_tokens, strict=True))
    if not lengths:
        return dataset
    bins = []
    for low, high in zip(BINS, (*BINS[1:], None), strict=True):
        inside = [n for n in lengths.values() if n >= low and (high is None or n < high)]
        if inside:
            bins.append({"low": low, "high": high, "prompts": len(inside)})
    mean = Number.known(sum(lengths.values()) / len(lengths), n=len(lengths))
    return replace(dataset, prompt_tokens_mean=mean, bins=tuple(bins))


def client(rows: Sequence[Row]) -> Client | None:
    """What the load generator cost over all rows, and where it was the bottleneck."""
    told = [(row, row.client) for row in rows if row.client is not None]
    tokens = sum((row.output_tokens_per_s.value or 0) * (row.duration_s or 0) for row, _ in told)
    if not told or not tokens:
        return None
    cost = sum(client.cpu_s for _, client in told) / tokens * 1000
    full = [(row, client) for row, client in told if client.saturated]
    reason = None
    if full:
        row, client = full[0]
        reason = f"{len(full)} of {len(told)} rows, first {row.label}: {client.reason}"
    return Client(Number.known(cost, n=tokens), bool(full), reason)
