"""What must not leave the machine inside a recording."""

from __future__ import annotations

import re
from functools import lru_cache

_SECRET_LABEL = re.compile(
    # From the start of the name only, and of names of a name's length: a line may have megabytes.
    r"(?<![a-zA-Z0-9_])([a-zA-Z0-9_]{0,64}?(?:token|secret|passw(?:or)?d|api_?key|authorization"
    r'|credential)[a-zA-Z0-9_]{0,64}\s{0,8}=\s{0,8})"((?:[^"\\]|\\.)*)"',
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|AKIA[A-Z0-9]{16}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*)"
    r"|\b[Bb]earer\s{1,8}[A-Za-z0-9._~+/=-]{8,}"
    r"|\b[Aa]uthorization:\s{0,8}\w{1,16}\s{1,8}[^\s\"]+",
)
_URL_USER = re.compile(r"(?<=://)[^/\s\"?#]{1,1024}@")
_URL_KEY = re.compile(
    r"([?&](?:[a-z_-]{0,64}?(?:key|token|secret|sig|signature|password|credential)[a-z_-]{0,64})=)"
    r"[^&\s\"]+",
    re.IGNORECASE,
)
_TOKENIZER = re.compile(r"(?:[a-z0-9]+_)*tokenizer(?:_[a-z0-9]+)*", re.IGNORECASE)
_TOKEN_COUNT = re.compile(r"[a-z0-9_]*tokens?(?:_[a-z0-9_]+)?", re.IGNORECASE)
_COUNT = re.compile(r"\d{1,12}(?:\.\d*)?|None|True|False", re.IGNORECASE)
REMOVED = "REDACTED"


def redact_line(line: str) -> str:
    """A line of a metrics page without secrets in its labels."""
    line = _SECRET_LABEL.sub(_label, line)
    return redact(line)


def redact_page(page: str) -> str:
    """Every line of a metrics page without secrets.

    A line is the same at every scrape but for its value, which is a number and no secret: what
    stands before it is looked at once.
    """
    return "\n".join(map(_redact_known, page.split("\n")))


def _redact_known(line: str) -> str:
    head, _, value = line.rpartition(" ")
    if len(head) > _LONGEST_KNOWN:
        return redact_line(line)
    if value and head[-1:] == "}" and not value.strip("0123456789.+-eE"):
        return f"{_known(head)} {value}"
    if line[:1] == "#":
        return _known(line)
    return redact_line(line)


_known = lru_cache(maxsize=1 << 15)(redact_line)
_LONGEST_KNOWN = 1000
"""Characters of a line worth remembering."""


def redact(text: str) -> str:
    """Any text without the tokens and URL credentials that can be known by their form."""
    text = _SECRET_VALUE.sub(REMOVED, text)
    text = _URL_USER.sub("", text)
    return _URL_KEY.sub(rf"\g<1>{REMOVED}", text)


def redact_url(url: str) -> str:
    """What someone gave as a URL, without credentials even where it is not quite one."""
    scheme, mark, rest = url.rpartition("://") if "://" in url else ("", "", url)
    return redact(f"{scheme}{mark}{rest.rpartition('@')[2]}")


def _label(match: re.Match[str]) -> str:
    name, value = match.group(1).rstrip("= \t"), match.group(2)
    told = _TOKENIZER.fullmatch(name) or (
        # `max_num_batched_tokens="8192"`; a lone `token="8192"` may be a code.
        _TOKEN_COUNT.fullmatch(name) and name.lower() != "token" and _COUNT.fullmatch(value)
    )
    return match.group(0) if told else f'{match.group(1)}"{REMOVED}"'
