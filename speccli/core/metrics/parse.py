"""The Prometheus text format, exactly, one line at a time.

Text format 0.0.4 as vLLM and SGLang write it. Samples are known by their own names: a family name
cannot be trusted (client_python strips `_total` from it), and `_created` gauges share prefixes with
the counters they belong to (client_python #668).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Possessive (`++`, `*+`): a label of megabytes costs milliseconds, and nothing is ever tried again.
_SAMPLE = re.compile(
    rb"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)"
    rb'(?:[ \t]*\{((?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+)\}[ \t]*|[ \t]+)'
    rb"([^ \t]+)(?:[ \t]+(-?[0-9]+))?[ \t]*",
    re.DOTALL,
)
_LABEL = re.compile(
    rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]++|\\.)*+)"[ \t]*(,|$)', re.DOTALL
)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_UNESCAPED = {b"n": b"\n", b"\\": b"\\", b'"': b'"'}
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)")
_SPECIAL = {
    b"nan": float("nan"),
    b"+inf": float("inf"),
    b"inf": float("inf"),
    b"-inf": float("-inf"),
}


class LineError(ValueError):
    """A line that is not a sample, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Series:
    """One sample's name and labels."""

    name: str
    labels: dict[str, str]


def parse_sample(line: bytes) -> tuple[Series, float]:
    """One sample line, without its newline; a timestamp is read and dropped.

    Raises:
        LineError: not a sample.
    """
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise LineError(_what_is_wrong(line))
    name, labels, value, _timestamp = match.groups()
    return Series(name.decode(), _parse_labels(labels or b"")), parse_value(value)


def parse_value(text: bytes) -> float:
    """A sample value; NaN and the infinities are values of the format.

    Raises:
        LineError: not a number (Python's own spellings such as `1_000` are refused too).
    """
    if _NUMBER.fullmatch(text):
        return float(text)
    special = _SPECIAL.get(text.lower())
    if special is None:
        raise LineError(f"value {_show(text)} is not a number")
    return special


def name_of(line: bytes) -> bytes:
    """The sample name a line begins with; empty for a comment, a blank line or rubbish."""
    match = re.match(rb"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)", line)
    return match.group(1) if match else b""


def _parse_labels(text: bytes) -> dict[str, str]:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        if text[at:].isspace():
            break
        match = _LABEL.match(text, at)
        if match is None:
            raise LineError(f"label {_show(text[at:])} cannot be read")
        key, raw, _comma = match.groups()
        value = _ESCAPE.sub(lambda m: _UNESCAPED.get(m.group(1), m.group(0)), raw)
        labels[key.decode()] = value.decode("utf-8", "replace")
        at = match.end()
    return labels


def _what_is_wrong(line: bytes) -> str:
    if line.count(b'"') % 2:
        return f"{_show(line)} ends inside a label value"
    if b"{" in line and b"}" not in line:
        return f"{_show(line)} ends inside the labels"
    return f"{_show(line)} is not a sample"


def _show(text: bytes) -> str:
    shown = text[:40].decode("utf-8", "replace")
    return repr(shown + "…" if len(text) > 40 else shown)
