"""Style words to terminal styles, for what this terminal can show.

The background is always the terminal's own: dark or light is its owner's choice, and a painted one
is what collapses to black or navy where OpenSSH did not forward COLORTERM. With 256 colours the
hues are of middle brightness, legible on both; with 16 they are the terminal's own; with none there
is bold, dim and reverse, and words and glyphs carry every state anyway.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Literal

from rich.style import Style

from speccli.core.views.text import ASCII, carries_marks

Depth = Literal["256", "16", "mono"]

_PLAIN_TERMS = frozenset({"dumb", "unknown", "vt52", "vt100", "vt102", "vt220", "vt320"})
_ASCII_TERMS = _PLAIN_TERMS | {"linux"}

_COLOURS: dict[Depth, dict[str, str]] = {
    "256": {
        "ok": "color(71)",
        "info": "color(71)",
        "good": "color(71)",
        "warning": "bold color(172)",
        "bad": "color(172)",
        "critical": "bold color(167)",
        "unknown": "color(103)",
        "stale": "color(245) italic",
        "dim": "color(245)",
        "label": "color(245)",
        "source": "color(245)",
        "chart": "color(67)",
        "key": "bold color(67)",
    },
    "16": {
        "ok": "green",
        "info": "green",
        "good": "green",
        "warning": "bold yellow",
        "bad": "yellow",
        "critical": "bold red",
        "unknown": "cyan",
        "stale": "dim italic",
        "dim": "dim",
        "label": "dim",
        "source": "dim",
        "chart": "cyan",
        "key": "bold cyan",
    },
    "mono": {
        "ok": "",
        "info": "",
        "good": "",
        "warning": "bold",
        "bad": "bold",
        "critical": "bold",
        "unknown": "",
        "stale": "dim",
        "dim": "dim",
        "label": "dim",
        "source": "dim",
        "chart": "",
        "key": "bold",
    },
}
_ALL = {"": "", "head": "bold", "badge": "bold reverse", "note": "bold"}


class Palette:
    """The styles of one terminal."""

    def __init__(
        self, depth: Depth = "16", *, ascii_only: bool = False, encoding: str = "utf-8"
    ) -> None:
        """`ascii_only`: the terminal's font has no marks or blocks. `encoding`: what it is sent."""
        self.depth = depth
        self._encoding = encoding if not carries_marks(encoding) else None
        self._table = ASCII if ascii_only or self._encoding else None
        words = {**_ALL, **_COLOURS[depth]}
        self._styles = {word: Style.parse(text) for word, text in words.items()}
        reverse = Style(reverse=True)
        for word, style in list(self._styles.items()):
            self._styles[f"selected {word}".strip()] = Style(bold=style.bold) + reverse

    def style(self, word: str) -> Style:
        """The terminal style of a style word."""
        return self._styles[word]

    def text(self, text: str) -> str:
        """The text in characters this terminal has."""
        if self._table is None or text.isascii():
            return text
        text = text.translate(self._table)
        if self._encoding is None:
            return text
        try:
            return text.encode(self._encoding, "replace").decode(self._encoding)
        except LookupError:
            return text.encode("ascii", "replace").decode("ascii")


def palette_for(
    environ: Mapping[str, str] | None = None, *, ansi: bool = False, encoding: str | None = None
) -> Palette:
    """What the environment says of the terminal; `ansi`: its own 16 colours and no others.

    `encoding`: what the screen is written in; None: that of standard error, which Textual draws on.
    """
    env = os.environ if environ is None else environ
    term = env.get("TERM", "").lower()
    depth: Depth = "16"
    if env.get("NO_COLOR") or term in _PLAIN_TERMS:
        depth = "mono"
    elif not ansi and ("256" in term or "truecolor" in term or env.get("COLORTERM")):
        depth = "256"
    if encoding is None:
        encoding = getattr(sys.__stderr__, "encoding", None) or "ascii"
    return Palette(depth, ascii_only=term in _ASCII_TERMS, encoding=encoding)
