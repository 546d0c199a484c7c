"""A bench's result as JSON (`specctl.bench/v1`): written, read back, checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from speccli.core.bench.codec import FormError, decode, encode, whole
from speccli.core.bench.results import SCHEMA, Result, Row, Samples
from speccli.core.errors import UsageError, unwritable
from speccli.core.state import StateError, write_atomic


def to_json(result: Result) -> dict[str, Any]:
    """The document, `schema` first."""
    document: dict[str, Any] = encode(result)
    texts = {} if result.texts is None else {"texts": document["texts"]}
    head = {"schema": document.pop("schema")}
    document.pop("texts")
    return head | document | texts


def from_json(document: Any) -> Result:
    """The result in a document.

    Raises:
        FormError: it is not of the form, with the place.
    """
    if not isinstance(document, Mapping):
        raise FormError("it is not a JSON object")
    told = document.get("schema")
    if told != SCHEMA:
        raise FormError(f"its schema is {told!r}, not {SCHEMA!r}")
    result = decode(Result, document)
    consistent(result)
    return result


def consistent(result: Result) -> None:
    """See to what types alone do not say.

    Raises:
        FormError: it is not so, with the place.
    """
    arms = [arm.name for arm in result.arms]
    if len(set(arms)) != len(arms):
        raise FormError("arms: two have the same name")
    seen: set[Any] = set()
    for i, row in enumerate(result.rows):
        if row.arm not in arms:
            raise FormError(f"rows[{i}].arm is {row.arm!r}, which is none of the arms")
        if (row.batch is None) == (row.rate is None):
            raise FormError(f"rows[{i}] must have a batch or a rate, and not both")
        if row.key in seen:
            raise FormError(f"rows[{i}] is there twice ({row.label})")
        seen.add(row.key)
    for i, arm in enumerate(result.arms):
        if arm.gpu_count < 1:
            raise FormError(f"arms[{i}].gpu_count is {arm.gpu_count}; it must be at least 1")
    for name in ("load", "arms"):
        _in_range(getattr(result, name), name)
    for i, row in enumerate(result.rows):
        _in_range(row, f"rows[{i}]")
        _measured(row, f"rows[{i}]")


def fault(row: Row) -> str | None:
    """Why a file with this row would not be read; None where it would."""
    try:
        _in_range(row, "its row")
        _measured(row, "its row")
    except FormError as error:
        return f"it cannot have been measured so: {error}"
    return None


def _in_range(value: Any, name: str) -> None:
    """That every number in it is such as can be.

    Raises:
        FormError: one is not, with its place.
    """
    for place, number in _numbers(value, name):
        if number < 0 and not any(each in place for each in _SIGNED):
            raise FormError(f"{place} is {number}; it must not be negative")
        if not abs(number) <= _MOST:
            raise FormError(f"{place} is {number:g}; nothing measured is so large")


def _measured(row: Row, place: str) -> None:
    """That a row's load and times are such as can be measured.

    Raises:
        FormError: they are not.
    """
    lists = [getattr(row.samples, each.name) for each in fields(Samples)]
    if len({len(each) for each in lists if each}) > 1:
        raise FormError(f"{place}.samples has lists of different lengths")
    for name, load in (("batch", row.batch), ("rate", row.rate), ("duration_s", row.duration_s)):
        if load == 0 and (name != "duration_s" or row.requests):
            raise FormError(f"{place}.{name} is 0; it must be above 0")
    for i, e2e in enumerate(row.samples.e2e_s):
        at = f"{place}.samples"
        if e2e == 0:
            raise FormError(f"{at}.e2e_s[{i}] is 0; no answer takes no time")
        if row.samples.ttft_s and row.samples.ttft_s[i] > e2e + _ROUNDING_S:
            first = row.samples.ttft_s[i]
            raise FormError(f"{at}.ttft_s[{i}] is {first:g}, after the answer's end ({e2e:g})")
    for name, share in (
        ("acceptance.rate", row.acceptance.rate),
        ("gpu_utilisation", row.gpu_utilisation),
    ):
        if share.value is not None and share.value > 1:
            raise FormError(f"{place}.{name} is {share.value:g}; it is a share, at most 1")


_SIGNED = (".low", ".gpu_memory_bytes")
"""Fields that may hold a number under 0: an interval's end, a difference."""
_UNREAD = frozenset({"start_s", "client"})
"""And those whose every number may: what was due before it was asked for, a timer that is early."""
_MOST = 1e15
_ROUNDING_S = 0.001


def _numbers(value: Any, place: str) -> Iterator[tuple[str, float]]:
    """The numbers in a value, with their places."""
    if isinstance(value, int | float):
        yield place, value
    elif isinstance(value, tuple):
        for i, each in enumerate(value):
            yield from _numbers(each, f"{place}[{i}]")
    elif is_dataclass(value):
        for field in fields(value):
            if field.name not in _UNREAD:
                yield from _numbers(getattr(value, field.name), f"{place}.{field.name}")


def read(path: Path) -> Result:
    """A result from its file.

    Raises:
        UsageError: the file cannot be read, or is not a bench result.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_int=whole)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        hint = "`specctl bench run --out FILE` writes one"
        raise UsageError(f"{path} is not JSON: {error}", hint=hint) from error
    try:
        return from_json(document)
    except FormError as error:
        raise UsageError(
            f"{path} is not a bench result: {error}",
            hint="`specctl bench run` writes one, `specctl bench import` makes one of other tools'",
        ) from error


def write(path: Path, result: Result) -> None:
    """Replace the file by this result, wholly or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    text = json.dumps(to_json(result), ensure_ascii=False, allow_nan=False)
    try:
        write_atomic(path, text + "\n")
        path.chmod(0o644)
    except StateError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        raise unwritable(error.__cause__, path, UsageError, hint="give --out FILE") from error
