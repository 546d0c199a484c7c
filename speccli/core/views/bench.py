"""Comparisons, schedules and losslessness of a bench as plain values, and as words for tables."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from speccli.core.bench import lossless as lossless_
from speccli.core.bench.compare import Cell, Comparison
from speccli.core.bench.economics import Economics
from speccli.core.bench.lossless import Lossless, Share
from speccli.core.bench.pairing import Load, Tail99
from speccli.core.bench.results import Statistic
from speccli.core.bench.schedule import Change, Schedule
from speccli.core.views import format as fmt
from speccli.core.views.status import number

COMPARE_SCHEMA = "specctl.compare/v1"
SCHEDULE_SCHEMA = "specctl.schedule/v1"
LOSSLESS_SCHEMA = "specctl.lossless/v1"
_NARROW = "\N{NO-BREAK SPACE}"
"""Holds an interval together where a table breaks its cells."""


def compare(comparison: Comparison) -> dict[str, Any]:
    """`specctl bench compare -o json`."""
    result = comparison.result
    return {
        "schema": COMPARE_SCHEMA,
        "name": result.name,
        "simulated": result.simulated,
        "stand_in": result.stand_in,
        "baseline": comparison.baseline,
        "target_speedup": comparison.target,
        "cells": [_cell(each) for each in comparison.cells],
        "verdicts": [
            {
                "arm": arm,
                **_load(load),
                "verdict": comparison.word(arm, load),
            }
            for arm in comparison.arms
            for load in comparison.loads
            if comparison.of(arm, load)
        ],
        "crossovers": [
            {"arm": arm, "dataset": dataset, **found.to_json()}
            for arm, dataset, found in comparison.crossovers
        ],
        "excluded": [
            {"row": each.label, "state": each.state, "reason": each.reason}
            for each in comparison.excluded
        ],
        "notes": list(comparison.notes),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "arm": cell.arm,
        "dataset": cell.dataset,
        "batch": cell.batch,
        "rate": cell.rate,
        "repeats": cell.repeats,
        "requests": {"without": cell.requests[0], "with": cell.requests[1]},
        "measure": cell.measure,
        "speedup": asdict(cell.speedup),
        "verdict": cell.verdict.word,
        "reason": cell.verdict.reason,
        "throughput": asdict(cell.throughput),
        "tpot": asdict(cell.tpot),
        "ttft": asdict(cell.ttft),
        "tpot_p99_s": _tail(cell.tpot_p99),
        "ttft_p99_s": _tail(cell.ttft_p99),
        "output_tokens_per_s": {"without": cell.tokens_per_s[0], "with": cell.tokens_per_s[1]},
    }


def _tail(tail: Tail99) -> dict[str, Any]:
    return {"without": tail.without, "with": tail.with_, "delta": asdict(tail.delta)}


def _load(load: Load) -> dict[str, Any]:
    return {"batch": load[0], "rate": load[1]}


def schedule(found: Schedule) -> dict[str, Any]:
    """`specctl bench schedule -o json`."""
    return {
        "schema": SCHEDULE_SCHEMA,
        "method": found.method,
        "draft": found.draft,
        "speculative_config": found.config(),
        "k_schedule": [list(row) for row in found.rows],
        "one_k": found.alone,
        "refused": found.refused,
        "measured": [
            {
                "batch": each.batch,
                "output_tokens_per_s": {str(k): v for k, v in each.tokens_per_s.items()},
                "best_k": each.best,
                "k": each.chosen,
            }
            for each in found.measured
        ],
        "changes": [_change(each) for each in found.changes],
        "checked": [{"batch": batch, "k": k} for batch, k in found.lookup],
        "notes": list(found.notes),
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "last_batch": change.last,
        "k_until": change.larger,
        "k_after": change.smaller,
        "measured_below": change.below,
        "measured_above": change.above,
        "gain_below": asdict(change.at_below),
        "gain_above": asdict(change.at_above),
        "confirm_at": list(change.confirm),
    }


def lossless(found: Lossless) -> dict[str, Any]:
    """`specctl bench lossless -o json`."""
    return {
        "schema": LOSSLESS_SCHEMA,
        "baseline": found.baseline,
        "baseline_itself": _share(found.baseline_itself),
        "why_none": found.why_none,
        "arms": [
            {
                "arm": arm.name,
                "beside_baseline": _share(arm.beside),
                "itself": _share(arm.itself),
                "texts": None if arm.texts is None else _share(arm.texts),
                "unlocated": arm.unlocated,
                "kinds": dict(arm.kinds),
                "partings": [
                    {
                        "prompt": each.prompt,
                        "kind": each.parting.kind,
                        **asdict(each.parting),
                    }
                    for each in arm.partings
                ],
            }
            for arm in found.arms
        ],
    }


def _share(share: Share) -> dict[str, Any]:
    return {"same": share.same, "pairs": share.pairs, "differing": share.differing}


def economics(found: Economics) -> dict[str, Any]:
    """Costs by arm and load, and hosted models beside the cheapest."""
    return {
        "gpu_hour_usd": found.gpu_hour_usd,
        "why_none": found.why_none,
        "prices": {"source": found.priced.package, "version": found.priced.version},
        "levels": [
            {
                "arm": level.arm,
                **_load(level.load),
                "output_tokens_per_s": asdict(level.tokens_per_s),
                "input_per_output": number(level.input_per_output),
                "usd_per_1m_output": number(level.usd_per_1m_output),
                "usd_per_1m_total": number(level.pool.cost_per_1m_total_usd),
            }
            for level in found.levels
        ],
        "hosted": [
            {
                "arm": arm,
                "provider": each.price.provider,
                "model": each.price.model,
                "output_per_1m_usd": each.tier.output_usd,
                "input_per_1m_usd": each.tier.input_usd,
                "usd_per_1m_output_in_this_mix": number(each.usd_per_1m_output),
                "ratio": number(each.ratio),
                "break_even_utilisation": number(each.break_even_utilisation),
            }
            for arm, compared in found.hosted.items()
            for each in compared
        ],
    }


# ---- words ----


def load_words(load: Load) -> str:
    """`8` for a batch, `4/s` for a rate."""
    batch, rate = load
    return f"{batch}" if batch is not None else f"{rate:g}/s"


def unlocated(arm: lossless_.Arm) -> str:
    """How many answers differ of which nobody can say where."""
    words = "answers differ" if arm.unlocated > 1 else "answer differs"
    return f"{arm.unlocated} {words}, where is not known (bench run --keep-texts)"


def doubts(comparison: Comparison) -> list[str]:
    """Why verdicts are not what their intervals seem to say, a line each."""
    return [
        f"{cell.arm}, {cell.dataset}, {load_words(cell.load)}: {cell.verdict.word}, "
        f"{cell.verdict.reason}"
        for cell in comparison.doubted
    ]


def times(value: Statistic) -> str:
    """`1.54 [1.49, 1.60]`."""
    if value.value is None:
        return "—"
    told = f"{value.value:.2f}"
    if value.low is None or value.high is None:
        return told
    return f"{told} {interval(value)}"


def interval(value: Statistic) -> str:
    """`[1.49, 1.60]`; the value alone where there is no interval."""
    if value.value is None:
        return "—"
    if value.low is None or value.high is None:
        return f"{value.value:.2f}"
    return f"[{value.low:.2f},{_NARROW}{value.high:.2f}]"


def milliseconds(value: float | None) -> str:
    """`6.63`, `142`: three digits, milliseconds without the unit."""
    return "—" if value is None else _digits(1000 * value, 3)


def delta_ms(value: Statistic) -> str:
    """`−3.2 [−3.6, −2.8]`, milliseconds, as exact as its interval is wide."""
    if value.value is None:
        return "—"
    ends = [1000 * each for each in (value.value, value.low, value.high) if each is not None]
    places = _places(max(map(abs, ends)), 2)
    told = [fmt.signed(each, places) for each in ends]
    return f"{told[0]} [{told[1]},{_NARROW}{told[2]}]" if len(told) == 3 else told[0]


def _digits(value: float, significant: int) -> str:
    return f"{value:,.{_places(value, significant)}f}"


def _places(value: float, significant: int) -> int:
    """Decimals that leave so many significant digits; none left of the point is rounded away."""
    if value == 0 or not math.isfinite(value):
        return 0
    return min(max(significant - 1 - math.floor(math.log10(abs(value))), 0), 3)


def share_words(share: Share) -> str:
    """`12 of 15 the same`."""
    return f"{share.same} of {share.pairs} the same" if share.pairs else "—"
