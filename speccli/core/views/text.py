"""Lines of styled text, as values: what a view hands to whoever paints it.

A style is a word of `STYLES`, never a colour: the painter decides what its terminal can show. Every
character is counted as one cell wide; `clean` makes text so, character by character, and every row
goes through it when it is fitted to the width.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple


class Span(NamedTuple):
    """A run of text in one style."""

    text: str
    style: str = ""


Line = tuple[Span, ...]
"""One row of the screen, left to right."""

STYLES = frozenset(
    {"", "ok", "info", "warning", "critical", "unknown"}  # states
    | {"good", "bad", "stale"}  # what of a number
    | {"dim", "head", "label", "source", "chart", "key", "badge", "note"}
)
"""Every style word there is; each may have `selected ` before it."""

GLYPHS = {"ok": "●", "info": "●", "warning": "▲", "critical": "✖", "unknown": "○"}
"""State by shape, beside a word: colour only adds."""

ASCII = str.maketrans(
    {
        **dict(zip("●▲✖○—–─│┤·▸▴▾→…", "*!Xo---|+.>^v>.", strict=True)),
        **dict(zip("“”−×÷↑↓←", '""-x/^v<', strict=True)),
        **dict(zip("▁▂▃▄▅▆▇█", "__..oo##", strict=True)),
        **dict(zip("▏▎▍▌▋▊▉", "   ####", strict=True)),
    }
)
"""Every mark drawn here in ASCII, one cell for one cell."""


def carries_marks(encoding: str | None) -> bool:
    """Whether a stream of this encoding can show the marks as they are."""
    try:
        "".join(map(chr, ASCII)).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def line(*parts: str | Span) -> Line:
    """A line of these parts, empty ones left out."""
    spans = (Span(part) if isinstance(part, str) else part for part in parts)
    return tuple(span for span in spans if span.text)


def glyph(severity: str) -> Span:
    """The mark of a severity."""
    style = "ok" if severity == "info" else severity
    return Span(GLYPHS.get(severity, "○"), style)


def clean(text: str) -> str:
    """Text from anywhere without what moves a cursor, and as many characters as before."""
    if text.isascii() and text.isprintable():
        return text
    return _cleaned(text)


@lru_cache(maxsize=2048)
def _cleaned(text: str) -> str:
    return "".join(map(_cell, text))


def _cell(char: str) -> str:
    if not char.isprintable():
        return " " if char.isspace() else "?"
    if unicodedata.combining(char) or unicodedata.east_asian_width(char) in "WF":
        return "?"
    return char


def plain(spans: Line) -> str:
    """The text alone."""
    return "".join(span.text for span in spans)


def width_of(spans: Line) -> int:
    """Cells the line takes."""
    return sum(len(span.text) for span in spans)


def short(text: str, width: int) -> str:
    """`text` in at most `width` cells, an ellipsis where it was cut."""
    if len(text) <= width:
        return text
    return text[: width - 1].rstrip() + "…" if width > 0 else ""


def middle(text: str, width: int) -> str:
    """`text` cut in its middle: the ends of a host name are what tells it from others."""
    if len(text) <= width or width < 5:
        return short(text, width)
    tail = (width - 1) * 3 // 5
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def fit(spans: Line, width: int) -> Line:
    """The line in exactly `width` cells, whoever wrote the text in it."""
    out: list[Span] = []
    left = width
    for span in spans:
        if left <= 0:
            break
        text = clean(span.text)
        if len(text) > left:
            out.append(Span(short(text.rstrip(), left), span.style))
            left -= len(out[-1].text)
            break
        out.append(span if text is span.text else Span(text, span.style))
        left -= len(text)
    if left > 0:
        out.append(Span(" " * left))
    return tuple(out)


def both_ends(left: Line, right: Line, width: int) -> Line:
    """`left` at the left edge, `right` whole at the right one."""
    room = width - width_of(right) - 1
    if room < 1:
        return fit(right, width)
    return fit((*fit(left, room), Span(" "), *right), width)


def rule(title: str, width: int, note: str = "", *, style: str = "head") -> Line:
    """A divider that carries its section's name, and a note at its right end."""
    head = line(Span("─ ", "dim"), Span(short(title, max(1, width - 6)), style), Span(" ", "dim"))
    tail = line(Span(f" {note} ─" if note else "", "dim"))
    dashes = width - width_of(head) - width_of(tail)
    if dashes < 1:
        return fit((*head, Span("─" * width, "dim")), width)
    return (*head, Span("─" * dashes, "dim"), *tail)


def beside(blocks: Sequence[Sequence[Line]], widths: Sequence[int], gap: int = 2) -> list[Line]:
    """Blocks next to one another, as tall as the tallest."""
    rows: list[Line] = []
    for y in range(max(len(block) for block in blocks)):
        row: list[Span] = []
        for i, (block, width) in enumerate(zip(blocks, widths, strict=True)):
            row.extend(fit(block[y] if y < len(block) else (), width))
            if i + 1 < len(blocks):
                row.append(Span(" " * gap))
        rows.append(tuple(row))
    return rows


def wrap(text: str, width: int, most: int) -> list[str]:
    """`text` in at most `most` rows of `width` cells, broken between words."""
    rows: list[str] = []
    words = text.split()
    while words and len(rows) < most:
        row = words.pop(0)
        while words and len(row) + 1 + len(words[0]) <= width:
            row += " " + words.pop(0)
        if len(row) > width:
            row, rest = row[:width], row[width:]
            words.insert(0, rest)
        rows.append(row)
    if words and rows:
        rows[-1] = short(" ".join([rows[-1], *words]), width)
    return rows or [""]


def columns(width: int, count: int, gap: int = 2) -> list[int]:
    """Widths of `count` columns that share `width`."""
    room = width - gap * (count - 1)
    return [room // count + (i < room % count) for i in range(count)]


def spread(lines: Iterable[Line], width: int) -> tuple[Line, ...]:
    """Every line in exactly `width` cells."""
    return tuple(fit(each, width) for each in lines)
