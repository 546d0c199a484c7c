"""What `specctl plan` estimates for the lab's shapes beside what was measured, and the error.

    python benchmarks/lab/estimate.py SHAPE[-WEIGHTS]=BENCH.json… [--json FILE]

Memory: weights, KV cache, CUDA graphs and everything besides the KV cache, of each server whose
facts the bench holds. Speed: output tokens a second of each arm by batch, at the acceptance that
was measured, since what is judged here is the cost. Goals: memory within 10 %, speed within 20 %
at batch 1 to 32.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from speccli.core.bench.merge import read_all  # noqa: E402
from speccli.core.bench.results import Arm, Result, Row  # noqa: E402
from speccli.core.report.several import names  # noqa: E402
from speccli.core.sizing import roofline  # noqa: E402
from speccli.core.sizing.gpus import GPUS  # noqa: E402
from speccli.core.sizing.memory import Demand, memory  # noqa: E402
from speccli.core.sizing.shape import Shape  # noqa: E402
from stand_in import shapes  # noqa: E402

MEMORY_GOAL, SPEED_GOAL = 0.10, 0.20
QUANTIZED = {"bf16": "bf16", "fp8": "fp8", "int4": "gptq"}
GRAPHS = 100
"""Captured by default at 128 requests."""


@dataclass(frozen=True)
class Line:
    """One number, estimated and measured."""

    what: str
    arm: str
    batch: int | None
    estimated: float
    measured: float
    unit: str
    goal: float | None

    @property
    def off(self) -> float:
        """0.1: the estimate is 10 % too much."""
        return self.estimated / self.measured - 1


def shape(name: str, weights: str) -> Shape:
    """A stand-in as the planner sees it."""
    s = shapes.SHAPES[name]
    return Shape(
        "LlamaForCausalLM", s.hidden, s.layers, s.heads, s.kv_heads, s.head_dim, s.inter, s.vocab,
        None, quantization=QUANTIZED[weights],
    )  # fmt: skip


def head(name: str, aux: int = 3) -> tuple[Shape, float]:
    """Its EAGLE-3 head: shape, and parameters with the embedding that is the target's."""
    s = shapes.SHAPES[name]
    one = Shape(
        "LlamaForCausalLMEagle3", s.hidden, 1, s.heads, s.kv_heads, s.head_dim, s.inter, s.vocab,
        None,
    )  # fmt: skip
    wider = s.hidden * s.head_dim * (s.heads + 2 * s.kv_heads)
    params = aux * s.hidden**2 + wider + one.attention_params + one.mlp_params
    return one, float(params + s.draft_vocab * s.hidden + one.embedding_params)


def held_by_server(bench: Path) -> dict[tuple[str, str], float]:
    """GPU memory in bytes by (arm, weights), as the lab's `servers-GROUP.json` beside it says."""
    file = bench.with_name(f"servers-{bench.stem.rpartition('-')[0]}.json")
    if not file.exists():
        return {}
    told = json.loads(file.read_text()).get("memory_by_server") or []
    found: dict[tuple[str, str], float] = {}
    for each in told:
        used = float(str(each["used"]).split()[0]) * 2**20
        key = each["arm"], each["weights"]
        found[key] = found.get(key, 0.0) + used
    return found


Held = dict[tuple[str, str], float]


def lines(name: str, weights: str, result: Result, held: Held) -> Iterator[Line]:
    """Everything of one bench that both sides tell."""
    rates: dict[tuple[int, str], dict[str, list[Line]]] = {}
    for arm in result.arms:
        if arm.method in ("none", "eagle3", "p-eagle", "ngram"):
            yield from _memory(name, weights, arm, held.get((arm.name, weights)))
            for row in result.rows:
                if row.arm == arm.name and row.output_tokens_per_s.value and row.batch:
                    line = _speed(name, weights, arm, row)
                    at = rates.setdefault((row.batch, row.dataset), {})
                    at.setdefault(arm.name, []).append(line)
                    yield line
    base = next((arm.name for arm in result.arms if arm.method == "none"), None)
    for (batch, dataset), told in rates.items():
        yield from _speed_ups(batch, dataset, told, base)


def _speed_ups(
    batch: int, dataset: str, told: Mapping[str, list[Line]], base: str | None
) -> Iterator[Line]:
    """What a draft earns by the roofline and by the clock: below 1 lies beyond the crossover."""

    def mean(arm: str, side: str) -> float:
        return float(sum(getattr(each, side) for each in told[arm]) / len(told[arm]))

    for arm in told:
        if base in told and arm != base:
            estimated, measured = (
                mean(arm, side) / mean(str(base), side) for side in ("estimated", "measured")
            )
            yield Line(f"speed-up ({dataset})", arm, batch, estimated, measured, "x", None)


def _memory(name: str, weights: str, arm: Arm, held: float | None) -> Iterator[Line]:
    facts = arm.server
    if facts is None:
        return
    told = memory(GPUS["h200"], _demand(name, weights, arm))
    items = {item.name: float(item.bytes) for item in told.items}
    loaded = items["target weights"] + items.get("draft weights", 0.0)
    graphs, cache = items.get("CUDA graphs", 0.0), facts.kv_cache_bytes.value
    found = [("weights", loaded, facts.weights_bytes.value)]
    found.append(("CUDA graphs", graphs, facts.cuda_graph_bytes.value))
    if cache:
        held = facts.gpu_memory_bytes.value or held
        found.append(("besides the cache", sum(items.values()), held - cache if held else None))
    for what, estimated, measured in found:
        if measured:
            goal = None if what == "CUDA graphs" else MEMORY_GOAL
            yield Line(what, arm.name, None, estimated / 2**30, measured / 2**30, "GiB", goal)
    tokens = facts.kv_cache_tokens.value
    if cache and tokens:
        estimated = cache / told.kv_per_token
        yield Line("KV tokens", arm.name, None, estimated, tokens, "tokens", MEMORY_GOAL)


def _demand(name: str, weights: str, arm: Arm) -> Demand:
    drafts = arm.method in ("eagle3", "p-eagle")
    draft, params = head(name) if drafts else (None, None)
    return Demand(
        target=shape(name, weights),
        draft=draft,
        draft_params=params,
        k=arm.k or 0,
        tensor_parallel=1,
        draft_tensor_parallel=1,
        max_model_len=2048,
        max_num_seqs=128,
        max_num_batched_tokens=8192,
        kv_dtype="auto",
        utilization=0.9,
        graphs=GRAPHS,
        shares_embedding=drafts,
    )


def _speed(name: str, weights: str, arm: Arm, row: Row) -> Line:
    draft, params = head(name) if arm.method in ("eagle3", "p-eagle") else (None, None)
    answers = max(1, row.requests - row.errors)
    asked, given = row.input_tokens or 0, row.output_tokens or 0
    setting = roofline.Setting(
        GPUS["h200"], 1, shape(name, weights), "auto", draft, params, 1, arm.method or "none",
        round(asked / answers), round(given / answers),
    )  # fmt: skip
    length = row.acceptance.tokens_per_step.value or 1.0
    assert row.batch is not None
    k = arm.k or 0
    estimated = roofline.tokens_per_s(setting, row.batch, k, length if k else 1.0)
    goal = SPEED_GOAL if row.batch <= 32 else None
    measured = row.output_tokens_per_s.value or 0.0
    where = f"tokens/s ({row.dataset}, repeat {row.repeat})"
    return Line(where, arm.name, row.batch, estimated, measured, "/s", goal)


def main(arguments: list[str]) -> int:
    """0 every goal met, 1 one is missed, 64 usage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench", nargs="+", metavar="SHAPE[-WEIGHTS]=FILE")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    made: list[tuple[str, Line]] = []
    for named, files in names(asked.bench).items():
        name, _, weights = named.partition("-")
        held = {key: used for file in files for key, used in held_by_server(file).items()}
        found = lines(name, weights or "bf16", read_all(files), held)
        made += [(named, line) for line in found]
    for named, line in made:
        batch = "" if line.batch is None else f"batch {line.batch}"
        mark = "" if line.goal is None else ("ok" if abs(line.off) < line.goal else "MISSED")
        print(
            f"{named:<8} {line.arm:<12} {line.what:<34} {batch:<10} {line.estimated:>10.2f} "
            f"{line.measured:>10.2f} {line.unit:<7} {line.off:>+7.1%} {mark}"
        )
    if asked.json:
        told = [{"shape": n, "off": line.off, **asdict(line)} for n, line in made]
        asked.json.write_text(json.dumps({"schema": "specctl.lab.estimate/v1", "lines": told}))
    return int(any(line.goal is not None and abs(line.off) >= line.goal for _, line in made))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
