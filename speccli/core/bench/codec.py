"""Frozen dataclasses to JSON and back, by their type hints.

Reading is strict about what is there (a wrong type is named with its place) and tolerant of what is
not known: a newer specctl may have added keys.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def whole(text: str) -> int | float:
    """An integer of a JSON document; infinity where no float is as large, which is no number."""
    return int(text) if len(text) < _DIGITS else float(text)


_DIGITS = 300


class FormError(ValueError):
    """A value is not of the form; the message begins with its place."""


def encode(value: Any) -> Any:
    """Plain JSON values of a dataclass, mapping or sequence."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    return value


def decode(kind: type[T], value: Any, place: str = "") -> T:
    """An instance of the dataclass `kind`.

    Raises:
        FormError: a required key is missing, or a value has another type.
    """
    if not isinstance(value, Mapping):
        raise FormError(f"{place or 'the document'} is {_named(value)}, not an object")
    hints = _hints(kind)  # type: ignore[arg-type]
    made = {}
    for field in fields(kind):  # type: ignore[arg-type]
        at = f"{place}.{field.name}" if place else field.name
        if field.name in value:
            made[field.name] = _value(hints[field.name], value[field.name], at)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise FormError(f"{at} is missing")
    return kind(**made)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any, place: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in {Union, types.UnionType}:
        if value is None and type(None) in inner:
            return None
        return _value(next(each for each in inner if each is not type(None)), value, place)
    if origin is Literal:
        if value not in inner:
            raise FormError(
                f"{place} is {value!r}; it must be one of: {', '.join(map(str, inner))}"
            )
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise FormError(f"{place} is {_named(value)}, not a list")
        return tuple(_value(inner[0], each, f"{place}[{i}]") for i, each in enumerate(value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise FormError(f"{place} is {_named(value)}, not an object")
        return {key: _value(inner[1], each, f"{place}.{key}") for key, each in value.items()}
    if is_dataclass(hint):
        return decode(hint, value, place)  # type: ignore[arg-type]
    return _scalar(hint, value, place)


def _scalar(hint: Any, value: Any, place: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    number = number and math.isfinite(value)  # Python's JSON knows NaN, and JSON does not
    if hint is float and number:
        return float(value)
    if hint is int and number and value == int(value):
        return int(value)
    if hint in {str, bool} and isinstance(value, hint):
        return value
    raise FormError(f"{place} is {_named(value)}; it must be {_WORDS.get(hint, hint)}")


_WORDS = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}


def _named(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
