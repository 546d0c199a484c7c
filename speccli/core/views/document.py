"""Objects as JSON that a terminal can show: what moves a cursor or turns text round is escaped."""

from __future__ import annotations

import json
from typing import Any


def json_text(data: Any, *, unicode: bool = True) -> str:
    """The document, indented; `unicode`: letters beyond ASCII stand as they are."""
    text = json.dumps(data, indent=2, ensure_ascii=not unicode, allow_nan=False)
    return text if printable(text) else "".join(map(_escaped, text))


def printable(text: str) -> bool:
    """Whether nothing in it but the ends of its lines is a control of any kind."""
    return text.replace("\n", "").isprintable()


def _escaped(char: str) -> str:
    """Outside of strings JSON has no such characters, and inside each may be escaped."""
    return char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1]
