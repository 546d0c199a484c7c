"""What specctl's recording rules record, and how it is asked for.

`make rules` writes manifests/monitoring/recording-rules.yaml from here. A fleet's series are
summed once every 30 s instead of at every look; the numbers are the same within what a window that
moves in steps of 30 s allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from speccli.core.engines.base import Adapter
from speccli.core.engines.registry import ADAPTERS
from speccli.core.sources.derived import derived_rules
from speccli.core.sources.promapi import Series
from speccli.core.sources.promql import (
    INFO,
    LEVEL,
    RULE_INTERVAL_S,
    RULE_OFFSET_S,
    RULE_WINDOW_S,
    RULES_VERSION,
    Fleet,
    Matcher,
    Selector,
    duration,
)

_OURS = f'{INFO}{{version="{RULES_VERSION}"}}'
_OTHERS = f'{INFO}{{version!="{RULES_VERSION}"}}'
_LATE_S = 2 * RULE_INTERVAL_S
"""How much older than the present the newest evaluation may be."""
_LOOKBACK_S = 300.0
"""How old a value may be that Prometheus still gives as the present one."""
_HEAD = """\
# Recording rules of specctl: speculation, latency and load, summed by namespace and model.
# Written by `make rules` from speccli/core/sources/recorded.py; do not edit.
# `specctl --prometheus` uses them when they are there, and asks the same expressions otherwise.
"""


def recorded(selector: Selector, kind: str, window_s: float) -> str:
    """Everything the rules recorded of a kind of engine: growth per second, and gauges."""
    kind_is = Matcher("engine_kind", "=", kind)
    rates = selector.braces(Matcher("__name__", "=~", "specctl:.+:rate2m"), kind_is)
    now = selector.braces(Matcher("__name__", "=~", "specctl:.+:(sum|max|count)"), kind_is)
    by = "sum by (slot,position,le)"
    if window_s > RULE_WINDOW_S:
        # A rate at t speaks of the two minutes before it: the mean of the rates of a window less
        # two minutes speaks of the window. Series that were not there all the time count as zero.
        span = duration(window_s - RULE_WINDOW_S)
        counted = f"count_over_time({INFO}{Selector().braces(kind_is)}[{span}])"
        # Rates go on where the version changes, and its own series ends: every version counts.
        times = f"scalar(max(sum without (version) ({counted})))"
        rates = f"sum_over_time({rates}[{span}]) / {times}"
    largest = selector.braces(Matcher("__name__", "=~", "specctl:.+:max"), kind_is)
    return f"max by (slot) ({largest}) or {by} ({rates}) or {by} ({now})"


def recorded_window(window_s: float) -> float:
    """The window nearest to `window_s` that the rules can answer for."""
    return window_s if window_s >= RULE_WINDOW_S + 2 * RULE_INTERVAL_S else RULE_WINDOW_S


def complete(window_s: float) -> str:
    """The newest time of which every rule has recorded its value; nothing where none may be read.

    The rules of a group are evaluated one after the other, so a ratio of two of them may mix two
    evaluations. The last rule of a group is `INFO`: where it has a sample, all others have one.

    They can be read where those of our version were there for all that `recorded` looks at, and
    none of another version: both write the same series.
    """
    reach = max(0.0, window_s - RULE_WINDOW_S)
    newest = f"min(max by (engine_kind) (timestamp({_OURS})))"
    if reach:
        begun_since = f"{_OURS} unless {_OURS} offset {duration(reach + _LATE_S)}"
        newest = f"{newest} unless on () ({begun_since})"
    others = f"count_over_time({_OTHERS}[{duration(reach + _LATE_S + _LOOKBACK_S)}])"
    return f"{newest} unless on () {others}"


def of_our_version(expression: str) -> str:
    """An expression over what was recorded; nothing at moments of another version's rules."""
    return f"({expression}) unless on () {_OTHERS}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The recording rules that run in a Prometheus."""

    kinds: frozenset[str]
    """Kinds of engine that those of our version are of."""
    others: tuple[str, ...]
    """Other versions that are there."""

    def serve(self, kinds: Iterable[str]) -> bool:
        """Whether they may be read for these kinds of engine: ours are there, and no others."""
        return bool(self.kinds) and self.kinds.issuperset(kinds) and not self.others

    @property
    def note(self) -> str | None:
        """What an operator should know of them, in one line; None: nothing."""
        if not self.others:
            return None
        versions = sorted({*self.others, *([RULES_VERSION] if self.kinds else [])})
        plural = "s" if len(versions) > 1 else ""
        action = (
            f"unload version{'s' if len(self.others) > 1 else ''} {' and '.join(self.others)}"
            if self.kinds
            else "`specctl alert rules --out DIR` writes the file to load instead"
        )
        return (
            f"recording rules there are version{plural} {' and '.join(versions)}, "
            f"this specctl reads {RULES_VERSION}: {action}"
        )


def loaded(found: Iterable[Series]) -> Loaded:
    """From the series of `promql.rules_there`."""
    ours: set[str] = set()
    others: set[str] = set()
    for series in found:
        version = series.labels.get("version", "")
        if version == RULES_VERSION:
            ours.add(series.labels.get("engine_kind", ""))
        else:
            others.add(version or "unknown")
    return Loaded(frozenset(ours), tuple(sorted(others)))


def recording_rules() -> dict[str, Any]:
    """The rules file."""
    groups: list[dict[str, Any]] = []
    for adapter in ADAPTERS:
        fleet = Fleet(adapter, op="rate", by=LEVEL, offset_s=RULE_OFFSET_S)
        rules = _rules(adapter, [*fleet.speculation(), *fleet.work()])
        labels = {"version": RULES_VERSION, "engine_kind": adapter.kind}
        rules.append({"record": INFO, "expr": "vector(1)", "labels": labels})
        groups.append({"name": f"specctl-{adapter.kind}", "rules": rules})
        for histogram in adapter.histograms:
            name = f"specctl-{adapter.kind}-{histogram.field}"
            buckets = _rules(adapter, [*fleet.buckets(histogram)])
            groups.append({"name": name, "rules": buckets})
    groups.append({"name": "specctl-derived", "rules": derived_rules()})
    return {"groups": [{**group, "interval": duration(RULE_INTERVAL_S)} for group in groups]}


def _rules(adapter: Adapter, parts: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    fields = {histogram.field for histogram in adapter.histograms}
    rules = []
    for slot, expression in parts:
        name = f"{slot}_bucket" if slot in fields else slot.replace(".", "_")
        if slot.endswith(".series"):
            name, op = f"{slot.removesuffix('.series')}_bucket", "count"
        elif slot in {"running", "waiting"}:
            name, op = f"requests_{slot}", "sum"
        else:
            op = "max" if slot == "kv_cache_usage" else f"rate{RULE_WINDOW_S / 60:.0f}m"
        rules.append(
            {
                "record": f"specctl:{name}:{op}",
                "expr": expression,
                "labels": {"slot": slot, "engine_kind": adapter.kind},
            }
        )
    return rules


def rules_text() -> str:
    """The rules file as it lies in manifests/monitoring/."""
    import yaml

    text = yaml.safe_dump(recording_rules(), sort_keys=False, width=100, allow_unicode=True)
    return f"{_HEAD}{text}"
