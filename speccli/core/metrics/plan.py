"""How the numbers of a page get into each engine's array, worked out once for a kind of page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from speccli.core.engines.base import Role
from speccli.core.engines.registry import PROCESS_START, SIMULATED
from speccli.core.metrics.counters import INF, Layout, layout_of
from speccli.core.metrics.page import Raw, bound_of


@dataclass(slots=True)
class EnginePlan:
    """How one engine's array is picked out of the page's flat list of values."""

    engine: str
    kind: str
    layout: Layout
    pick: Callable[[list[float]], tuple[float, ...]]
    sums: list[tuple[int, tuple[int, ...]]]
    """Slots that are the sum of several values, and which."""
    gauges: dict[str, tuple[int, ...]]
    model: str | None
    several_api_servers: bool
    version: str | None
    sources: dict[str, str]


@dataclass(slots=True)
class Plan:
    """What is remembered of a kind of page."""

    lookup: dict[bytes, int] = field(default_factory=dict)
    """Text before the value → place in the flat list; -1 for a line nobody reads.

    A blank line is not in it: nothing else without a space may pass for one.
    """
    width: int = 0
    engines: list[EnginePlan] = field(default_factory=list)
    started: int = -1
    simulated: bool = False


def plan_of(raws: list[Raw]) -> Plan:
    """The plan for a page with these series."""
    plan = Plan(lookup={raw.key: i for i, raw in enumerate(raws)}, width=len(raws))
    models: dict[str, dict[str, None]] = {}
    for raw in raws:
        if raw.role and raw.adapter:
            names = models.setdefault(raw.adapter.engine_of(raw.series.labels), {})
            if "model_name" in raw.series.labels:
                names[raw.series.labels["model_name"]] = None
    groups: dict[tuple[str, str], list[int]] = {}
    for i, raw in enumerate(raws):
        if raw.series.name == PROCESS_START:
            plan.started = i
        elif raw.series.name == SIMULATED:
            plan.simulated = True
        elif raw.role and raw.adapter:
            engine = raw.adapter.engine_of(raw.series.labels)
            model = raw.series.labels.get("model_name")
            if model is not None and len(models[engine]) > 1:
                engine = f"{engine}:{model}"
            groups.setdefault((raw.adapter.kind, engine), []).append(i)
    version = _version(raws)
    for (kind, engine), members in groups.items():
        plan.engines.append(_engine_plan(kind, engine, members, raws, version))
    return plan


def _version(raws: Iterable[Raw]) -> str | None:
    for raw in raws:
        for label in ("vllm_version", "version"):
            if raw.role and label in raw.series.labels:
                return raw.series.labels[label]
    return None


def _engine_plan(
    kind: str, engine: str, members: list[int], raws: list[Raw], version: str | None
) -> EnginePlan:
    best: dict[str, int] = {}
    for i in members:
        role = _role(raws[i])
        best[role.field] = min(role.rank, best.get(role.field, role.rank))
    counters: dict[str, list[int]] = {}
    gauges: dict[str, list[int]] = {}
    buckets: dict[str, dict[float, list[int]]] = {}
    sums: dict[str, list[int]] = {}
    counts: dict[str, list[int]] = {}
    sources: dict[str, str] = {}
    for i in members:
        raw, role = raws[i], _role(raws[i])
        if role.rank != best[role.field]:
            continue
        if role.part == "counter":
            slot = f"{role.field}:{raw.series.labels.get(role.by)}" if role.by else role.field
            counters.setdefault(slot, []).append(i)
        elif role.part == "gauge":
            gauges.setdefault(role.field, []).append(i)
        elif role.part == "bucket":
            bound = bound_of(raw.series.labels.get("le"))
            if bound is not None:
                buckets.setdefault(role.field, {}).setdefault(bound, []).append(i)
        else:
            (sums if role.part == "sum" else counts).setdefault(role.field, []).append(i)
        suffix = "" if role.part in {"counter", "gauge"} else f"_{role.part}"
        sources[role.field] = raw.series.name.removesuffix(suffix)
    order, ladders, slots = _arrange(counters, buckets, sums, counts)
    first = [indexes[0] for indexes in slots]
    models = {raws[i].series.labels.get("model_name"): None for i in members}
    return EnginePlan(
        engine=engine,
        kind=kind,
        layout=layout_of(order, ladders),
        pick=_picker(first),
        sums=[(at, tuple(indexes)) for at, indexes in enumerate(slots) if len(indexes) > 1],
        gauges={name: tuple(indexes) for name, indexes in gauges.items()},
        model=next((model for model in models if model), None),
        several_api_servers=any("pid" in raws[i].series.labels for i in members),
        version=version,
        sources=sources,
    )


def _role(raw: Raw) -> Role:
    assert raw.role is not None  # only series with a role are grouped into engines
    return raw.role


def _arrange(
    counters: Mapping[str, list[int]],
    buckets: Mapping[str, Mapping[float, list[int]]],
    sums: Mapping[str, list[int]],
    counts: Mapping[str, list[int]],
) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[float, ...], bool], ...], list[list[int]]]:
    """Slot names, ladders, and for each slot the places in the flat list that are added."""
    order = tuple(sorted(counters, key=_slot_order))
    slots = [counters[name] for name in order]
    ladders: list[tuple[str, tuple[float, ...], bool]] = []
    for name in sorted(buckets):
        ladder = dict(buckets[name])
        if INF not in ladder and name in counts:
            ladder[INF] = counts[name]
        if INF not in ladder:
            continue  # a histogram cut before its count: nothing can be said of it
        bounds = tuple(sorted(ladder))
        ladders.append((name, bounds, name in sums))
        slots.extend(ladder[bound] for bound in bounds)
        if name in sums:
            slots.append(sums[name])
    return order, tuple(ladders), slots


def _slot_order(name: str) -> tuple[str, int, str]:
    head, _, tail = name.partition(":")
    return head, int(tail) if tail.isdigit() else 0, tail


def _picker(first: list[int]) -> Callable[[list[float]], tuple[float, ...]]:
    if not first:
        return lambda flat: ()
    if len(first) == 1:
        only = first[0]
        return lambda flat: (flat[only],)
    return itemgetter(*first)
