"""Pages of metrics: everything that cannot change is text made once, only numbers are formatted.

A page is compiled when a process starts (again after a restart or an upgrade) and rendered from
the ledgers; a page nothing has changed since is handed out as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from speccli.core.sim.families import Family, token_ladder
from speccli.core.sim.family_table import families_for
from speccli.core.sim.ledger import Ledger

NOTICE: Final = "# SIMULATED by specctl: no engine, no GPU, invented traffic"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_MARK: Final = (
    "# HELP specctl_simulated 1 when the numbers on this page are simulated.\n"
    "# TYPE specctl_simulated gauge\n"
)
_START: Final = (
    "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n"
    "# TYPE process_start_time_seconds gauge\n"
)


class Source(Protocol):
    """What a page needs to know of an engine."""

    @property
    def ledger(self) -> Ledger:
        """The numbers of the running process."""

    @property
    def revision(self) -> int:
        """Grows whenever a number on the page may have changed."""

    @property
    def started_at(self) -> float:
        """When the process started, in seconds since the epoch; a new value is a new process."""

    @property
    def version(self) -> str:
        """The engine's version."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels engine and model_name."""

    @property
    def positions(self) -> int:
        """How many draft positions it has; 0 without speculation."""

    @property
    def max_model_len(self) -> int:
        """The longest request, which decides the edges of the token histograms."""

    @property
    def cache_info(self) -> dict[str, str]:
        """The labels of cache_config_info for this version."""


def format_value(value: float) -> str:
    """Write a number as prometheus_client does (Go's notation)."""
    text = repr(float(value))
    dot = text.find(".")
    if dot > 6 and value > 0:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02}"
    if text[-1] in "fn":
        return {"inf": "+Inf", "-inf": "-Inf"}.get(text, "NaN")
    return text


def label_text(labels: dict[str, str]) -> str:
    """Write labels in braces, sorted by name and escaped."""
    pairs = (
        '{}="{}"'.format(name, value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\""))
        for name, value in sorted(labels.items())
    )
    return "{" + ",".join(pairs) + "}"


def sample_heads(family: Family, source: Source, extra: dict[str, str]) -> list[str]:
    """Return the text before each number of one engine's samples, in the ledger's order."""
    base = {**source.labels, **extra}
    if not family.engine_label:
        del base["engine"]
    if family.kind == "histogram":
        edges = token_ladder(source.max_model_len) if family.ladder is None else family.ladder
        bounds = [*(repr(edge) for edge in edges), "+Inf"]
        heads = [f"{family.name}_bucket{label_text({**base, 'le': bound})} " for bound in bounds]
        plain = label_text(base)
        return [*heads, f"{family.name}_count{plain} ", f"{family.name}_sum{plain} "]
    return [f"{family.name}{label_text({**base, **one})} " for one in _variants(family, source)]


def _variants(family: Family, source: Source) -> list[dict[str, str]]:
    if family.labels is None:
        return [{}]
    name, values = family.labels
    if name == "position":
        values = tuple(map(str, range(source.positions)))
    return [{name: value} for value in values]


def _created_lines(family: Family, sources: Sequence[Source]) -> str:
    """Return the `_created` family that prometheus_client adds to a counter or histogram."""
    if family.kind == "gauge":
        return ""
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    lines = [f"# HELP {name}_created {family.help}\n# TYPE {name}_created gauge\n"]
    for source in sources:
        base = dict(source.labels)
        if not family.engine_label:
            del base["engine"]
        lines += [
            f"{name}_created{label_text({**base, **one})} {format_value(source.started_at)}\n"
            for one in _variants(family, source)
        ]
        if not family.engine_label:
            break
    return "".join(lines)


def _head(family: Family) -> str:
    return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"


class Page:
    """The /metrics body of one server, which has one or more engines of one version."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._key: tuple[object, ...] = ()
        self._revision: tuple[int, ...] | None = None
        self._body = b""
        self._families: tuple[Family, ...] = ()
        self._parts: list[str] = []

    def body(self) -> bytes:
        """Return the page as it stands now."""
        revision = tuple(source.revision for source in self._sources)
        if revision == self._revision:
            return self._body
        key = tuple((source.started_at, source.version) for source in self._sources)
        if key != self._key:
            self._parts = self._compile()
            self._key = key
        numbers: list[float] = []
        for family in self._families:
            for source in self._of(family):
                numbers += source.ledger.values(family)
        self._parts[1::2] = map(format_value, numbers)
        self._body = "".join(self._parts).encode()
        self._revision = revision
        return self._body

    def _of(self, family: Family) -> Sequence[Source]:
        return self._sources if family.engine_label else self._sources[:1]

    def _compile(self) -> list[str]:
        """Return static text at even places and room for a number at odd ones."""
        first = self._sources[0]
        self._families = families_for(first.version, speculating=first.positions > 0)
        text = (
            f"{NOTICE}\n{_MARK}specctl_simulated 1.0\n"
            f"{_START}process_start_time_seconds {format_value(first.started_at)}\n"
        )
        parts: list[str] = []
        for family in self._families:
            text += _head(family)
            for source in self._of(family):
                for head in sample_heads(family, source, {}):
                    parts += (text + head, "")
                    text = "\n"
            text += _created_lines(family, self._sources)
        parts.append(text + self._cache_info())
        return parts

    def _cache_info(self) -> str:
        name = "vllm:cache_config_info"
        lines = f"# HELP {name} Information of the LLMEngine CacheConfig\n# TYPE {name} gauge\n"
        return lines + "".join(
            f"{name}{label_text(source.cache_info)} 1.0\n" for source in self._sources
        )


class _Fragments:
    """One engine's part of a fleet's page: a piece of text for each family specctl reads."""

    def __init__(self, source: Source, instance: str) -> None:
        self.source = source
        self._instance = instance
        self._key: tuple[float, str] | None = None
        self._revision = -1
        self._compiled: list[tuple[Family, list[str]]] = []
        self.texts: dict[Family, str] = {}
        self.start = ""

    def refresh(self) -> dict[Family, str]:
        source = self.source
        key = (source.started_at, source.version)
        if key != self._key:
            self._compile()
            self._key = key
        elif source.revision == self._revision:
            return self.texts
        for family, parts in self._compiled:
            parts[1::2] = map(format_value, source.ledger.values(family))
            self.texts[family] = "".join(parts)
        self._revision = source.revision
        return self.texts

    def _compile(self) -> None:
        source, extra = self.source, {"instance": self._instance}
        self.texts = {}
        self._compiled = []
        for family in families_for(source.version, speculating=source.positions > 0):
            if not family.read:
                continue
            parts: list[str] = []
            text = ""
            for head in sample_heads(family, source, extra):
                parts += (text + head, "")
                text = "\n"
            self._compiled.append((family, [*parts, "\n"]))
        started = format_value(source.started_at)
        self.start = f"process_start_time_seconds{label_text(extra)} {started}\n"


class FleetPage:
    """One page for many engines, told apart by `instance`, with the families specctl reads."""

    def __init__(self, members: Iterable[tuple[str, Source]]) -> None:
        self._members = [_Fragments(source, instance) for instance, source in members]

    def body(self) -> bytes:
        """Return the page as it stands now; an engine without change costs nothing."""
        columns: dict[str, list[str]] = {}
        starts: dict[str, None] = {}
        for member in self._members:
            for family, text in member.refresh().items():
                column = columns.get(family.name)
                if column is None:
                    column = columns[family.name] = [_head(family)]
                column.append(text)
            starts[member.start] = None
        marks = f"{NOTICE}\n{_MARK}specctl_simulated 1.0\n{_START}"
        chunks = [marks, *starts]
        for column in columns.values():
            chunks += column
        return "".join(chunks).encode()
