"""What the terminal is told, for what it can show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from typing import get_args

import pytest

from speccli.core.findings import evaluate
from speccli.core.findings.base import Severity, Thresholds
from speccli.core.stats.snapshot import Event, Snapshot
from speccli.core.views.detail import build_detail
from speccli.core.views.pages import events_page, findings_page, help_page
from speccli.core.views.state import Finding, UiState
from speccli.core.views.text import GLYPHS, STYLES, Line
from speccli.core.views.top import build_view
from tests.core.pages import Engine
from tests.tui.world import Found, World
from tui.palette import Depth, Palette, palette_for

WIDTHS = (40, 80, 120, 200)
SEVERITIES = get_args(Severity)


@pytest.mark.parametrize(
    ("environ", "ansi", "depth"),
    [
        pytest.param({"TERM": "xterm-256color"}, False, "256", id="colorterm-not-forwarded"),
        pytest.param({"TERM": "xterm", "COLORTERM": "truecolor"}, False, "256", id="truecolor"),
        pytest.param({"TERM": "xterm-256color"}, True, "16", id="ansi"),
        pytest.param({"TERM": "xterm"}, False, "16", id="xterm"),
        pytest.param({"TERM": "linux"}, False, "16", id="console"),
        pytest.param({"TERM": "xterm-256color", "NO_COLOR": "1"}, False, "mono", id="no-color"),
        pytest.param({"TERM": "vt100"}, False, "mono", id="vt100"),
        pytest.param({"TERM": "dumb"}, False, "mono", id="dumb"),
    ],
)
def test_depth_follows_the_environment(environ: dict[str, str], ansi: bool, depth: str) -> None:
    assert palette_for(environ, ansi=ansi).depth == depth


def test_mono_has_no_colour_at_all() -> None:
    palette = Palette("mono")
    assert all(style.color is None and style.bgcolor is None for style in palette._styles.values())


@pytest.mark.parametrize("depth", ["256", "16"])
def test_no_background_is_painted(depth: str) -> None:
    palette = Palette(depth)  # type: ignore[arg-type]
    assert all(style.bgcolor is None for style in palette._styles.values())


def test_ascii_keeps_every_state_apart_and_every_width() -> None:
    palette = Palette("mono", ascii_only=True)
    marks = {palette.text(mark) for mark in GLYPHS.values()}
    assert len(marks) == len(set(GLYPHS.values()))
    text = "▸ 25–50 ms — ▂▅█ “x” │┤ ▾ → …"
    assert palette.text(text).isascii()
    assert len(palette.text(text)) == len(text)


@pytest.mark.parametrize("depth", get_args(Depth))
@pytest.mark.parametrize("word", sorted(STYLES))
def test_every_style_word_of_a_view_can_be_painted(word: str, depth: Depth) -> None:
    palette = Palette(depth)
    palette.style(word)
    palette.style(f"selected {word}".strip())


def mixed() -> Snapshot:
    """Engines that draft, that do not, that wait for a request, that are down."""
    world = World(4)
    world.servers[1].engine = Engine(k=0, model="llama-70b")
    world.servers[2].busy = False
    world.run(70)
    world.servers[3].error = "connect refused"
    return world.run(8)


def without_speculation() -> Snapshot:
    world = World(1)
    world.servers[0].engine = Engine(k=0)
    return world.run(70)


def idle() -> Snapshot:
    world = World(3)
    for server in world.servers:
        server.busy = False
    return world.run(70)


def every_view(snapshot: Snapshot, ui: UiState, findings: tuple[Finding, ...]) -> Iterator[Line]:
    now = snapshot.at + 1
    for state in (ui, replace(ui, selected=snapshot.engines[0].name), replace(ui, paused=True)):
        for block in build_view(snapshot, state, now, findings).blocks:
            yield from block.lines
    for engine in snapshot.engines:
        yield from build_detail(snapshot, engine.name, ui, now, findings)
    yield from findings_page(findings, ui, now)
    yield from events_page(snapshot, ui)
    yield from help_page(snapshot, [e.name for e in snapshot.engines], ui)


def unknown_words(lines: Iterator[Line]) -> set[str]:
    return {s.style.removeprefix("selected").strip() for each in lines for s in each} - STYLES


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_a_finding_of_every_severity_can_be_painted_in_every_view(
    severity: str, width: int
) -> None:
    snapshot = mixed()
    subjects = ("fleet", *(e.name for e in snapshot.engines))
    found = tuple(Found("LOW_ACCEPTANCE", severity, subject) for subject in subjects)
    events = tuple(Event(snapshot.at, "a/0", "x", each) for each in ("info", "warning", "critical"))
    ui = UiState(width=width, height=40, tz=UTC, log=events)
    assert not unknown_words(every_view(snapshot, ui, found))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("fleet", [mixed, without_speculation, idle])
def test_what_the_rules_find_in_a_fleet_can_be_painted(fleet: object, width: int) -> None:
    assert callable(fleet)
    snapshot = fleet()
    found = tuple(evaluate(snapshot, Thresholds()))
    ui = UiState(width=width, height=50, tz=UTC)
    assert not unknown_words(every_view(snapshot, ui, found))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "nonsense"])
def test_an_encoding_without_the_marks_gets_the_ascii_drawing(encoding: str) -> None:
    palette = palette_for({"TERM": "xterm-256color"}, encoding=encoding)
    assert palette.depth == "256"
    assert palette.text("● 25–50 ─ — │ 名") == "* 25-50 - - | ?"


def test_an_encoding_with_the_marks_keeps_them() -> None:
    assert palette_for({"TERM": "xterm"}, encoding="UTF-8").text("● é 名") == "● é 名"
