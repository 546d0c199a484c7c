"""Keys, in one table a screen. What they do is in `speccli.core.views.pages` for the reader."""

from __future__ import annotations

from textual.binding import Binding, BindingType


def _keys(*pairs: tuple[str, str]) -> list[BindingType]:
    return [Binding(keys, action, show=False) for keys, action in pairs]


MOVES = (
    ("up,k", "move(-1)"),
    ("down,j", "move(1)"),
    ("pageup,ctrl+b", "page(-1)"),
    ("pagedown,ctrl+f,space", "page(1)"),
    ("home,g", "edge(-1)"),
    ("end,G", "edge(1)"),
)

TOP = _keys(
    *MOVES,
    ("enter", "detail"),
    ("s", "sort"),
    ("r", "reverse"),
    ("slash", "filter"),
    ("escape", "clear"),
    ("q", "leave(0)"),
)

PAGE = _keys(
    *MOVES,
    ("left_square_bracket,left", "sibling(-1)"),
    ("right_square_bracket,right", "sibling(1)"),
    ("escape,enter,backspace", "back"),
    ("q", "back"),
)

APP = _keys(
    ("w", "window"),
    ("p", "pause"),
    ("e", "events"),
    ("a", "findings"),
    ("question_mark,f1,h", "help"),
    ("y", "copy"),
    ("S", "picture"),
    ("R", "read_now"),
    ("ctrl+z", "suspend_process"),
)
