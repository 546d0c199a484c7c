"""`report.json`: the report for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from speccli.core.bench.results import Spread
from speccli.core.report import words
from speccli.core.report.build import Accepted, Report, Waiting
from speccli.core.views import bench as view
from speccli.core.views.status import number

SCHEMA = "specctl.report/v1"


def document(report: Report) -> dict[str, Any]:
    """The whole object."""
    result = report.result
    return {
        "schema": SCHEMA,
        "made": report.made.isoformat(timespec="seconds"),
        "files": list(report.files),
        "kind": report.kind,
        "simulated": result.simulated,
        "stand_in": result.stand_in,
        "title": words.title(report),
        "answer": words.answer(report),
        "actions": words.actions(report),
        "comparison": view.compare(report.comparison) if report.comparison else None,
        "why_no_comparison": report.why_no_comparison,
        "latency": [_waiting(each) for each in report.waiting],
        "acceptance": [_accepted(each) for each in report.acceptance],
        "cost": view.economics(report.economics),
        "schedule": view.schedule(report.schedule) if report.schedule else None,
        "lossless": view.lossless(report.lossless) if report.lossless else None,
        "provenance": asdict(result.provenance),
        "load": asdict(result.load),
        "datasets": [
            {"name": d.name, "source": d.source, "sha256": d.sha256, "prompts": d.prompts}
            for d in result.datasets
        ],
        "arms": [asdict(arm) for arm in result.arms],
    }


def _waiting(each: Waiting) -> dict[str, Any]:
    return {
        "arm": each.arm,
        "batch": each.load[0],
        "rate": each.load[1],
        "requests": each.requests,
        "output_tokens_per_s": each.tokens_per_s,
        "ttft_s": _spread(each.ttft_s),
        "tpot_s": _spread(each.tpot_s),
        "e2e_s": _spread(each.e2e_s),
    }


def _spread(spread: Spread) -> dict[str, Any]:
    return asdict(spread)


def _accepted(each: Accepted) -> dict[str, Any]:
    return {
        "arm": each.arm,
        "dataset": each.dataset,
        "source": each.source,
        "rate": number(each.rate),
        "length": number(each.length),
        "by_position": [number(p) for p in each.by_position],
        "tokens_per_step": number(each.tokens_per_step),
        "lowest_and_highest_rate": list(each.loads) if each.loads else None,
    }
