"""A mapping into a frozen dataclass, strictly: every key known, every value of its type.

A field's metadata may hold `key` (its name in YAML, where that differs), `least` and `most`.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from speccli.core.errors import UsageError
from speccli.core.recipes.marks import Marks, Path_

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Typed:
    """A value as it was typed at `--set`: text, whose type the field decides."""

    text: str


def build(kind: type[T], values: Mapping[str, Any], marks: Marks, path: Path_ = ()) -> T:
    """An instance of the dataclass `kind`.

    Raises:
        UsageError: with the place, and the nearest spelling.
    """
    hints, keys = _hints(kind), {_key(field): field for field in fields(kind)}  # type: ignore[arg-type]
    made = {}
    for key, value in values.items():
        field = keys.get(str(key))
        if field is None:
            raise wrong(marks, (*path, str(key)), f"unknown key{nearest(str(key), keys)}")
        if value is None or value == Typed("null"):
            continue  # the default
        got = _value(hints[field.name], value, marks, (*path, str(key)))
        _within(got, field.metadata, marks, (*path, str(key)))
        made[field.name] = got
    for key, field in keys.items():
        if field.name not in made and _required(field):
            raise wrong(marks, path, f"{'.'.join((*path, key))} is missing", whole=True)
    return kind(**made)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _key(field: Any) -> str:
    return str(field.metadata.get("key", field.name))


def _required(field: Any) -> bool:
    from dataclasses import MISSING

    return field.default is MISSING and field.default_factory is MISSING


def _within(value: Any, limits: Mapping[str, Any], marks: Marks, path: Path_) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise wrong(marks, path, f"is {value}; it must be a finite number")
    least, most = limits.get("least"), limits.get("most")
    if least is not None and not value >= least:
        raise wrong(marks, path, f"is {value}; at least {least:g}")
    if most is not None and not value <= most:
        raise wrong(marks, path, f"is {value}; at most {most:g}")


def _value(hint: Any, value: Any, marks: Marks, path: Path_) -> Any:
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        inner = next(each for each in get_args(hint) if each is not type(None))
        return _value(inner, value, marks, path)
    if isinstance(value, Typed):
        value = _typed(hint, origin, value, marks, path)
    if is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise wrong(marks, path, "must hold keys of its own")
        return build(hint, value, marks, path)  # type: ignore[arg-type]
    if origin is Literal:
        return _choice(get_args(hint), value, marks, path)
    if origin is tuple:
        return _list(hint, value, marks, path)
    if origin is not None:  # Mapping[str, X]
        return _mapping(get_args(hint), value, marks, path)
    return _scalar(hint, value, marks, path)


def _choice(choices: tuple[str, ...], value: Any, marks: Marks, path: Path_) -> Any:
    if value in choices and not isinstance(value, bool):
        return value
    close = nearest(str(value), [str(each) for each in choices])
    raise wrong(marks, path, f"is {value!r}; one of {', '.join(map(str, choices))}{close}")


def _list(hint: Any, value: Any, marks: Marks, path: Path_) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise wrong(marks, path, f"is {value!r}; it must be a list")
    kinds = get_args(hint)
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise wrong(marks, path, f"is {list(value)!r}; it must have {len(kinds)} values")
    return tuple(
        _value(kind, each, marks, (*path, str(place)))
        for place, (kind, each) in enumerate(zip(kinds, value, strict=True))
    )


def _mapping(hint: tuple[Any, Any], value: Any, marks: Marks, path: Path_) -> dict[str, Any]:
    names, kind = hint
    if not isinstance(value, Mapping):
        raise wrong(marks, path, "must hold keys of its own")
    if get_origin(names) is Literal:
        for key in value:
            if key not in get_args(names):
                close = nearest(str(key), get_args(names))
                raise wrong(marks, (*path, str(key)), f"unknown key{close}")
    return {str(k): _value(kind, v, marks, (*path, str(k))) for k, v in value.items()}


def _scalar(hint: Any, value: Any, marks: Marks, path: Path_) -> Any:
    if hint is Any or hint is object:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            return float(value)
        raise wrong(marks, path, f"has {len(str(abs(value)))} digits; no number here is as large")
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    if hint is str and isinstance(value, int | float):
        raise wrong(marks, path, f"is the number {value}; write it in quotes")
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    raise wrong(marks, path, f"is {value!r}; it must be {names.get(hint, hint.__name__)}")


def _typed(hint: Any, origin: Any, value: Typed, marks: Marks, path: Path_) -> Any:
    text_wanted = hint is str or (
        origin is Literal and all(isinstance(each, str) for each in get_args(hint))
    )
    if text_wanted:
        return value.text
    import yaml

    try:
        return yaml.safe_load(value.text)
    except yaml.YAMLError:
        raise wrong(marks, path, f"{value.text!r} is no value") from None


def wrong(marks: Marks, path: Path_, what: str, *, whole: bool = False) -> UsageError:
    """An error that names its place; `whole`: the message says which key itself."""
    place = marks.place(path)
    name = "" if whole else f"{'.'.join(path)} "
    if not whole and what.startswith("unknown key"):
        head, _, rest = what.partition("key")
        name, what = "", f"{head}key {'.'.join(path)}{rest}"
    return UsageError(f"{place}: {name}{what}" if place else f"{name}{what}")


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    if not match:
        lower = {each.lower(): each for each in known}
        match = [lower[name.lower()]] if name.lower() in lower else []
    return f"; did you mean {match[0]}?" if match else ""
