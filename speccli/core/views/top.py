"""The live screen as values: what stands in which row, in which style. Pure and frozen.

`build_view` decides the layout from the size alone, so that nothing moves unless the terminal does:
verdict, then what speculation earns beside what users feel, then latency by batch size, charts
where there is room, engines, events, keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speccli.core.cost import Pricing
from speccli.core.findings._text import plural
from speccli.core.stats.snapshot import EngineSnapshot, Event, Snapshot
from speccli.core.views import engines as table
from speccli.core.views import panels
from speccli.core.views.format import clock_time, duration, span_words
from speccli.core.views.journal import event_lines, merged
from speccli.core.views.state import (
    RANK,
    Finding,
    UiState,
    is_stale,
    kind_name,
    without_scheme,
    worst_by_engine,
)
from speccli.core.views.text import (
    Line,
    Span,
    beside,
    both_ends,
    columns,
    fit,
    glyph,
    line,
    plain,
    rule,
    short,
    spread,
    width_of,
)
from speccli.core.views.verdict import Verdict, verdict, verdict_lines

__all__ = ["Block", "TopView", "UiState", "build_view", "frame_rows"]

NARROW = 76
"""Columns under which panels stand on one another rather than side by side."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that belong together."""

    name: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class TopView:
    """The whole screen."""

    blocks: tuple[Block, ...]
    """From top to bottom; together as tall as the terminal."""
    verdict: Verdict
    order: tuple[str, ...]
    """Names of the engines that match the filter, sorted."""
    selected: str | None
    """The engine under the cursor; None without engines."""
    first: int
    """Index of the first engine shown."""
    page: int
    """How many engines are shown at once."""

    def block(self, name: str) -> tuple[Line, ...]:
        """A block's rows; none where the terminal has no room for it."""
        return next((b.lines for b in self.blocks if b.name == name), ())

    def text(self) -> str:
        """The screen without its styles."""
        return "\n".join(plain(each).rstrip() for b in self.blocks for each in b.lines)


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rows each block gets."""

    verdict: int
    banner: int
    panels: int
    charts: int
    batch: int
    engines: int
    """Rows of engines; their title and head come on top. 0: no table."""
    events: int
    """Title included; 0: none."""


def plan(width: int, height: int, banner: int, engines: int) -> Plan:
    """Rows for a size: the most needed first; what engines do not need goes to events."""
    side_by_side = width >= NARROW
    said = 2 if side_by_side else min(4, max(2, height // 4))
    if side_by_side and height >= 24:
        said = 3
    left = height - 2 - said - banner
    top = 6 if side_by_side else 12 if left >= 26 else 6
    top = min(top, max(0, left))
    left -= top
    batch = 0
    if width >= NARROW:
        batch = 5 if height >= 32 else 3
        batch = batch if left - batch >= 5 else 0
    left -= batch
    charts = 0
    if width >= NARROW and height >= 36:
        charts = 12 if height >= 54 else 8 if height >= 40 else 7
    left -= charts
    events = 0
    if left >= 8:
        events = 2 if height < 30 else 5 if height < 50 else 10
    left -= events
    rows = left - 2 if left >= 3 and width >= 30 else 0
    spare = max(0, rows - max(3, engines + 1)) if events else 0
    taller = min(10, spare // 2) if charts else 0
    rows, events, charts = rows - spare, events + spare - taller, charts + taller
    return Plan(said, banner, top, charts, batch, max(0, rows), events)


def build_view(
    snapshot: Snapshot | None, ui: UiState, now: float, findings: Sequence[Finding] = ()
) -> TopView:
    """The screen for what is known (`None`: nothing yet) as of `now`, Unix seconds."""
    banner = _banner(snapshot, ui)
    known = len(snapshot.engines) if snapshot is not None else 0
    rows = plan(ui.width, ui.height, 1 if banner else 0, known)
    said = verdict(snapshot, findings, ui, now)
    worst = worst_by_engine(findings)
    ordered: tuple[EngineSnapshot, ...] = ()
    if snapshot is not None:
        ordered = table.order(snapshot, worst, ui)
    names = tuple(e.name for e in ordered)
    first, at = table.window_of(names, ui, rows.engines)
    blocks = [Block("header", (_header(snapshot, ui, now),))]
    if banner:
        blocks.append(Block("banner", (fit(banner, ui.width),)))
    blocks.append(Block("verdict", spread(verdict_lines(said, ui.width, rows.verdict), ui.width)))
    blocks += _data_blocks(snapshot, ordered, worst, ui, rows, now)
    if rows.events:
        blocks.append(Block("events", _events(snapshot, findings, ui, rows.events)))
    used = sum(len(b.lines) for b in blocks)
    spare = ui.height - used - 1
    if spare > 0:
        blocks.append(Block("spare", ((),) * spare))
    blocks.append(Block("keys", (keys(ui),)))
    return TopView(tuple(blocks), said, names, names[at] if names else None, first, rows.engines)


def frame_rows(snapshot: Snapshot | None, ui: UiState, now: float) -> tuple[Line, ...]:
    """The first rows of every page: the header, and the banner while there is one."""
    banner = _banner(snapshot, ui)
    rows = [_header(snapshot, ui, now), *([banner] if banner else [])]
    return spread(rows, ui.width)


def _data_blocks(
    snapshot: Snapshot | None,
    ordered: Sequence[EngineSnapshot],
    worst: dict[str, Finding],
    ui: UiState,
    rows: Plan,
    now: float,
) -> list[Block]:
    shown = snapshot if snapshot is not None else _EMPTY
    top = _panels(shown, ui.width, rows.panels)
    middle: list[tuple[str, list[Line]]] = [("panels", top)]
    if rows.charts:
        middle.append(("charts", panels.trail_charts(shown, ui.width, rows.charts)))
    if rows.batch:
        middle.append(("batch", panels.by_batch(shown, ui.width, rows.batch)))
    if rows.engines:
        middle.append(("engines", table.table(ordered, shown, worst, ui, rows.engines)))
    if snapshot is not None and is_stale(snapshot, ui, now):
        middle = [(name, panels.dimmed(lines)) for name, lines in middle]
    return [Block(name, spread(lines, ui.width)) for name, lines in middle]


def _panels(snapshot: Snapshot, width: int, rows: int) -> list[Line]:
    if width >= NARROW:
        left = (width - 2) * 46 // 100 if width < 110 else (width - 2) // 2
        widths = [left, width - 2 - left]
        halves = [panels.speculation(snapshot, widths[0]), panels.users(snapshot, widths[1])]
        return beside(halves, widths)[:rows]
    stacked = panels.speculation(snapshot, width)
    if rows > len(stacked):
        stacked += panels.users(snapshot, width)
    return stacked[:rows]


def _header(snapshot: Snapshot | None, ui: UiState, now: float) -> Line:
    left = [Span("specctl top", "head")]
    if snapshot is not None and snapshot.simulated:
        left += [Span(" "), Span(" SIMULATED ", "badge")]
    if ui.paused:
        left += [Span(" "), Span(" PAUSED ", "badge")]
    about = _about(snapshot, ui)
    if about:
        left.append(Span(f"  {about}"))
    return both_ends(line(*left), _age(snapshot, ui, now), ui.width)


def _about(snapshot: Snapshot | None, ui: UiState) -> str:
    if snapshot is None:
        return ui.title
    engines = snapshot.engines
    total = snapshot.pooled_engines or len(engines)
    parts = [ui.title] if ui.title else []
    parts.append(plural(total, "engine"))
    parts.append(_shared([f"{_method(e)}" for e in engines if e.increase]))
    parts.append(_shared([_kind(e) for e in engines if e.version]))
    models = [(e.model or "").removeprefix("SIMULATED/") for e in engines if e.model]
    parts.append(_shared(models, "models"))
    return " · ".join(part for part in parts if part)


def _kind(engine: EngineSnapshot) -> str:
    return f"{kind_name(engine.kind)} {engine.version}"


def _method(engine: EngineSnapshot) -> str:
    if engine.method == "none":
        return "no speculation"
    name = engine.method if engine.method != "unknown" else ""
    return f"{name} K={engine.k}".strip() if engine.k else name


def _shared(values: Sequence[str], many: str = "") -> str:
    distinct = list(dict.fromkeys(value for value in values if value))
    if len(distinct) <= 1:
        return distinct[0] if distinct else ""
    return f"{len(distinct)} {many}" if many else f"{distinct[0]} +{len(distinct) - 1}"


def _age(snapshot: Snapshot | None, ui: UiState, now: float) -> Line:
    window = "all of it" if not ui.window_s else span_words(ui.window_s)
    if snapshot is None:
        return line(Span(window, "dim"))
    covered = snapshot.covered_s
    if ui.window_s and 0 < covered < 0.9 * ui.window_s and ui.width >= 60:
        window = f"{covered:.0f} s of {window}"
    if not ui.live:
        return line(Span(f"{window} ▸ {clock_time(snapshot.at, ui.tz)}", "dim"))
    age = max(0.0, now - snapshot.at)
    if ui.paused:
        return line(Span(f"{window} ▸ held {duration(age)}", "warning"))
    if is_stale(snapshot, ui, now):
        return line(Span(f"{window} ▸ ", "dim"), Span(f"STALE {duration(age)}", "warning"))
    return line(Span(f"{window} ▸ {duration(age):>4} ago", "dim"))


def _banner(snapshot: Snapshot | None, ui: UiState) -> Line | None:
    if ui.stopped is not None:
        text = f"polling stopped: {ui.stopped}"
        return line(glyph("critical"), " ", Span(text, "critical"))
    if ui.trouble is not None and snapshot is not None:
        return line(glyph("warning"), " ", Span(ui.trouble, "warning"), "; trying again")
    if snapshot is not None and snapshot.note:
        return line(Span(snapshot.note, "dim"))
    return None


def _events(
    snapshot: Snapshot | None, findings: Sequence[Finding], ui: UiState, rows: int
) -> tuple[Line, ...]:
    told = merged(snapshot.events if snapshot is not None else (), ui.log)
    if ui.width < 160 or rows < 5:
        return spread(_event_block(told, ui, ui.width, rows), ui.width)
    widths = columns(ui.width, 2)
    halves = [_event_block(told, ui, widths[0], rows), _alert_block(findings, widths[1], rows)]
    return spread(beside(halves, widths), ui.width)


def _event_block(
    told: Sequence[tuple[Event, int]], ui: UiState, width: int, rows: int
) -> list[Line]:
    more = len(told) - (rows - 1)
    lines = [rule("events", width, f"{more} more (e)" if more > 0 else "")]
    lines += event_lines(told[: rows - 1], width, ui.tz)
    if not told:
        lines.append(line(Span("nothing has happened yet", "dim")))
    return (lines + [()] * rows)[:rows]


def _alert_block(findings: Sequence[Finding], width: int, rows: int) -> list[Line]:
    shown = sorted(findings, key=lambda f: RANK.get(f.severity, 3))
    more = len(shown) - (rows - 1)
    lines = [rule("findings", width, f"{more} more (a)" if more > 0 else "")]
    for finding in shown[: rows - 1]:
        text = f" {without_scheme(finding.subject)}  {finding.evidence}"
        lines.append(line(glyph(finding.severity), " ", Span(finding.code, finding.severity), text))
    if not shown:
        lines.append(line(Span("none", "dim")))
    return (lines + [()] * rows)[:rows]


_KEYS = (
    ("enter", "open"),
    ("s", "sort"),
    ("/", "filter"),
    ("w", "window"),
    ("p", "pause"),
    ("e", "log"),
    ("a", "alerts"),
)
_ALWAYS = (("?", "help"), ("q", "quit"))


def keys(ui: UiState) -> Line:
    """The last row: the filter being typed, the answer to the last key, or the keys."""
    if ui.filtering:
        asked = line(Span("filter ", "head"), ui.filter, Span(" ", "badge"))
        return both_ends(asked, line(Span("enter keeps · esc clears", "dim")), ui.width)
    if ui.note:
        return fit(line(Span(short(ui.note, ui.width), "note")), ui.width)
    parts: list[Span] = []
    wanted = list(_KEYS)
    if ui.paused:
        parts = [Span("paused: the screen is held, data goes on  ", "warning")]
        wanted = [("p", "resume"), *(pair for pair in _KEYS if pair[0] != "p")]
    ends = [span for pair in _ALWAYS for span in _pair(*pair)]
    for key, word in wanted:
        pair = _pair(key, word)
        if width_of((*parts, *pair, *ends)) - 2 > ui.width:
            break
        parts += pair
    return fit((*parts, *ends), ui.width)


def _pair(key: str, word: str) -> list[Span]:
    return [Span(key, "key"), Span(f" {word}  ", "dim")]


_EMPTY = Snapshot(at=0.0, window_s=60.0, engines=(), trail=(), events=(), pricing=Pricing())
