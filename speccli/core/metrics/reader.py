"""Bodies in, frozen counters out: the exact path once, then the same page at table-lookup speed.

An engine writes the same series in the same order at every scrape, so the text before the value is
looked up whole. A page that differs in any way from the last one takes the exact path again.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from speccli.core.engines.base import Adapter, Role
from speccli.core.engines.registry import BY_NAME, PROCESS_START, SIMULATED, WANTED
from speccli.core.metrics.counters import INF, Counters, Layout, layout_of
from speccli.core.metrics.parse import LineError, Series, name_of, parse_sample, parse_value

WANTED_BYTES = frozenset(name.encode() for name in WANTED)
_LARGEST = 2.0**53
"""Past it a double no longer counts by ones; a page that says more is broken.

Less than nothing no wanted sample can be, gauges included.
"""
_BOM = b"\xef\xbb\xbf"
_PLAIN = b"0123456789+-.eE"
"""What the values of an ordinary page are written with."""
_MAX_PLAN = 20_000
"""Lines remembered per page; a page larger than this is read exactly every time."""
_MAX_SHARED = 8
"""Kinds of page a fleet may have (versions, K, models) before old ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one body gave."""

    engines: tuple[Counters, ...]
    word: str | None = None
    """MISSING, AUTH, TRUNCATED, NAN, CONFLICT, GARBLED or None when the body was clean."""
    reason: str | None = None


@dataclass(slots=True)
class _Raw:
    """A wanted series of the page."""

    key: bytes
    series: Series
    role: Role | None
    adapter: Adapter | None
    value: float


@dataclass(slots=True)
class _EnginePlan:
    """How one engine's array is picked out of the page's flat list of values."""

    engine: str
    kind: str
    layout: Layout
    pick: Callable[[list[float]], tuple[float, ...]]
    sums: list[tuple[int, tuple[int, ...]]]
    gauges: dict[str, tuple[int, ...]]
    model: str | None
    several_api_servers: bool
    version: str | None
    sources: dict[str, str]


@dataclass(slots=True)
class _Plan:
    lookup: dict[bytes, int] = field(default_factory=dict)
    """Text before the value → place in the flat list; -1 for a line nobody reads.

    A blank line is not in it: nothing else without a space may pass for one.
    """
    width: int = 0
    engines: list[_EnginePlan] = field(default_factory=list)
    started: int = -1
    simulated: bool = False


class Reader:
    """Reads pages of a fleet, whose engines mostly write the same page with other numbers."""

    def __init__(self) -> None:
        """Nothing is known of any page yet."""
        self._plans: list[_Plan] = []
        self._last: dict[str, _Plan] = {}

    def read(self, target: str, body: bytes, at: float, *, truncated: bool = False) -> Reading:
        """The engines in `target`'s body; `truncated`: the transport lost its end. Never raises."""
        if body.startswith(_BOM):
            body = body[len(_BOM) :]
        if not truncated:
            last = self._last.get(target)
            for plan in (last, *self._plans) if last else self._plans:
                flat = _fill(plan, body)
                if flat is not None:
                    self._last[target] = plan
                    return Reading(tuple(_engines(plan, flat, target, at, None)))
        return self._read_exactly(target, body, at, truncated=truncated)

    def forget(self, target: str) -> None:
        """The target is gone."""
        self._last.pop(target, None)

    def _read_exactly(self, target: str, body: bytes, at: float, *, truncated: bool) -> Reading:
        text = body.lstrip()
        if not text:
            return Reading((), "MISSING", "the body is empty")
        if text[:1] == b"<":
            return Reading((), "AUTH", "an HTML page instead of metrics (a login page, a proxy?)")
        page = _scan(body, truncated=truncated)
        if not any(raw.role for raw in page.raws):
            return _nothing_read(page, text)
        plan = _build(page.raws)
        flat = [raw.value for raw in page.raws]
        word, reason = page.problem()
        engines = tuple(_engines(plan, flat, target, at, reason))
        repeats = word is None and not page.timestamps
        if repeats and len(plan.lookup) + len(page.ignored) <= _MAX_PLAN:
            plan.lookup = dict.fromkeys(page.ignored, -1) | plan.lookup
            plan.lookup.pop(b"", None)
            self._plans = [plan, *self._plans][:_MAX_SHARED]
            self._last[target] = plan
        return Reading(engines, word, reason)


@dataclass(slots=True)
class _Page:
    """The exact reading of a body."""

    raws: list[_Raw] = field(default_factory=list)
    ignored: set[bytes] = field(default_factory=set)
    samples: int = 0
    timestamps: bool = False
    """Whether a wanted line has one: then the text before its last word is not the same twice."""
    holes: set[tuple[str, str | None]] = field(default_factory=set)
    """Sample names that lack a value, and of which engine; None: of any.

    What is summed over several series is known only if all of them are: the sum of the rest would
    read as a counter that fell.
    """
    bad: list[str] = field(default_factory=list)
    cut: str | None = None
    not_finite: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)

    def problem(self) -> tuple[str | None, str | None]:
        if self.cut:
            return "TRUNCATED", f"TRUNCATED: {self.cut}"
        if self.conflicts:
            return "CONFLICT", f"CONFLICT: {self.conflicts[0]}; dropped"
        if self.not_finite:
            names = ", ".join(sorted(set(self.not_finite)))
            return "NAN", f"NAN: {len(self.not_finite)} value(s) not finite, dropped ({names})"
        if self.bad:
            return "GARBLED", f"GARBLED: {len(self.bad)} line(s) cannot be read: {self.bad[0]}"
        return None, None


def _scan(body: bytes, *, truncated: bool) -> _Page:
    page = _Page()
    seen: dict[tuple[str, frozenset[tuple[str, object]]], _Raw] = {}
    contested: set[int] = set()
    lines = body.split(b"\n")
    unfinished = lines.pop()
    if unfinished and not truncated:
        # A page whose last newline is missing but whose transport was whole: believe the line if
        # it reads as a sample, since the value cannot have lost its end.
        lines.append(unfinished)
    elif truncated:
        page.cut = f"the body ends after {len(body):,} bytes, in the middle of a page"
    last = len(lines) - 1
    final = ""
    for number, line in enumerate(lines):
        line = line.rstrip(b"\r")
        name = name_of(line)
        if name not in WANTED_BYTES:
            if name or line.strip():
                page.ignored.add(line.rpartition(b" ")[0])
                page.samples += bool(name)
            if name and number == last and unfinished and not truncated and not _reads(line):
                page.cut = f"line {number + 1} ends in the middle"
            continue
        page.samples += 1
        final = name.decode()
        try:
            series, value = parse_sample(line)
        except LineError as error:
            page.holes.add((final, None))
            if number == last and unfinished:
                page.cut = f"line {number + 1}: {error}"
            else:
                page.bad.append(f"line {number + 1}: {error}")
            continue
        adapter, role = BY_NAME.get(series.name, (None, None))
        engine = adapter.engine_of(series.labels) if adapter else None
        if not math.isfinite(value):
            page.not_finite.append(series.name)
            page.holes.add((series.name, engine))
            continue
        if not 0 <= value <= _LARGEST:
            page.bad.append(f"line {number + 1}: {series.name} cannot be {value:g}")
            page.holes.add((series.name, engine))
            continue
        identity = _identity(series, role)
        first = seen.get(identity)
        if first is not None:
            if first.value != value:
                page.conflicts.append(
                    f"{_selector(series)} is given as {first.value:g} and as {value:g}"
                )
                page.holes.add((series.name, engine))
                contested.add(id(first))
            continue
        key = line.rpartition(b" ")[0]
        page.timestamps = page.timestamps or _reads(key)
        raw = _Raw(key, series, role, adapter, value)
        seen[identity] = raw
        page.raws.append(raw)
    if page.cut and final:
        page.holes.add((final, None))
    if page.holes:
        page.raws = [raw for raw in page.raws if id(raw) not in contested]
        _drop_incomplete(page)
    return page


def _drop_incomplete(page: _Page) -> None:
    """Leave out counters and histograms of which some series could not be read."""
    incomplete: set[tuple[str, str, int, str | None]] = set()
    for name, engine in page.holes:
        adapter, role = BY_NAME.get(name, (None, None))
        if adapter and role and role.part != "gauge":
            incomplete.add((adapter.kind, role.field, role.rank, engine))

    def whole(raw: _Raw) -> bool:
        if raw.adapter is None or raw.role is None or raw.role.part == "gauge":
            return True
        kind, role = raw.adapter.kind, raw.role
        engine = raw.adapter.engine_of(raw.series.labels)
        return not incomplete & {
            (kind, role.field, role.rank, engine),
            (kind, role.field, role.rank, None),
        }

    page.raws = [raw for raw in page.raws if whole(raw)]


def _identity(series: Series, role: Role | None) -> tuple[str, frozenset[tuple[str, object]]]:
    """What makes two samples the same one; `le` is a number, however it is written."""
    labels: dict[str, object] = dict(series.labels)
    if role is not None and role.part == "bucket":
        bound = _bound(series.labels.get("le"))
        labels["le"] = labels.get("le") if bound is None else bound
    return series.name, frozenset(labels.items())


def _reads(line: bytes) -> bool:
    try:
        parse_sample(line)
    except LineError:
        return False
    return True


def _selector(series: Series) -> str:
    labels = ",".join(f'{k}="{v}"' for k, v in sorted(series.labels.items()))
    return f"{series.name}{{{labels}}}"


def _nothing_read(page: _Page, text: bytes) -> Reading:
    if page.cut:
        return Reading((), "TRUNCATED", f"{page.cut}, before any metric of an engine")
    if page.bad:
        return Reading((), "GARBLED", page.bad[0])
    if page.conflicts:
        return Reading((), "CONFLICT", page.conflicts[0])
    if page.not_finite:
        return Reading((), "NAN", f"every value read is NaN or infinite ({page.not_finite[0]})")
    if page.samples == 0:
        first = text.split(b"\n", 1)[0][:40].decode("utf-8", "replace")
        return Reading((), "MISSING", f"not a metrics page: it begins {first!r}")
    return Reading(
        (), "MISSING", f"{page.samples} samples, none of an engine specctl reads (vLLM, SGLang)"
    )


def _build(raws: list[_Raw]) -> _Plan:
    plan = _Plan(lookup={raw.key: i for i, raw in enumerate(raws)}, width=len(raws))
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


def _version(raws: Iterable[_Raw]) -> str | None:
    for raw in raws:
        for label in ("vllm_version", "version"):
            if raw.role and label in raw.series.labels:
                return raw.series.labels[label]
    return None


def _engine_plan(
    kind: str, engine: str, members: list[int], raws: list[_Raw], version: str | None
) -> _EnginePlan:
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
            bound = _bound(raw.series.labels.get("le"))
            if bound is not None:
                buckets.setdefault(role.field, {}).setdefault(bound, []).append(i)
        else:
            (sums if role.part == "sum" else counts).setdefault(role.field, []).append(i)
        suffix = "" if role.part in {"counter", "gauge"} else f"_{role.part}"
        sources[role.field] = raw.series.name.removesuffix(suffix)
    order, ladders, slots = _arrange(counters, buckets, sums, counts)
    first = [indexes[0] for indexes in slots]
    models = {raws[i].series.labels.get("model_name"): None for i in members}
    return _EnginePlan(
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


def _role(raw: _Raw) -> Role:
    assert raw.role is not None  # only series with a role are grouped into engines
    return raw.role


def _bound(le: str | None) -> float | None:
    try:
        bound = math.nan if le is None else parse_value(le.encode())
    except LineError:
        return None
    return None if math.isnan(bound) else bound


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


def _fill(plan: _Plan, body: bytes) -> list[float] | None:
    """The flat list of values if the page has exactly the known series, once each, else None."""
    flat: list[float] = [math.nan] * plan.width
    lookup = plan.lookup
    texts: list[bytes] = []
    keep = texts.append
    try:
        for line in body.split(b"\n"):
            key, _, value = line.rpartition(b" ")
            try:
                place = lookup[key]
            except KeyError:
                if key or value.rstrip(b"\r"):
                    return None
                continue
            if place >= 0:
                flat[place] = float(value)
                keep(value)
    except ValueError:
        return None
    total = sum(flat)  # NaN while a place is empty
    if len(texts) != plan.width or total - total != 0 or not _ordinary(flat, texts):
        return None
    return flat


def _ordinary(flat: list[float], texts: list[bytes]) -> bool:
    """Whether the exact path would read the same: it refuses what Python alone calls a number."""
    if min(flat) < 0 or max(flat) > _LARGEST:
        return False
    if not b"".join(texts).translate(None, _PLAIN):
        return True
    try:
        for text in texts:
            parse_value(text.rstrip(b"\r"))
    except LineError:
        return False
    return True


def _engines(
    plan: _Plan, flat: list[float], target: str, at: float, partial: str | None
) -> Iterable[Counters]:
    started = flat[plan.started] if plan.started >= 0 else None
    for engine in plan.engines:
        values: array[float] = array("d", engine.pick(flat))
        for slot, members in engine.sums:
            values[slot] = sum(flat[i] for i in members)
        gauges: dict[str, Any] = {
            name: flat[members[0]] if len(members) == 1 else max(flat[i] for i in members)
            for name, members in engine.gauges.items()
        }
        yield Counters(
            target=target,
            engine=engine.engine,
            kind=engine.kind,
            at=at,
            layout=engine.layout,
            values=values,
            gauges=gauges,
            model=engine.model,
            started=started,
            partial=partial,
            several_api_servers=engine.several_api_servers,
            simulated=plan.simulated,
            version=engine.version,
            sources=engine.sources,
        )
