"""A recipe by name or from a file, with what it extends and what `--set` changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from speccli.core.errors import UsageError
from speccli.core.recipes import catalog
from speccli.core.recipes.marks import Marks, Path_, merge, read
from speccli.core.recipes.model import Recipe
from speccli.core.recipes.strict import Typed, build, nearest

_DEEPEST = 8


def load(name: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe of this name, or in this file, with `--set` changes laid over it.

    Raises:
        UsageError: no such recipe, or one that is wrong, with the place.
    """
    values, marks = _resolve(name, Path.cwd, ())
    for change in changes:
        path, text = _parsed(change)
        marks = Marks(marks)
        marks[path] = f"--set {'.'.join(path)}"
        values = merge(values, _nested(path, Typed(text)))
    recipe = build(Recipe, values, marks)
    if "fallback" in values:
        # The ladder's own words are needed by few: status and top pay for no time zones.
        from speccli.core.recipes.ladder import check

        check(recipe, marks)
    return recipe


def _resolve(name: str, folder: Any, above: tuple[str, ...]) -> tuple[dict[str, Any], Marks]:
    if name in catalog.names():
        return catalog.values_of(name)
    path = Path(name)
    if not path.is_absolute():
        path = folder() / path
    if not path.is_file():
        hint = nearest(name, catalog.names()).removeprefix("; ") or "specctl recipes list"
        raise UsageError(f"no recipe {name!r}, and no such file", hint=hint)
    return _from_file(path.resolve(), above)


def _from_file(path: Path, above: tuple[str, ...]) -> tuple[dict[str, Any], Marks]:
    if str(path) in above or len(above) >= _DEEPEST:
        chain = " → ".join([*(Path(each).name for each in above), path.name])
        raise UsageError(f"{path}: extends goes round or too deep: {chain}")
    values, marks = read(path)
    base = values.pop("extends", None)
    values.setdefault("name", path.stem)
    if base is None:
        return values, marks
    if not isinstance(base, str):
        raise UsageError(f"{marks.place(('extends',))}: extends is {base!r}; it must be a name")
    try:
        under, below = _resolve(base, lambda: path.parent, (*above, str(path)))
    except UsageError as error:
        if error.message.startswith("no recipe"):
            place = marks.place(("extends",))
            raise UsageError(f"{place}: {error.message}", hint=error.hint) from error
        raise
    return merge(under, values), Marks({**below, **marks})


def _parsed(change: str) -> tuple[Path_, str]:
    key, equals, text = change.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise UsageError(f"--set {change!r} is not KEY=VALUE", hint="write --set draft.K=5")
    return path, text


def _nested(path: Path_, value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return dict(value)


def plain(value: Any) -> Any:
    """A recipe as plain values, in the order of its fields, without what is not set."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = (
            (str(field.metadata.get("key", field.name)), getattr(value, field.name))
            for field in fields(value)
        )
        return {key: plain(each) for key, each in pairs if each is not None and each != {}}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return value
