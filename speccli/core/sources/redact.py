"""What must not leave the machine inside a recording."""

from __future__ import annotations

import re

_SECRET_LABEL = re.compile(
    r"((?:[a-zA-Z0-9_]*(?:token|secret|passw(?:or)?d|api_?key|authorization|credential)"
    r'[a-zA-Z0-9_]*)\s*=\s*)"(?:[^"\\]|\\.)*"',
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|AKIA[A-Z0-9]{16}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*)"
    r"|\bBearer\s+[A-Za-z0-9._~+/=-]{8,}",
)
_URL_USER = re.compile(r"(?<=://)[^/@\s\"]+@")
_URL_KEY = re.compile(
    r"([?&](?:[a-z_-]*(?:key|token|secret|sig|signature|password|credential)[a-z_-]*)=)[^&\s\"]+",
    re.IGNORECASE,
)
_TOKEN_COUNTS = re.compile(r"^(?:[a-z_]*_)?(?:max_|num_)?[a-z_]*tokens?[a-z_]*$")
REMOVED = "REDACTED"


def redact_line(line: str) -> str:
    """A line of a metrics page without secrets in its labels."""
    if '"' not in line:
        return line

    def label(match: re.Match[str]) -> str:
        name = match.group(1).rstrip("= \t")
        value = match.group(0)[len(match.group(1)) + 1 : -1]
        counts = _TOKEN_COUNTS.match(name) and re.fullmatch(r"[\d.]*|None|True|False", value)
        return match.group(0) if counts else f'{match.group(1)}"{REMOVED}"'

    line = _SECRET_LABEL.sub(label, line)
    line = _SECRET_VALUE.sub(REMOVED, line)
    line = _URL_USER.sub("", line)
    return _URL_KEY.sub(rf"\g<1>{REMOVED}", line)
