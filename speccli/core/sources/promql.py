"""PromQL: the expressions that pool a fleet, made from the adapters' metric names.

The same table gives the queries asked directly and the recording rules that spare a Prometheus
from answering them anew. Every value says what it is by the label `slot` (`drafts`, `ttft.sum`,
with `le` or `position` where there are several), so one query can carry many expressions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from speccli.core.engines.base import Adapter, Counter, Gauge, Histogram
from speccli.core.engines.registry import ADAPTERS, PROCESS_START, SIMULATED, WANTED
from speccli.core.errors import UsageError

LEVEL = ("namespace", "model_name")
"""Labels that recording rules keep, and so the only ones a selector may use with them."""
RULE_WINDOW_S = 120.0
"""What the rules look back: four scrapes of a fleet scraped every 30 s."""
RULE_INTERVAL_S = 30.0
RULE_OFFSET_S = 5.0
"""How long ago the rules' windows end.

A sample has the time at which its scrape began and is there when it has ended, and rules are
evaluated one after the other: up to now, one would see a scrape that the one before did not, and
their ratio would be of two moments.
"""
RULES_VERSION = "2"
"""Of the recording rules: they are read only where they are of this version, and what they say is
asked directly otherwise. Raised with every change of a rule that specctl reads: an older one in a
Prometheus would be taken for it. A test keeps their digest."""
INFO = "specctl:recording_rules:info"
MIN_DRAFTED = 200
"""Draft tokens in the window before an engine's acceptance can make it an outlier."""

_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_ABOUT_TARGETS = ("up", PROCESS_START)
TARGET = ("cluster", "job", "namespace", "pod", "instance")
"""Labels that tell one target from another: an address alone may be there in every cluster."""
ENGINE_LABELS = frozenset({"model_name", *(name for a in ADAPTERS for name in a.engine_labels)})
"""Labels that engines write themselves; `up` does not have them."""
_GROUPS = (
    ("drafts", "draft_tokens", "accepted_tokens"),
    ("generation_tokens", "ttft.count", "itl.count", "steps"),
)
"""Counters that are divided by one another: a ratio is formed of engines that have them all."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """One label matcher."""

    label: str
    op: str
    value: str
    """As PromQL writes it, escapes included."""

    def __str__(self) -> str:
        return f'{self.label}{self.op}"{self.value}"'


@dataclass(frozen=True, slots=True)
class Selector:
    """Which part of what Prometheus holds is the fleet."""

    matchers: tuple[Matcher, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> Selector:
        """`namespace="prod",pool=~"llama.*"`, in braces or not.

        Raises:
            UsageError: not matchers.
        """
        rest = (text or "").strip().removeprefix("{").removesuffix("}").strip()
        found: list[Matcher] = []
        at = 0
        while at < len(rest):
            match = _MATCHER.match(rest, at)
            if match is None:
                raise UsageError(
                    f"--selector {text!r} cannot be read from {rest[at : at + 20]!r} on",
                    hint="""write label matchers: namespace="prod",model_name=~"llama.*\"""",
                )
            found.append(Matcher(*match.group(1, 2, 3)))
            at = match.end()
        return cls(tuple(found))

    def __str__(self) -> str:
        return ",".join(map(str, self.matchers))

    def braces(self, *more: Matcher) -> str:
        """`{…}` with these and more matchers; empty without any."""
        text = ",".join(map(str, (*self.matchers, *more)))
        return f"{{{text}}}" if text else ""

    def of_targets(self) -> Selector:
        """Without matchers on labels that engines write themselves: what `up` can be asked."""
        return Selector(tuple(m for m in self.matchers if m.label not in ENGINE_LABELS))

    @property
    def fits_rules(self) -> bool:
        """Whether the recorded series still have every label it asks for."""
        return all(m.label in LEVEL for m in self.matchers)


def one_of(label: str, values: Iterable[str]) -> Matcher:
    """A matcher for any of some literal values."""
    text = "|".join(re.escape(value) for value in sorted(values))
    return Matcher(label, "=~", text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))


def duration(seconds: float) -> str:
    """A PromQL duration, rounded up to whole milliseconds (or seconds where it is whole)."""
    ms = max(1, math.ceil(round(seconds * 1000, 3)))
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"


def tagged(slot: str, expression: str) -> str:
    """An expression whose results say what they are."""
    return f'label_replace({expression},"slot","{slot}","","")'


def raw_engines(selector: Selector, span_s: float, instances: Iterable[str] = ()) -> str:
    """The raw samples of everything that engines write and specctl reads."""
    names = one_of("__name__", WANTED - set(_ABOUT_TARGETS) - {SIMULATED})
    return f"{selector.braces(names, *_instances(instances))}[{duration(span_s)}]"


def raw_targets(
    selector: Selector, span_s: float, jobs: Iterable[str], instances: Iterable[str] = ()
) -> str:
    """The raw samples of what Prometheus and the process say of a target: up, and since when."""
    names = one_of("__name__", (*_ABOUT_TARGETS, SIMULATED))
    more = (names, one_of("job", jobs), *_instances(instances))
    return f"{selector.of_targets().braces(*more)}[{duration(span_s)}]"


def _instances(instances: Iterable[str]) -> tuple[Matcher, ...]:
    wanted = tuple(instances)
    return (one_of("instance", wanted),) if wanted else ()


def census(selector: Selector) -> str:
    """How many engines of which kind, under which jobs; one engine's labels; whether rules run."""
    parts: list[str] = []
    alive: list[str] = []
    for adapter in ADAPTERS:
        name = _gauge(adapter, "running").names[0] + selector.braces()
        alive.append(name)
        engines = f"count(count by ({_identity(adapter)}) ({name}))"
        parts.append(tagged(f"engines.{adapter.kind}", engines))
        parts.append(tagged("job", f"group by (job) (last_over_time({name}[15m]))"))
    first = f"group by (job,instance) (topk(1,{' or '.join(alive)}))"
    parts += [
        tagged("example", first),
        tagged("simulated", _simulated(selector, alive)),
        tagged("rules", rules_there()),
    ]
    # Two kinds of engine may be of one job: `or` keeps the first of two equal results.
    return " or ".join(parts)


def rules_there() -> str:
    """Which versions of the recording rules run, and for which kinds of engine."""
    return f"group by (version,engine_kind) ({INFO})"


def _simulated(selector: Selector, alive: Iterable[str]) -> str:
    """Whether an engine of the pool is a simulated one: its own page says so."""
    said = f"{SIMULATED}{selector.of_targets().braces()}"
    return f"group({said} and on ({','.join(TARGET)}) ({' or '.join(alive)}))"


def newest(selector: Selector) -> str:
    """The time of the newest sample of any engine."""
    names = [_gauge(adapter, "running").names[0] + selector.braces() for adapter in ADAPTERS]
    return f"max(timestamp({' or '.join(names)}))"


def example(adapter_kinds: Iterable[str], selector: Selector, job: str, instance: str) -> str:
    """Raw samples of one gauge of one target, to see how often it is scraped."""
    names = [_gauge(a, "running").names[0] for a in ADAPTERS if a.kind in set(adapter_kinds)]
    more = (one_of("__name__", names), one_of("job", [job]), one_of("instance", [instance]))
    return f"{selector.braces(*more)}[{duration(300)}]"


def _gauge(adapter: Adapter, field: str) -> Gauge:
    return next(gauge for gauge in adapter.gauges if gauge.field == field)


def _identity(adapter: Adapter) -> str:
    return ",".join((*TARGET, *adapter.engine_labels, "model_name"))


@dataclass(frozen=True)
class Fleet:
    """The pooling expressions of one kind of engine."""

    adapter: Adapter
    selector: Selector = Selector()
    window_s: float = RULE_WINDOW_S
    op: str = "increase"
    """`increase` for growth over the window, `rate` for growth per second."""
    by: tuple[str, ...] = ()
    """Labels that stay apart (a recording rule's level)."""
    offset_s: float = 0.0
    """How long ago the window ended."""

    def speculation(self) -> Iterator[tuple[str, str]]:
        """Slot and expression: speculation counters, per position too, and gauges."""
        for counter in self.adapter.counters:
            if counter.field in {"drafts", "draft_tokens", "accepted_tokens"}:
                yield counter.field, self._sum(self._grown(counter.names))
            elif counter.by:
                yield counter.field, self._sum(self._grown(counter.names), counter.by)
                yield "drafts_at", self._drafts_at(counter)
        yield from self.gauges()

    def work(self) -> Iterator[tuple[str, str]]:
        """Slot and expression: the other counters, histograms' counts and sums."""
        for counter in self.adapter.counters:
            if not counter.by and counter.field not in _GROUPS[0]:
                yield counter.field, self._sum(self._grown(counter.names))
        for histogram in self.adapter.histograms:
            for part in ("count", "sum"):
                names = [f"{name}_{part}" for name in histogram.names]
                yield f"{histogram.field}.{part}", self._sum(self._grown(names))

    def gauges(self) -> Iterator[tuple[str, str]]:
        """Slot and expression: waiting and running summed, KV-cache usage the largest."""
        for gauge in self.adapter.gauges:
            each = f"max by ({_identity(self.adapter)}) ({self._any(gauge.names)})"
            if gauge.field in {"running", "waiting"}:
                yield gauge.field, self._sum(each)
            elif gauge.field == "kv_cache_usage":
                yield gauge.field, self._aggregate("max", self._any(gauge.names))

    def buckets(self, histogram: Histogram) -> Iterator[tuple[str, str]]:
        """Slot and expression: growth by bound, and how many series have each bound."""
        names = [f"{name}_bucket" for name in histogram.names]
        yield histogram.field, self._sum(self._grown(names), "le")
        yield f"{histogram.field}.series", self._aggregate("count", self._any(names), "le")

    def presence(self) -> Iterator[tuple[str, str]]:
        """Slot and expression: how many series there are of counters divided by one another."""
        for group in self.groups():
            for slot in group:
                yield f"with.{slot}", f"count({self._any(self._names(slot))})"

    def joined(self, present: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Slot and expression: growth over the engines that have all of `present` alone."""
        have_all = f" and on ({_identity(self.adapter)}) ".join(map(self._having, present))
        for slot in present:
            grown = self._grown(self._names(slot))
            both = f"({grown}) and on ({_identity(self.adapter)}) ({have_all})"
            yield f"joined.{slot}", self._sum(both)

    def outliers(self, most: int) -> Iterator[tuple[str, str]]:
        """Slot and expression: engines with the lowest acceptance and with the longest queue."""
        named = f"sum by ({_identity(self.adapter)})"
        fields = {counter.field: counter.names for counter in self.adapter.counters}
        if "accepted_tokens" in fields:
            accepted = f"{named} ({self._grown(fields['accepted_tokens'])})"
            drafted = f"{named} ({self._grown(fields['draft_tokens'])})"
            yield "low", f"bottomk({most},{accepted} / ({drafted} > {MIN_DRAFTED}))"
        names = _gauge(self.adapter, "waiting").names
        waiting = f"max by ({_identity(self.adapter)}) ({self._any(names)})"
        yield "queue", f"topk({most},{waiting} > 0)"

    def groups(self) -> Iterator[tuple[str, ...]]:
        """The counters of this kind of engine that are divided by one another."""
        known = {slot for slot, _ in (*self.speculation(), *self.work())}
        for group in _GROUPS:
            found = tuple(slot for slot in group if slot in known)
            if len(found) > 1:
                yield found

    def _names(self, slot: str) -> list[str]:
        field, _, part = slot.partition(".")
        metrics: tuple[Counter | Histogram, ...] = (
            self.adapter.histograms if part else self.adapter.counters
        )
        names = next(metric.names for metric in metrics if metric.field == field)
        return [f"{name}_{part}" if part else name for name in names]

    def _having(self, slot: str) -> str:
        return f"count by ({_identity(self.adapter)}) ({self._any(self._names(slot))})"

    def _any(self, names: Iterable[str]) -> str:
        """The first of the names that an engine has: `or` drops what is there under two names."""
        return " or ".join(f"{name}{self.selector.braces()}" for name in names)

    def _grown(self, names: Iterable[str]) -> str:
        span = f"[{duration(self.window_s)}]"
        if self.offset_s:
            span += f" offset {duration(self.offset_s)}"
        each = (f"{self.op}({name}{self.selector.braces()}{span})" for name in names)
        return " or ".join(each)

    def _drafts_at(self, counter: Counter) -> str:
        """Drafts of the engines that have a position, by position."""
        identity = _identity(self.adapter)
        positions = f"sum by ({identity},{counter.by}) ({self._grown(counter.names)})"
        drafts = f"sum by ({identity}) ({self._grown(self._names('drafts'))})"
        each = f"0 * {positions} + on ({identity}) group_left () {drafts}"
        return self._sum(each, counter.by or "")

    def _sum(self, expression: str, *by: str) -> str:
        return self._aggregate("sum", expression, *by)

    def _aggregate(self, how: str, expression: str, *by: str) -> str:
        labels = ",".join((*self.by, *by))
        return f"{how} by ({labels}) ({expression})" if labels else f"{how}({expression})"


def targets_down(selector: Selector, jobs: Iterable[str], most: int) -> Iterator[tuple[str, str]]:
    """Slot and expression: targets by whether they are up, and some that are down."""
    up = f"up{selector.of_targets().braces(one_of('job', jobs))}"
    yield "up", f"count({up} == 1)"
    yield "down", f"count({up} == 0)"
    yield "down.named", f"topk({most},{up} == 0)"


def joined(parts: Iterable[tuple[str, str]]) -> str:
    """Many tagged expressions as one query."""
    return " or ".join(tagged(slot, expression) for slot, expression in parts)
