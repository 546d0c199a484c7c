"""PromQL about single engines: how each has done since yesterday, and beside its fellows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from speccli.core.alert.rules.expressions import identity_of, picked, was_engine
from speccli.core.baseline.model import BatchSpeed
from speccli.core.engines.registry import ADAPTERS
from speccli.core.sources.promql import RULE_WINDOW_S, duration

ACCEPTANCE = "specctl:engine_acceptance:ratio10m"
BATCH = "specctl:engine_batch_size:ratio2m"
SPEED = "specctl:engine_output_tokens:per_second"
PLAIN = "specctl:engine_plain_output_tokens:per_second"
EVERY_S = 300.0
"""How often acceptance of single engines is recorded: it is asked for by the day."""
_LOOK = "10m"
_SEEN = 216
"""Of the 288 values of a day: an engine that was idle for a quarter of it is not judged."""
_ERRORS = 1.2
"""Standard deviations of a day's values that make five standard errors of two quarters' means: a
quarter has 36 values that do not overlap, and 5 √(2/36) = 1.2."""
_STEADY = 0.15
"""Share of the whole fall that each quarter must bring, as for a check: a step is no slide."""
_COUNTING = next(a for a in ADAPTERS if any(c.field == "accepted_tokens" for c in a.counters))
"""The engine that exports what is drafted and accepted as counters."""
_ENGINE = identity_of(_COUNTING)
_LEVEL = "namespace,pool,model_name"
"""Pools of one model may differ on purpose, where a label tells them apart."""


def _series(field: str, of: str = "") -> list[str]:
    """The names of a counter, or of a histogram's count, newest first."""
    for counter in _COUNTING.counters:
        if counter.field == field:
            return [f"{name}{of}" for name in counter.names]
    histogram = next(each for each in _COUNTING.histograms if each.field == field)
    return [f"{name}_count{of}" for name in histogram.names]


def _grown(field: str, how: str, window: str, of: str = "") -> str:
    each = " or ".join(f"{how}({name}[{window}])" for name in _series(field, of))
    return f"sum by ({_ENGINE}) ({each})"


def acceptance(draft_tokens: float) -> str:
    """An engine's acceptance over ten minutes in which enough was drafted."""
    accepted = _grown("accepted_tokens", "increase", _LOOK)
    return f"{accepted} / ({_grown('draft_tokens', 'increase', _LOOK)} >= {draft_tokens:g})"


def slide(fall: float) -> str:
    """The same process lost acceptance in each quarter of the day, and much of it in all."""
    quarters = [f"avg_over_time({ACCEPTANCE}[6h] offset {h}h)" for h in (18, 12, 6)]
    quarters.append(f"avg_over_time({ACCEPTANCE}[6h])")
    lost = f"({quarters[0]} - {quarters[-1]})"
    # From the middle of the first quarter to that of the last are three quarters of a day.
    asked = [f"{lost} > {0.75 * fall:g}"]
    asked.append(f"{lost} > {_ERRORS:g} * stddev_over_time({ACCEPTANCE}[1d])")
    asked += [
        f"{before} - {after} > {_STEADY:g} * {lost}"
        for before, after in zip(quarters, quarters[1:], strict=False)
    ]
    asked.append(f"count_over_time({ACCEPTANCE}[1d]) >= {_SEEN}")
    restarts = _grown("accepted_tokens", "resets", "1d")
    return f"{' and '.join(asked)} unless {restarts} > 0"


def batch_records(plain: Sequence[BatchSpeed], model: str | None) -> Iterator[tuple[str, str]]:
    """Name and expression: an engine's batch size, its speed, and the plain arm's at that size."""
    window, of = duration(RULE_WINDOW_S), picked(model)
    first, later = (_grown(field, "rate", window, of) for field in ("ttft", "itl"))
    yield BATCH, f"({first} + {later}) / ({_grown('steps', 'rate', window, of)} > 0)"
    yield SPEED, _grown("generation_tokens", "rate", window, of)
    yield PLAIN, " or ".join(_speeds(plain))


def _speeds(plain: Sequence[BatchSpeed]) -> Iterator[str]:
    """Between two sizes that were measured, interpolated by the logarithm of the size."""
    rows = sorted(plain, key=lambda row: row.batch)
    if len(rows) == 1:
        low, high = 0.8 * rows[0].batch, 1.25 * rows[0].batch
        yield f"0 * ({BATCH} >= {low:g} <= {high:g}) + {rows[0].output_tokens_per_s:g}"
    for a, b in zip(rows, rows[1:], strict=False):
        if b.batch > a.batch:
            steep = (b.output_tokens_per_s - a.output_tokens_per_s) / math.log(b.batch / a.batch)
            here = f"({BATCH} >= {a.batch:g} <= {b.batch:g})"
            yield f"{a.output_tokens_per_s:g} + {steep:.6g} * ln({here} / {a.batch:g})"


def collapsed(batch: float, share: float) -> str:
    """Slower than the plain arm at a batch size that is large."""
    return f"{SPEED} < {share:g} * {PLAIN} and {BATCH} >= {batch:g}"


def skewed() -> str:
    """Engines of one model of which some draft, or draft more tokens, or are another engine."""
    positions = " or ".join(_series("accepted_at"))
    drafted = f"count by ({_ENGINE},pool) ({positions})"
    engines = [
        f"count by ({_LEVEL}) (max by ({identity_of(a)},pool) ({_gauge(a.kind)}))" for a in ADAPTERS
    ]
    lengths = f"max by ({_LEVEL}) ({drafted}) > min by ({_LEVEL}) ({drafted})"
    of_counting = engines[ADAPTERS.index(_COUNTING)]
    return (
        f"{lengths} or {of_counting} > count by ({_LEVEL}) ({drafted}) or {' and '.join(engines)}"
    )


def _gauge(kind: str) -> str:
    adapter = next(a for a in ADAPTERS if a.kind == kind)
    return next(gauge.names[0] for gauge in adapter.gauges if gauge.field == "running")


def unlike(model: str | None, k: int | None) -> str | None:
    """Engines that draft another number of tokens, or none of the baseline's model at all.

    None where the baseline tells neither.
    """
    parts = []
    if k is not None:
        positions = " or ".join(_series("accepted_at", picked(model)))
        parts.append(f"count by ({_ENGINE}) ({positions}) != {k}")
    if model:
        parts.append(f"absent(specctl:requests_running:sum{picked(model)})")
    return " or ".join(parts) or None


def flapping() -> str:
    """A target that had an engine, and whose scrapes fail on and off: one outage is two changes."""
    return f"changes(up[15m]) >= 4 and on (job,instance) ({was_engine()})"
