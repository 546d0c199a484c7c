"""PromQL of the alerts."""

from __future__ import annotations

import json

from speccli.core.engines.base import Adapter
from speccli.core.engines.registry import ADAPTERS
from speccli.core.sources.derived import ACCEPTANCE, AT, bare
from speccli.core.sources.promql import RULE_WINDOW_S

_WINDOW = f"{RULE_WINDOW_S:g}"
_BUSY_S = "2m"
_SEEN = "1h"


def enough(draft_tokens: float) -> str:
    """Where so many tokens were drafted in the window."""
    return f"{bare('specctl:draft_tokens:rate2m')} * {_WINDOW} >= {draft_tokens:g}"


def not_active(tokens: float) -> str:
    """Tokens beyond each request's first are generated, and none is drafted."""
    made = bare('specctl:generation_tokens:rate2m{engine_kind="vllm"}')
    first = bare('specctl:ttft_count:rate2m{engine_kind="vllm"}')
    drafts = bare("specctl:drafts:rate2m")
    return f"({made} - {first}) * {_WINDOW} >= {tokens:g} unless {drafts} > 0"


def cliff(ratio: float, first: float, draft_tokens: float) -> str:
    """Position 0 is in order, position 1 is not."""
    one = f'sum without (position) ({AT}{{position="1"}})'
    zero = f'sum without (position) ({AT}{{position="0"}})'
    return f"{one} / {zero} < {ratio:g} and {zero} >= {first:g} and {enough(draft_tokens)}"


def drift_of_baseline(
    baseline: str, margin: float, draft_tokens: float, model: str | None = None
) -> str:
    """Half an hour's acceptance against a constant, of that model alone where one is given."""
    now = f"avg_over_time({ACCEPTANCE}{picked(model)}[30m])"
    return f"{now} < scalar({baseline}) - {margin:g} and {enough(draft_tokens)}"


def picked(model: str | None) -> str:
    """The matcher of one model; empty for all."""
    return f"{{model_name={json.dumps(model, ensure_ascii=False)}}}" if model else ""


def drift_of_day(draft_tokens: float) -> str:
    """Half an hour's acceptance against the day before it, once there are six hours of that."""
    now = f"avg_over_time({ACCEPTANCE}[30m])"
    day = f"{ACCEPTANCE}[1d] offset 1h"
    usual = f"avg_over_time({day}) - 3 * clamp_min(stddev_over_time({day}), 0.02)"
    return f"{now} < {usual} and count_over_time({day}) >= 720 and {enough(draft_tokens)}"


def stalled(kind: str) -> str:
    """An engine has work all the time, and its tokens do not grow."""
    adapter = _adapter(kind)
    by = identity_of(adapter)
    running = _least(adapter, "running")
    waiting = _least(adapter, "waiting")
    names = next(c.names for c in adapter.counters if c.field == "generation_tokens")
    grown = " or ".join(f"increase({name}[{_BUSY_S}])" for name in names)
    busy = f"max by ({by}) ({running}) + max by ({by}) ({waiting}) > 0"
    return f"{busy} and sum by ({by}) ({grown}) == 0"


def down() -> str:
    """A target that had an engine, and does not answer."""
    return f"up == 0 and on (job,instance) ({was_engine()})"


def missing() -> str:
    """A target that had an engine, and answers without one."""
    here = " or ".join(name for name in _running())
    return f"up == 1 unless on (job,instance) ({here}) and on (job,instance) ({was_engine()})"


def idle() -> str:
    """Nothing to do, nothing done."""
    made = bare("specctl:generation_tokens:rate2m")
    busy = f"{bare('specctl:requests_running:sum')} + {bare('specctl:requests_waiting:sum')}"
    return f"{made} == 0 and {busy} == 0"


def was_engine() -> str:
    """Targets that had an engine within the last hour."""
    return " or ".join(f"max_over_time({name}[{_SEEN}])" for name in _running())


def _running() -> list[str]:
    return [
        next(gauge.names[0] for gauge in adapter.gauges if gauge.field == "running")
        for adapter in ADAPTERS
    ]


def _least(adapter: Adapter, field: str) -> str:
    names = next(gauge.names for gauge in adapter.gauges if gauge.field == field)
    return " or ".join(f"min_over_time({name}[{_BUSY_S}])" for name in names)


def _adapter(kind: str) -> Adapter:
    return next(adapter for adapter in ADAPTERS if adapter.kind == kind)


def identity_of(adapter: Adapter) -> str:
    """Labels that tell one engine from another."""
    return ",".join(("job", "namespace", "instance", *adapter.engine_labels, "model_name"))
