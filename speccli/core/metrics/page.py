"""A page of metrics read exactly: every wanted series once, and what is wrong with the rest.

The word for what is wrong is the contract's: TRUNCATED, CONFLICT, NAN, GARBLED, MISSING.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from speccli.core.engines.base import Adapter, Role
from speccli.core.engines.registry import BY_NAME, WANTED
from speccli.core.metrics.parse import LineError, Series, name_of, parse_sample, parse_value

WANTED_BYTES = frozenset(name.encode() for name in WANTED)
LARGEST = 2.0**53
"""Past it a double no longer counts by ones; a page that says more is broken.

Less than nothing no wanted sample can be, gauges included.
"""


@dataclass(slots=True)
class Raw:
    """A wanted series of the page."""

    key: bytes
    """The line's text before its value."""
    series: Series
    role: Role | None
    """None for what describes the process rather than an engine."""
    adapter: Adapter | None
    value: float


@dataclass(slots=True)
class Page:
    """The exact reading of a body."""

    raws: list[Raw] = field(default_factory=list)
    ignored: set[bytes] = field(default_factory=set)
    """Lines nobody reads, without their last word."""
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
    _seen: dict[tuple[str, frozenset[tuple[str, object]]], Raw] = field(default_factory=dict)
    _contested: set[int] = field(default_factory=set)

    def problem(self) -> tuple[str | None, str | None]:
        """Word and reason; None when the page is clean."""
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

    def emptiness(self, text: bytes) -> tuple[str, str]:
        """Word and reason where no engine could be read in `text`."""
        if self.cut:
            return "TRUNCATED", f"{self.cut}, before any metric of an engine"
        if self.bad:
            return "GARBLED", self.bad[0]
        if self.conflicts:
            return "CONFLICT", self.conflicts[0]
        if self.not_finite:
            return "NAN", f"every value read is NaN or infinite ({self.not_finite[0]})"
        if self.samples == 0:
            first = text.split(b"\n", 1)[0][:40].decode("utf-8", "replace")
            return "MISSING", f"not a metrics page: it begins {first!r}"
        return (
            "MISSING",
            f"{self.samples} samples, none of an engine specctl reads (vLLM, SGLang)",
        )

    def take(self, number: int, line: bytes, *, last: bool) -> str | None:
        """Read one line; returns its sample name if it is a wanted one.

        `last`: the page ends in it without a newline, though the transport was whole.
        """
        name = name_of(line)
        if name not in WANTED_BYTES:
            if name or line.strip():
                self.ignored.add(line.rpartition(b" ")[0])
                self.samples += bool(name)
            if name and last and not _reads(line):
                self.cut = f"line {number} ends in the middle"
            return None
        self.samples += 1
        wanted = name.decode()
        try:
            series, value = parse_sample(line)
        except LineError as error:
            self.holes.add((wanted, None))
            if last:
                self.cut = f"line {number}: {error}"
            else:
                self.bad.append(f"line {number}: {error}")
            return wanted
        self._keep(number, line, series, value)
        return wanted

    def _keep(self, number: int, line: bytes, series: Series, value: float) -> None:
        adapter, role = BY_NAME.get(series.name, (None, None))
        hole = (series.name, adapter.engine_of(series.labels) if adapter else None)
        if not math.isfinite(value):
            self.not_finite.append(series.name)
            self.holes.add(hole)
            return
        if not 0 <= value <= LARGEST:
            self.bad.append(f"line {number}: {series.name} cannot be {value:g}")
            self.holes.add(hole)
            return
        identity = _identity(series, role)
        first = self._seen.get(identity)
        if first is not None:
            if first.value != value:
                self.conflicts.append(
                    f"{_selector(series)} is given as {first.value:g} and as {value:g}"
                )
                self.holes.add(hole)
                self._contested.add(id(first))
            return
        key = line.rpartition(b" ")[0]
        self.timestamps = self.timestamps or _reads(key)
        raw = Raw(key, series, role, adapter, value)
        self._seen[identity] = raw
        self.raws.append(raw)

    def drop_incomplete(self) -> None:
        """Leave out counters and histograms of which some series could not be read."""
        incomplete: set[tuple[str, str, int, str | None]] = set()
        for name, engine in self.holes:
            adapter, role = BY_NAME.get(name, (None, None))
            if adapter and role and role.part != "gauge":
                incomplete.add((adapter.kind, role.field, role.rank, engine))

        def whole(raw: Raw) -> bool:
            if id(raw) in self._contested:
                return False
            if raw.adapter is None or raw.role is None or raw.role.part == "gauge":
                return True
            kind, role = raw.adapter.kind, raw.role
            engine = raw.adapter.engine_of(raw.series.labels)
            return not incomplete & {
                (kind, role.field, role.rank, engine),
                (kind, role.field, role.rank, None),
            }

        self.raws = [raw for raw in self.raws if whole(raw)]


def scan(body: bytes, *, truncated: bool) -> Page:
    """Read a body; `truncated`: the transport lost its end. Never raises."""
    page = Page()
    lines = body.split(b"\n")
    unfinished = lines.pop()
    if unfinished and not truncated:
        # A page whose last newline is missing but whose transport was whole: believe the line if
        # it reads as a sample, since the value cannot have lost its end.
        lines.append(unfinished)
    elif truncated:
        page.cut = f"the body ends after {len(body):,} bytes, in the middle of a page"
    final: str | None = None
    for number, line in enumerate(lines, 1):
        last = number == len(lines) and bool(unfinished) and not truncated
        final = page.take(number, line.rstrip(b"\r"), last=last) or final
    if page.cut and final:
        page.holes.add((final, None))
    if page.holes:
        page.drop_incomplete()
    return page


def _identity(series: Series, role: Role | None) -> tuple[str, frozenset[tuple[str, object]]]:
    """What makes two samples the same one; `le` is a number, however it is written."""
    labels: dict[str, object] = dict(series.labels)
    if role is not None and role.part == "bucket":
        bound = bound_of(series.labels.get("le"))
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


def bound_of(le: str | None) -> float | None:
    """A bucket's upper bound as a number, however it is written; None where it is none."""
    try:
        bound = math.nan if le is None else parse_value(le.encode())
    except LineError:
        return None
    return None if math.isnan(bound) else bound
