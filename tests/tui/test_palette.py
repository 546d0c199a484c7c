"""What the terminal is told, for what it can show."""

from __future__ import annotations

import pytest

from speccli.core.views.text import GLYPHS
from tui.palette import Palette, palette_for


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
