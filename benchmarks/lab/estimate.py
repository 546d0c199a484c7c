"""What `specctl plan` estimates for the lab's shapes beside what was measured, and the error.

    python benchmarks/lab/estimate.py SHAPE[-WEIGHTS][-tpN]=BENCH.json… [--json FILE]

Memory: weights, KV cache and everything besides the KV cache, of each server whose facts the bench
holds; CUDA graphs only of a server that was alone, since vLLM counts what the whole GPU lost while
it captured. Speed: output tokens a second of each arm by batch, at the acceptance that was
measured, since what is judged here is the cost. Goals: memory within 10 %, speed within 20 % at
batch 1 to 32. WEIGHTS is what the bench itself says, where it is not given. Where a draft stops
paying: by the roofline, and, with `--cost`, by what the kernel check measured of single steps.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from driver.groups import GROUPS, Group  # noqa: E402
from speccli.core.bench.compare import compare  # noqa: E402
from speccli.core.bench.merge import read_all  # noqa: E402
from speccli.core.bench.results import Arm, Result, Row  # noqa: E402
from speccli.core.engines import vllm_graphs  # noqa: E402
from speccli.core.report.several import names  # noqa: E402
from speccli.core.sizing import cudagraphs, roofline  # noqa: E402
from speccli.core.sizing.gpus import GPUS  # noqa: E402
from speccli.core.sizing.memory import Demand, memory  # noqa: E402
from speccli.core.sizing.shape import Shape  # noqa: E402
from stand_in import shapes  # noqa: E402

MEMORY_GOAL, SPEED_GOAL = 0.10, 0.20
QUANTIZED = {"bf16": "bf16", "fp8": "fp8", "int4": "gptq"}
ENGINE = (0, 25, 1)
"""The vLLM of the lab."""
MOST = 1024
"""Requests up to which a crossover is looked for."""
DRAFT_MODEL = "1b"
"""Its shape among the stand-ins."""
MIXTURE = "mixture"
"""The group of the small model itself; those of its servers that are no mixture are dense."""
SMALL = shapes.Shape(576, 1536, 30, 9, 3, 64, 49152, 12288)
EXPERTS, ACTIVE = 8, 2
HEADS = ("eagle3", "p-eagle")
METHODS = ("none", "ngram", "draft_model", *HEADS)


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


def weights_of(result: Result) -> str:
    """How a stand-in says that its weights are stored: "…, FP8: the cost is that model's"."""
    told = result.stand_in or ""
    found = [kind for kind in QUANTIZED if f", {kind.upper()}:" in told]
    return found[0] if found else "bf16"


def group_of(name: str, weights: str, gpus: int = 1) -> Group:
    """The lab's group whose servers these are.

    Raises:
        ValueError: there is none.
    """
    shape = "small" if name == MIXTURE else name
    for group in GROUPS.values():
        stored = any(arm.weights == weights for arm in group.arms)
        if stored and (group.shape, group.gpus) == (shape, gpus):
            return group
    known = {
        (group.shape, arm.weights, group.gpus) for group in GROUPS.values() for arm in group.arms
    }
    told = ", ".join(
        _named(MIXTURE if one == "small" else one, *more) for one, *more in sorted(known)
    )
    raise ValueError(f"{_named(name, weights, gpus)}: the lab serves {told}")


def _named(name: str, weights: str, gpus: int) -> str:
    return f"{name}-{weights}" + (f"-tp{gpus}" if gpus > 1 else "")


def _stand_in(name: str) -> shapes.Shape:
    return SMALL if name == MIXTURE else shapes.SHAPES[name]


def shape(name: str, weights: str, arm: str = "baseline") -> Shape:
    """A stand-in as the planner sees it, or the small model, dense or upcycled."""
    s = _stand_in(name)
    mixed = EXPERTS if arm.startswith("spread") else 0
    return Shape(
        "LlamaForCausalLM", s.hidden, s.layers, s.heads, s.kv_heads, s.head_dim, s.inter, s.vocab,
        None, mixed, ACTIVE if mixed else 0, tied=name == MIXTURE, quantization=QUANTIZED[weights],
    )  # fmt: skip


def draft(name: str, method: str | None) -> tuple[Shape | None, float | None]:
    """Its draft: shape, and of a head the parameters, with the embedding that is the target's."""
    if method in HEADS:
        return head(name)
    if method != "draft_model":
        return None, None
    s = shapes.SHAPES[DRAFT_MODEL]
    vocab = _stand_in(name).vocab
    own = (s.hidden, s.layers, s.heads, s.kv_heads, s.head_dim, s.inter, vocab)
    return Shape("LlamaForCausalLM", *own, None), None


def head(name: str, aux: int = 3) -> tuple[Shape, float]:
    """Its EAGLE-3 head: shape, and parameters with the embedding that is the target's."""
    s = _stand_in(name)
    one = Shape(
        "LlamaForCausalLMEagle3", s.hidden, 1, s.heads, s.kv_heads, s.head_dim, s.inter, s.vocab,
        None,
    )  # fmt: skip
    wider = s.hidden * s.head_dim * (s.heads + 2 * s.kv_heads)
    params = aux * s.hidden**2 + wider + one.attention_params + one.mlp_params
    return one, float(params + s.draft_vocab * s.hidden + one.embedding_params)


def held_by_server(bench: Path) -> dict[tuple[str, str], float]:
    """GPU memory in bytes by (arm, weights), as the lab's `servers-GROUP.json` beside it says.

    After the load where servers were weighed then, else as they were before the first prompt.
    """
    file = bench.with_name(f"servers-{bench.stem.rpartition('-')[0]}.json")
    if not file.exists():
        return {}
    kept = json.loads(file.read_text())
    told = kept.get("memory_after_load") or kept.get("memory_by_server") or []
    found: dict[tuple[str, str], float] = {}
    for each in told:
        used = float(str(each["used"]).split()[0]) * 2**20
        key = each["arm"], each["weights"]
        found[key] = found.get(key, 0.0) + used
    return found


FITTED = (
    "Every estimate is given the tokens a step, and the lengths of prompts and answers, that were "
    "measured; KV tokens are of the cache's bytes as they were set. Foretold: the speeds of "
    "70b-fp8. Of 32b the constants are an earlier run's of the same model "
    "(docs/evidence/bench-h200-32b.json). Fitted to these rows: the speeds of 70b-int4 and of a "
    "draft model, and, to servers of 8b and the earlier 32B, the memory of graphs; the other "
    "speeds to an earlier 8B and 32B (docs/recipes.md). Servers of 8b were weighed before their "
    "first prompt, the others after their load."
)
Held = dict[tuple[str, str], float]


def lines(name: str, weights: str, result: Result, held: Held, gpus: int = 1) -> Iterator[Line]:
    """Everything of one bench that both sides tell."""
    rates: dict[tuple[int, str], dict[str, list[Line]]] = {}
    for arm in result.arms:
        if arm.method in METHODS:
            alone = len(held) == 1
            one = held.get((arm.name, weights))
            yield from _memory(name, weights, arm, one / gpus if one else None, alone, gpus)
            # The small model runs eager, for its acceptance alone: that is no speed.
            for row in () if name == MIXTURE else result.rows:
                if row.arm == arm.name and row.output_tokens_per_s.value and row.batch:
                    line = _speed(name, weights, arm, row, gpus)
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


def _memory(
    name: str, weights: str, arm: Arm, held: float | None, alone: bool, gpus: int
) -> Iterator[Line]:
    facts = arm.server
    if facts is None:
        return
    told = memory(GPUS["h200"], demand(name, weights, arm, gpus))
    items = {item.name: float(item.bytes) for item in told.items}
    loaded = items["target weights"] + items.get("draft weights", 0.0)
    cache = facts.kv_cache_bytes.value
    found = [("weights", loaded, facts.weights_bytes.value)]
    if alone:
        captured = facts.cuda_graph_bytes.value
        found.append(("CUDA graphs", items.get("CUDA graphs", 0.0), captured))
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


def demand(name: str, weights: str, arm: Arm, gpus: int = 1) -> Demand:
    """What a server of the lab is asked to hold."""
    group = group_of(name, weights, gpus)
    batched = 2048 if any("2048" in each.extra for each in group.arms) else 8192
    target, k = shape(name, weights, arm.name), arm.k or 0
    small, params = draft(name, arm.method)
    graphs = captured(name, weights, arm, gpus)
    return Demand(
        target=target,
        draft=small,
        draft_params=params,
        k=k,
        tensor_parallel=gpus,
        draft_tensor_parallel=gpus,
        max_model_len=group.max_model_len,
        max_num_seqs=group.max_num_seqs,
        max_num_batched_tokens=batched,
        kv_dtype="auto",
        utilization=0.9,
        graphs=len(graphs.sizes) + len(graphs.full),
        shares_embedding=arm.method in HEADS,
        draft_graphs=len(graphs.sizes) if small else 0,
        full_tokens=max(graphs.full, default=0),
    )


def captured(name: str, weights: str, arm: Arm, gpus: int = 1) -> cudagraphs.Captured:
    """The CUDA graphs of a server of the lab."""
    group = group_of(name, weights, gpus)
    found = vllm_graphs.rules(
        ENGINE,
        method="eagle3" if arm.method in HEADS else arm.method or "none",
        parallel=arm.method == "p-eagle",
        architecture="LlamaForCausalLM",
        moe=shape(name, weights, arm.name).moe,
        quantized=weights != "bf16",
        scheduled=False,
    )
    assert found is not None
    return cudagraphs.captured(
        found,
        k=arm.k or 0,
        max_num_seqs=group.max_num_seqs,
        max_num_batched_tokens=8192,
        eager="--enforce-eager" in group.extra,
    )


def _setting(
    name: str, weights: str, arm: Arm, rows: Sequence[Row], gpus: int
) -> tuple[roofline.Setting, float]:
    """What these rows asked of a server, and the tokens a step that they had."""
    small, params = draft(name, arm.method)
    answers = max(1, sum(row.requests - row.errors for row in rows))
    asked, given = (
        sum(getattr(row, what) or 0 for row in rows) for what in ("input_tokens", "output_tokens")
    )
    lengths = [row.acceptance.tokens_per_step.value or 1.0 for row in rows]
    setting = roofline.Setting(
        GPUS["h200"], gpus, shape(name, weights), "auto", small, params, gpus, arm.method or "none",
        round(asked / answers), round(given / answers), arm.method == "draft_model",
    )  # fmt: skip
    return setting, sum(lengths) / len(lengths)


def crossings(
    name: str, weights: str, result: Result, gpus: int, cost: Mapping[str, Any]
) -> Iterator[Line]:
    """The batch from which on a draft is slower, where one was found between measured ones."""
    arms = {arm.name: arm for arm in result.arms}
    base = next((arm.name for arm in result.arms if arm.method == "none"), None)
    for named, dataset, place in compare(result, baseline=base).crossovers if base else ():
        arm = arms[named]
        if place.between is None or not arm.k or arm.method not in METHODS:
            continue
        rows = [row for row in result.rows if (row.arm, row.dataset) == (named, dataset)]
        setting, length = _setting(name, weights, arm, [r for r in rows if r.usable], gpus)
        found = {
            "by the roofline": roofline.crossover(setting, arm.k, length, MOST),
            "by the kernels' curve": _turns(cost, arm.k, length)
            if arm.method == "eagle3"
            else None,
        }
        for how, batch in found.items():
            if batch is not None:
                what = f"crossover {how} ({dataset})"
                yield Line(what, named, None, float(batch), place.place, "requests", None)


def _turns(cost: Mapping[str, Any], k: int, length: float) -> float | None:
    """Where measured steps and drafts make K as fast as none, interpolated by log batch."""
    gains = []
    for batch, row in (cost.get("ms") or {}).items():
        drafting = k * cost["draft_ms_per_token"][batch]
        gains.append((math.log(int(batch)), length * row["0"] / (row[str(k)] + drafting)))
    for (low, was), (high, now) in itertools.pairwise(reversed(sorted(gains))):
        if was < 1 <= now:  # from the top down: the last batch that it pays at
            return math.exp(high + (low - high) * (now - 1) / (now - was))
    return None


def _speed(name: str, weights: str, arm: Arm, row: Row, gpus: int) -> Line:
    setting, length = _setting(name, weights, arm, [row], gpus)
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
    parser.add_argument("bench", nargs="+", metavar="SHAPE[-WEIGHTS][-tpN]=FILE")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cost", type=Path, help="JSON of the kernel check's cost curves")
    asked = parser.parse_args(arguments)
    checks = json.loads(asked.cost.read_text())["checks"] if asked.cost else []
    costs = {check["name"]: check.get("data") or {} for check in checks}
    made: list[tuple[str, Line]] = []
    for named, files in names(asked.bench).items():
        whole, split, over = named.partition("-tp")
        name, _, weights = whole.partition("-")
        gpus = int(over) if split and over.isdigit() else 1
        held = {key: used for file in files for key, used in held_by_server(file).items()}
        result = read_all(files)
        stored = weights or weights_of(result)
        try:
            group_of(name, stored, gpus)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 64
        found = lines(name, stored, result, held, gpus)
        made += [(named, line) for line in found]
        cost = costs.get(f"cost.{_named(name, stored, gpus)}", {})
        made += [(named, line) for line in crossings(name, stored, result, gpus, cost)]
    for named, line in made:
        batch = "" if line.batch is None else f"batch {line.batch}"
        mark = "" if line.goal is None else ("ok" if abs(line.off) < line.goal else "MISSED")
        print(
            f"{named:<8} {line.arm:<12} {line.what:<34} {batch:<10} {line.estimated:>10.2f} "
            f"{line.measured:>10.2f} {line.unit:<7} {line.off:>+7.1%} {mark}"
        )
    if asked.json:
        told = [{"shape": n, "off": line.off, **asdict(line)} for n, line in made]
        document = {"schema": "specctl.lab.estimate/v1", "fitted": FITTED, "lines": told}
        asked.json.write_text(json.dumps(document))
    return int(any(line.goal is not None and abs(line.off) >= line.goal for _, line in made))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
