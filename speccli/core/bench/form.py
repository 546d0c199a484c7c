"""A bench's result as JSON (`specctl.bench/v1`): written, read back, checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from speccli.core.bench.codec import FormError, decode, encode, whole
from speccli.core.bench.results import SCHEMA, Result, Samples
from speccli.core.errors import UsageError
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
        lists = [getattr(row.samples, each.name) for each in fields(Samples)]
        if len({len(each) for each in lists if each}) > 1:
            raise FormError(f"rows[{i}].samples has lists of different lengths")
    for name in ("load", "arms", "rows"):
        for place, number in _negative(getattr(result, name), name):
            raise FormError(f"{place} is {number}; it must not be negative")


_SIGNED = frozenset({"low", "start_s", "gpu_memory_bytes", "client"})
"""Fields that may hold a number under 0: an interval's end, differences, a timer that is early."""


def _negative(value: Any, place: str) -> Iterator[tuple[str, float]]:
    """Numbers under 0 in a value, with their places."""
    if isinstance(value, int | float):
        if value < 0:
            yield place, value
    elif isinstance(value, tuple):
        for i, each in enumerate(value):
            yield from _negative(each, f"{place}[{i}]")
    elif is_dataclass(value):
        for field in fields(value):
            if field.name not in _SIGNED:
                yield from _negative(getattr(value, field.name), f"{place}.{field.name}")


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
        raise UsageError(error.message, hint="give --out FILE") from error
