"""What a training says of itself: `specctl.training/v1`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from speccli.core.bench.results import Row
from speccli.core.training.flow import Outcome
from speccli.core.training.run import Told
from speccli.core.values import Number

SCHEMA = "specctl.training/v1"


def document(outcome: Outcome) -> dict[str, Any]:
    """The whole of it."""
    return {
        "schema": SCHEMA,
        "target": outcome.wanted.target,
        "method": outcome.wanted.method,
        "head": str(outcome.head),
        "job": str(outcome.prepared.file),
        "prompts": outcome.prepared.trained_on,
        "stages": {
            name: {k: v for k, v in facts.items() if k != "asked"}
            for name, facts in outcome.stages.items()
        },
        "findings": [asdict(verdict) for verdict in outcome.verdicts],
        "acceptance": [_row(row) for row in rows(outcome)],
    }


def rows(outcome: Outcome) -> tuple[Row, ...]:
    """What was measured: a row a head and test."""
    return outcome.acceptance.rows if outcome.acceptance else ()


def _row(row: Row) -> dict[str, Any]:
    acceptance = row.acceptance
    return {
        "head": row.arm,
        "test": row.dataset,
        "state": row.state,
        "reason": row.reason,
        "requests": row.requests,
        "rate": _number(acceptance.rate),
        "length": _number(acceptance.length),
        "by_position": [_number(n) for n in acceptance.by_position],
        "tokens_per_step": _number(acceptance.tokens_per_step),
        "source": acceptance.source,
    }


def _number(number: Number) -> dict[str, Any]:
    return asdict(number)


def line(told: Told) -> str | None:
    """One event as a line that stays; None for what only moves on."""
    if told.event == "kept":
        return f"{told.stage}: done before, kept"
    if told.event == "said":
        return f"{told.stage}: {_words(told.facts)}"
    return None


def moving(told: Told) -> str:
    """How far a stage has come, and how long yet."""
    facts = told.facts
    share = f"{100 * float(facts.get('share', 0)):.0f} %"
    eta = facts.get("eta_s")
    left = f", {_time(float(eta))} left" if isinstance(eta, int | float) else ""
    more = {k: v for k, v in facts.items() if k not in {"event", "stage", "share", "eta_s"}}
    words = f" · {_words(more)}" if more else ""
    return f"{told.stage}: {share}{left}{words}"


def _words(facts: Mapping[str, Any]) -> str:
    skipped = {"event", "stage"}
    return ", ".join(
        f"{key.replace('_', ' ')} {_value(value)}"
        for key, value in facts.items()
        if key not in skipped and value not in ({}, None)
    )


def _value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "(" + _words(value) + ")"
    if isinstance(value, list):
        return " ".join(_value(v) for v in value)
    return str(value)


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
