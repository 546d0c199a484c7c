"""Ways in which a server's HTTP side can be wrong, each seen in the field."""

from __future__ import annotations

from enum import Enum


class Fault(Enum):
    """What is wrong with a server's answers to a scrape."""

    NONE = "none"
    ERROR_500 = "500"
    """/metrics answers 500."""
    HTML = "html"
    """A proxy's login page, 200."""
    REDIRECT = "redirect"
    """307 to /metrics/ with an empty body."""
    HANG = "hang"
    """Accepted, never answered."""
    CUT = "cut"
    """200, and the body ends inside a label value."""
    DROP = "drop"
    """The connection breaks in the middle of the body."""
    EMPTY = "empty"
    """200 with nothing in it."""
    REFUSE = "refuse"
    """Connections refused."""


LOGIN_PAGE = (
    "<!DOCTYPE html>\n<html><head><title>Sign in (SIMULATED)</title></head>"
    "<body><form action='/login'>Please sign in</form></body></html>\n"
)


def cut_inside_label(body: bytes) -> bytes:
    """Return the first half of a page, ending inside the value of a label."""
    at = body.index(b'model_name="', len(body) // 2)
    return body[: at + len(b'model_name="SIM')]
