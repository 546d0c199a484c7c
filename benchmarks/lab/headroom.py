"""What of a 70B fits where: BF16, FP8 and INT4, measured on one H200, by plan on others.

    python benchmarks/lab/headroom.py

Of the committed evidence (docs/evidence/lab-h200); `published.py` writes it to
docs/report/headroom.md.

Exit codes: 0 written, 64 usage.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from models import Given, given  # noqa: E402
from sized import demand  # noqa: E402
from usage import Parser, run  # noqa: E402

from speccli.core.bench.results import Arm  # noqa: E402
from speccli.core.sizing.gpus import GPUS, Gpu  # noqa: E402
from speccli.core.sizing.memory import memory  # noqa: E402

EVIDENCE = Path(__file__).resolve().parents[2] / "docs/evidence/lab-h200"
FILES = {
    "70b-bf16": ("70b-bf16-arms",),
    "70b-fp8": ("70b-fp8", "70b-eagle3-fp8"),
    "70b-int4": ("70b-int4", "70b-eagle3-int4"),
}
GPU_HOUR_USD = 3.5
SHARE = 0.9
"""Of a GPU's memory that a server takes: --gpu-memory-utilization."""
COLUMNS = (
    *("weights", "draft", "besides the cache, GiB", "room for cache, tokens"),
    *("tok/s at 1", "tok/s at 8", "$ / 1M at 8", "J / token at 1"),
)
WHERE = (("h100", 1), ("h100", 2), ("h200", 1), ("h200", 2))


@dataclass(frozen=True)
class Served:
    """One server of the lab."""

    weights: str
    arm: Arm
    gpu: Gpu
    besides: float
    """GiB that it holds besides its cache, measured."""
    per_token: int
    rates: dict[int, float]
    """Output tokens a second by batch."""
    joules: dict[int, float]
    """By batch, of a token; where they were read."""


def served(each: Given) -> Iterator[Served]:
    """Every arm whose memory was read."""
    for arm in each.result.arms:
        rows = [row for row in each.result.rows if row.arm == arm.name and row.batch]
        facts, held = arm.server, each.held.get((arm.name, each.model.weights))
        cache = facts.kv_cache_bytes.value if facts else None
        if held is None or cache is None:
            continue
        told = memory(each.model.gpu, demand(each.model.name, each.model.weights, arm))
        rates = _means((row.batch, row.output_tokens_per_s.value) for row in rows)
        joules = _means((row.batch, row.energy_j_per_token.value) for row in rows)
        yield Served(
            each.model.weights, arm, each.model.gpu, (held - cache) / 2**30, told.kv_per_token,
            rates, joules,
        )  # fmt: skip


def _means(told: Iterable[tuple[int | None, float | None]]) -> dict[int, float]:
    """By batch, of those that are known."""
    found: dict[int, list[float]] = {}
    for batch, value in told:
        if batch is not None and value is not None:
            found.setdefault(batch, []).append(value)
    return {batch: sum(values) / len(values) for batch, values in found.items()}


def _room(total_gib: float, besides_gib: float, per_token: int) -> str:
    tokens = int((SHARE * total_gib - besides_gib) * 2**30 / per_token) // 16 * 16
    if tokens > 0:
        return f"{tokens:,}"
    return f"none: takes {(besides_gib / total_gib):.2f} of the GPU without it"


def measured(all_: Sequence[Served]) -> Iterator[str]:
    """What was measured on one GPU."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for one in all_:
        at = {batch: one.rates.get(batch) for batch in (1, 8)}
        usd = GPU_HOUR_USD / 3600 / at[8] * 1e6 if at[8] else None
        told = [
            one.weights.upper(),
            "none" if one.arm.method == "none" else f"EAGLE-3, K = {one.arm.k}",
            f"◐ {one.besides:.1f}",
            f"△ {_room(one.gpu.memory_bytes / 2**30, one.besides, one.per_token)}",
            *("—" if rate is None else f"◐ {rate:,.1f}" for rate in at.values()),
            "—" if usd is None else f"◐ {usd:.2f}",
            f"◐ {one.joules[1]:.1f}" if 1 in one.joules else "—",
        ]
        yield f"| {' | '.join(told)} |"


def planned(all_: Sequence[Served]) -> Iterator[str]:
    """Tokens of cache that `specctl plan` foretells, by GPU and how many a server is split over."""
    named = [f"{over} × {GPUS[name].title}" for name, over in WHERE]
    yield f"| weights | draft | {' | '.join(named)} |"
    yield f"|---|---|{'--:|' * len(WHERE)}"
    drafting = next(one.arm for one in all_ if one.arm.method == "eagle3")
    for weights in dict.fromkeys(one.weights for one in all_):
        plain = next(one.arm for one in all_ if one.weights == weights)
        for arm, words in ((plain, "none"), (drafting, f"EAGLE-3, K = {drafting.k}")):
            cells = []
            for name, over in WHERE:
                asked = replace(
                    demand("70b", weights, arm), tensor_parallel=over, draft_tensor_parallel=over,
                    utilization=SHARE, max_num_seqs=64, max_num_batched_tokens=8192,
                )  # fmt: skip
                told = memory(GPUS[name], asked)
                cells.append(f"△ {told.kv_tokens:,}" if told.kv_cache > 0 else "△ does not fit")
            yield f"| {weights.upper()} | {words} | {' | '.join(cells)} |"


def page() -> str:
    """The whole page, Markdown."""
    benches = [f"{name}={EVIDENCE / file}.json" for name, all_ in FILES.items() for file in all_]
    all_ = [one for each in given(benches) for one in served(each)]
    return "\n".join(
        (
            "# Headroom: a 70B in BF16, FP8 and INT4",
            "",
            f"◐ measured on one {all_[0].gpu.title}, vLLM 0.25.1, on a stand-in of a 70B model "
            "(Llama-3.1-70B); △ by `specctl plan`, not measured. Room for cache is counted: what "
            f"{SHARE:.0%} of a GPU leaves (`--gpu-memory-utilization {SHARE}`), up to 64 requests "
            f"of 2,048 tokens; $ at {GPU_HOUR_USD} an hour.",
            "",
            *measured(all_),
            "",
            "BF16 was served with 8,192 tokens of cache, which is past that share; a head "
            "beside it was not tried. The others were given less cache than there is room for.",
            "",
            "## What fits elsewhere △",
            "",
            "Tokens of cache, on one GPU or split over two (tensor parallel):",
            "",
            *planned(all_),
            "",
            "*made by benchmarks/lab/headroom.py of docs/evidence/lab-h200*",
            "",
        )
    )


def main(arguments: list[str]) -> int:
    """As the module says."""
    Parser("headroom", str(__doc__)).parse_args(arguments)
    print(page(), end="")
    return 0


if __name__ == "__main__":
    run("headroom", main)
