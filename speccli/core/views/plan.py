"""A plan and a pair's verdicts as plain values: `specctl.plan/v1`, `specctl.pair/v1`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from speccli.core.errors import ExitCode
from speccli.core.plan import Plan
from speccli.core.plan.guide import guide
from speccli.core.preflight import Pair, Verdict, worst
from speccli.core.recipes.load import plain
from speccli.core.sizing import roofline

if TYPE_CHECKING:
    from speccli.core.plan.measured import Measured

PLAN_SCHEMA = "specctl.plan/v1"
PAIR_SCHEMA = "specctl.pair/v1"
_EXIT = {"critical": ExitCode.CRITICAL, "warning": ExitCode.WARNING, "unknown": ExitCode.UNKNOWN}


def exit_code(verdicts: Iterable[Verdict]) -> ExitCode:
    """By the worst finding: critical 2, warning 1, unknown 3, else 0."""
    return _EXIT.get(worst(list(verdicts)) or "info", ExitCode.OK)


def finding(verdict: Verdict) -> dict[str, Any]:
    """One finding."""
    return {
        "code": verdict.code,
        "rule": verdict.rule,
        "severity": verdict.severity,
        "subject": verdict.subject,
        "evidence": verdict.evidence,
        "cause": verdict.cause,
        "action": verdict.action,
        "thread": verdict.thread or None,
        "since": None,
    }


def pair(pair_: Pair, verdicts: list[Verdict]) -> dict[str, Any]:
    """`specctl draft check -o json`."""
    gravest = worst(verdicts)
    return {
        "schema": PAIR_SCHEMA,
        "verdict": "ok" if gravest in {None, "info"} else gravest,
        "target": pair_.target.name,
        "draft": pair_.draft.name if pair_.draft else None,
        "method": pair_.method,
        "findings": [finding(verdict) for verdict in verdicts],
    }


def plan(plan_: Plan) -> dict[str, Any]:
    """`specctl plan -o json`."""
    graphs = plan_.graphs
    rows, source = _schedule(plan_)
    return {
        "schema": PLAN_SCHEMA,
        "recipe": plain(plan_.facts.recipe),
        "command": list(plan_.line.command),
        "speculative_config": dict(plan_.line.speculative) if plan_.line.speculative else None,
        "memory": _memory(plan_),
        "cuda_graphs": [
            {"batch": row.batch, "tokens": row.tokens, "captured": row.captured, "mode": row.mode}
            for row in (graphs.rows if graphs else ())
        ],
        "needed_capture_size": graphs.needed if graphs else None,
        "capture_sizes": list(graphs.used.sizes) if graphs else None,
        "runner": plan_.facts.graph_rules.runner if plan_.facts.graph_rules else None,
        "k_schedule": [list(row) for row in rows] if rows else None,
        "k_schedule_source": source,
        "estimate": _estimate(plan_),
        "measured": _measured(plan_.measured) if plan_.measured else None,
        "guide": [
            {"when": each.when, "use": each.use, "why": each.why, "applies": each.applies}
            for each in guide(plan_)
        ],
        "findings": [finding(verdict) for verdict in plan_.verdicts],
    }


def _schedule(
    plan_: Plan,
) -> tuple[Sequence[tuple[int, int, int]] | None, str | None]:
    """The recipe's own, else what was measured, else what is estimated; and which it is."""
    told = {
        "recipe": plan_.facts.recipe.draft.schedule,
        "measured": plan_.measured.schedule if plan_.measured else None,
        "estimate": plan_.estimate.schedule if plan_.estimate else None,
    }
    return next(((rows, source) for source, rows in told.items() if rows), (None, None))


def _measured(found: Measured) -> dict[str, Any]:
    return {
        "arm": found.arm,
        "baseline": found.baseline,
        "rows": [
            {
                "batch": row.batch,
                "tokens_per_s_without": row.tokens_per_s_without,
                "tokens_per_s": row.tokens_per_s,
                "speedup": asdict(row.speedup),
                "verdict": row.verdict,
                "estimate": asdict(row.estimated),
                "estimate_error": {
                    "tokens_per_s_without": row.error_without,
                    "tokens_per_s": row.error,
                    "speedup": row.error_speedup,
                },
            }
            for row in found.rows
        ],
        "crossover": found.crossover.to_json() if found.crossover else None,
        "k_schedule": [list(row) for row in found.schedule] if found.schedule else None,
        "notes": list(found.notes),
        "unlike": found.unlike,
    }


def _memory(plan_: Plan) -> dict[str, Any] | None:
    memory = plan_.memory
    if memory is None:
        return None
    return {
        "gpu_total": memory.total,
        "budget": memory.budget,
        **{_key(item.name): item.bytes for item in memory.items},
        "kv_cache": memory.kv_cache,
        "kv_bytes_per_token": memory.kv_per_token,
        "kv_bytes_per_request": memory.kv_per_request,
        "kv_tokens": memory.kv_tokens,
        "concurrent_requests": memory.concurrent_requests,
        "concurrent_at": {str(length): count for length, count in memory.concurrent_at},
        "draft_costs_kv_tokens": plan_.draft_costs_tokens,
        "formulas": {_key(item.name): item.formula for item in memory.items},
        "estimated": [_key(item.name) for item in memory.items if item.estimate],
    }


def _key(name: str) -> str:
    return name.lower().replace(", ", "_").replace(" ", "_")


def _estimate(plan_: Plan) -> dict[str, Any] | None:
    estimate = plan_.estimate
    if estimate is None:
        return None
    known, shape = estimate.length is not None, plan_.facts.target_shape
    levels = [
        {
            "batch": level.batch,
            "tokens_per_s_without": round(level.tokens_per_s_without, 1),
            "tokens_per_s": round(level.tokens_per_s, 1) if known else None,
            "speedup": round(level.speedup, 3) if known else None,
            "best_k": level.best_k if known else None,
            "break_even_length": round(estimate.break_even[place], 2)
            if estimate.break_even
            else None,
        }
        for place, level in enumerate(estimate.levels)
    ]
    return {
        "acceptance_length": round(estimate.length, 3) if estimate.length else None,
        "crossover_batch": estimate.crossover,
        "levels": levels,
        "error": roofline.error_of(shape, plan_.facts.gpu) if shape else None,
    }


def command_lines(command: Sequence[str]) -> str:
    """A command for a shell, one flag a line."""
    lines: list[list[str]] = [[]]
    for word in command:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n  ".join(" ".join(words) for words in lines)
