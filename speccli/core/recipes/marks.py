"""YAML into plain values, and where each key stood: so that an error can name its line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccli.core.errors import UsageError

Path_ = tuple[str, ...]
_MOST_NODES = 20_000


class Marks(dict[Path_, str]):
    """`file:line` of each key, by its path."""

    def place(self, path: Path_) -> str:
        """Where the key stood, or the nearest one above it."""
        while path and path not in self:
            path = path[:-1]
        return self.get(path, "")


def read(path: Path) -> tuple[dict[str, Any], Marks]:
    """A YAML file that holds a mapping.

    Raises:
        UsageError: it cannot be read, is not YAML, has a key twice, or holds no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    return parse(text, str(path))


def parse(text: str, name: str) -> tuple[dict[str, Any], Marks]:
    """Like `read`, of text; `name` is what errors call it."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    marks = Marks()
    try:
        node = loader.get_single_node()
        if node is None:
            raise UsageError(f"{name} is empty")
        _mark(node, (), name, marks, [0])
        value = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{name}{line}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{name}: not YAML: {str(error).splitlines()[0]}") from error
    finally:
        loader.dispose()
    if not isinstance(value, dict):
        raise UsageError(f"{name} holds no mapping", hint="a recipe begins with its keys")
    return value, marks


def _mark(node: Any, path: Path_, name: str, marks: Marks, seen: list[int]) -> None:
    seen[0] += 1
    if seen[0] > _MOST_NODES:
        raise ValueError("too many values (aliases that unfold?)")
    if node.id == "sequence":
        for place, each in enumerate(node.value):
            _mark(each, (*path, str(place)), name, marks, seen)
    if node.id != "mapping":
        return
    keys = set()
    for key, value in node.value:
        where = f"{name}:{key.start_mark.line + 1}"
        if key.id != "scalar" or key.tag.endswith(":merge"):
            continue
        if key.value in keys:
            raise UsageError(f"{where}: {key.value} stands there twice")
        keys.add(key.value)
        marks[(*path, key.value)] = where
        _mark(value, (*path, key.value), name, marks, seen)


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `under`: mappings key by key, anything else whole."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = merge(below, value) if both else value  # type: ignore[arg-type]
    return merged
