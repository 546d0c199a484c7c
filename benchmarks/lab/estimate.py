"""What `specctl plan` estimates for the lab's shapes beside what was measured, and the error.

    python benchmarks/lab/estimate.py SHAPE[-WEIGHTS][-tpN]=BENCH.json… [--json FILE]

Memory: weights, KV cache and everything besides the KV cache, of each server whose facts the bench
holds; CUDA graphs only of a server that was alone, since vLLM counts what the whole GPU lost while
it captured. Speed: output tokens a second of each arm by batch, at the acceptance that was
measured, since what is judged here is the cost. Goals: memory within 10 %, speed within 20 % at
batch 1 to 32. Where a draft stops paying: by the roofline, and, with `--cost`, by what the kernel
check measured of single steps. WEIGHTS and N are the bench's own: another name is refused.

Exit codes: 0 every goal met, 1 one is missed, 64 usage. Of what docs/report is
made of one is missed, the draft model of 8b at batch 32: its two repeats differ by 30 % themselves.
Eager mode and K by batch are not estimated: their speeds are missed.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from models import FORM, Given, Held, Model, given  # noqa: E402
from sized import HEADS, MIXTURE, demand, draft, named, shape  # noqa: E402
from usage import Parser, read_object, run  # noqa: E402

from speccli.core.bench.compare import compare  # noqa: E402
from speccli.core.bench.results import Arm, Result, Row  # noqa: E402
from speccli.core.errors import UsageError  # noqa: E402
from speccli.core.sizing import roofline  # noqa: E402
from speccli.core.sizing.memory import memory  # noqa: E402

MEMORY_GOAL, SPEED_GOAL = 0.10, 0.20
MOST = 1024
"""Requests up to which a crossover is looked for."""
METHODS = ("none", "ngram", "draft_model", *HEADS)
FITTED = (
    "Every estimate is given the tokens a step, and the lengths of prompts and answers, that were "
    "measured; KV tokens are of the cache's bytes as they were set. Which rows of an H200 the rest "
    "was fitted to is in docs/recipes.md."
)
"""True of whoever's rows; more is said of a report's own with `--fitted`."""


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

    @property
    def missed(self) -> bool:
        """Whether there is a goal, and the estimate is not within it."""
        return self.goal is not None and abs(self.off) >= self.goal


def lines(model: Model, result: Result, held: Held) -> Iterator[Line]:
    """Everything of one bench that both sides tell."""
    rates: dict[tuple[int, str], dict[str, list[Line]]] = {}
    for arm in result.arms:
        if arm.method in METHODS:
            alone = len(held) == 1
            one = held.get((arm.name, model.weights))
            yield from _memory(model, arm, one / model.gpus if one else None, alone)
            # The small model runs eager, for its acceptance alone: that is no speed.
            for row in () if model.name == MIXTURE else result.rows:
                if row.arm == arm.name and row.output_tokens_per_s.value and row.batch:
                    line = _speed(model, arm, row)
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


def _memory(model: Model, arm: Arm, held: float | None, alone: bool) -> Iterator[Line]:
    facts = arm.server
    if facts is None:
        return
    told = memory(model.gpu, demand(model.name, model.weights, arm, model.gpus))
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


def _setting(model: Model, arm: Arm, rows: Sequence[Row]) -> tuple[roofline.Setting, float]:
    """What these rows asked of a server, and the tokens a step that they had."""
    small, params = draft(model.name, arm.method)
    answers = max(1, sum(row.requests - row.errors for row in rows))
    asked, made = (
        sum(getattr(row, what) or 0 for row in rows) for what in ("input_tokens", "output_tokens")
    )
    lengths = [row.acceptance.tokens_per_step.value or 1.0 for row in rows]
    setting = roofline.Setting(
        model.gpu, model.gpus, shape(model.name, model.weights), "auto", small, params, model.gpus,
        arm.method or "none", round(asked / answers), round(made / answers),
        arm.method == "draft_model",
    )  # fmt: skip
    return setting, sum(lengths) / len(lengths)


def crossings(model: Model, result: Result, cost: Mapping[str, Any]) -> Iterator[Line]:
    """The batch from which on a draft is slower, where one was found between measured ones."""
    arms = {arm.name: arm for arm in result.arms}
    base = next((arm.name for arm in result.arms if arm.method == "none"), None)
    if base is None or len(arms) == 1:
        return
    for drafting, dataset, place in compare(result, baseline=base).crossovers:
        arm = arms[drafting]
        if place.between is None or not arm.k or arm.method not in METHODS:
            continue
        rows = [row for row in result.rows if (row.arm, row.dataset) == (drafting, dataset)]
        setting, length = _setting(model, arm, [r for r in rows if r.usable])
        found = {
            "by the roofline": roofline.crossover(setting, arm.k, length, MOST),
            "by the kernels' curve": _turns(cost, arm.k, length)
            if arm.method == "eagle3"
            else None,
        }
        for how, batch in found.items():
            if batch is not None:
                what = f"crossover {how} ({dataset})"
                yield Line(what, drafting, None, float(batch), place.place, "requests", None)


def _turns(cost: Mapping[str, Any], k: int, length: float) -> float | None:
    """Where measured steps and drafts make K as fast as none, interpolated by log batch."""
    gains = []
    for batch, row in (cost.get("ms") or {}).items():
        plain, verify, draft_ms = (
            row.get("0"),
            row.get(str(k)),
            cost["draft_ms_per_token"].get(batch),
        )
        if None not in (plain, verify, draft_ms):
            gains.append((math.log(int(batch)), length * plain / (verify + k * draft_ms)))
    for (low, was), (high, now) in itertools.pairwise(reversed(sorted(gains))):
        if was < 1 <= now:  # from the top down: the last batch that it pays at
            return math.exp(high + (low - high) * (now - 1) / (now - was))
    return None


def _speed(model: Model, arm: Arm, row: Row) -> Line:
    setting, length = _setting(model, arm, [row])
    assert row.batch is not None
    k = arm.k or 0
    estimated = roofline.tokens_per_s(setting, row.batch, k, length if k else 1.0)
    goal = SPEED_GOAL if row.batch <= 32 else None
    measured = row.output_tokens_per_s.value or 0.0
    where = f"tokens/s ({row.dataset}, repeat {row.repeat})"
    return Line(where, arm.name, row.batch, estimated, measured, "/s", goal)


def curves(file: Path) -> dict[str, Mapping[str, Any]]:
    """What the kernel check measured of whole steps, by the name of the check.

    Raises:
        UsageError: it is no result of the kernel check, or holds no such curve.
    """
    what = "a result of the kernel check (results/kernels-cost.….json)"
    found = {
        str(check.get("name")): check["data"]
        for check in read_object(file, what).get("checks") or []
        if isinstance(check, Mapping)
        and isinstance(check.get("data"), Mapping)
        and {"ms", "draft_ms_per_token"} <= set(check["data"])
    }
    if not found:
        raise UsageError(
            f"--cost {file}: no cost curve in it",
            hint="benchmarks/lab/run check -- --only cost.8b-bf16 makes one",
        )
    return found


Beside = list[tuple[str, Line]]


def beside(benches: Sequence[Given], costs: Mapping[str, Mapping[str, Any]]) -> Beside:
    """The lines of all, each with the name that its bench was given."""
    made: Beside = []
    for each in benches:
        model, result = each.model, each.result
        cost = costs.get(f"cost.{named(model.name, model.weights, model.gpus)}", {})
        made += [(each.named, line) for line in lines(model, result, each.held)]
        made += [(each.named, line) for line in crossings(model, result, cost)]
    return made


def document(made: Beside, fitted: str = FITTED) -> dict[str, Any]:
    """As `specctl report --estimates` reads it; `fitted`: what was fitted to what."""
    told = [{"shape": name, "off": line.off, **asdict(line)} for name, line in made]
    return {"schema": "specctl.lab.estimate/v1", "fitted": fitted, "lines": told}


def table(made: Beside) -> Iterator[str]:
    """A line each, under its heading, and how many goals were met."""
    rows = [("shape", "arm", "what", "batch", "estimated", "measured", "unit", "off", "goal")]
    for name, line in made:
        mark = "" if line.goal is None else "MISSED" if line.missed else "ok"
        numbers = (f"{line.estimated:.2f}", f"{line.measured:.2f}")
        batch = "" if line.batch is None else str(line.batch)
        rows.append(
            (name, line.arm, line.what, batch, *numbers, line.unit, f"{line.off:+.1%}", mark)
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = {3, 4, 5, 7}
    for row in rows:
        cells = (
            text.rjust(width) if n in right else text.ljust(width)
            for n, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
    judged = sum(line.goal is not None for _, line in made)
    missed = [f"{name} {line.arm} {line.what}" for name, line in made if line.missed]
    told = f"; missed: {', '.join(missed)}" if missed else ""
    yield f"{judged - len(missed)} of {judged} goals met{told}"


def main(arguments: list[str]) -> int:
    """As the module says.

    Raises:
        UsageError: a file is not what it should be.
    """
    parser = Parser("estimate", str(__doc__))
    parser.add_argument("bench", nargs="+", metavar=FORM)
    parser.add_argument("--json", type=Path, metavar="FILE", help="for specctl report --estimates")
    parser.add_argument(
        "--cost", type=Path, metavar="FILE", help="the kernel check's, of benchmarks/lab/run check"
    )
    parser.add_argument(
        "--fitted", type=Path, metavar="FILE", help="what of these estimates was fitted to what"
    )
    asked = parser.parse_args(arguments)
    costs = curves(asked.cost) if asked.cost else {}
    fitted = asked.fitted.read_text(encoding="utf-8").strip() if asked.fitted else FITTED
    benches = given(asked.bench)
    wanted = {f"cost.{named(x.model.name, x.model.weights, x.model.gpus)}" for x in benches}
    if costs and not wanted & set(costs):
        raise UsageError(
            f"--cost {asked.cost}: no curve {' or '.join(sorted(wanted))} in it, but "
            f"{', '.join(costs)}"
        )
    made = beside(benches, costs)
    for text in table(made):
        print(text)
    for name in sorted(wanted - set(costs)) if costs else ():
        print(f"estimate: no curve {name} in {asked.cost}", file=sys.stderr)
    if asked.json:
        asked.json.write_text(json.dumps(document(made, fitted)), encoding="utf-8")
    return int(any(line.missed for _, line in made))


if __name__ == "__main__":
    run("estimate", main)
