"""The built-in recipes: families of one target, crossed with methods and GPUs.

A family file holds what is common (`base`), what a GPU decides (`gpus`), what a method decides
(`methods`), and what only one pair of the two does (`cells`). Each recipe is `FAMILY-METHOD-GPU`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from speccli.core.recipes.marks import Marks, merge, read

FOLDER = Path(__file__).parent / "catalog"


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a built-in recipe comes from."""

    family: str
    method: str
    gpu: str


@cache
def names() -> Mapping[str, Cell]:
    """Every built-in recipe, in the order of the families."""
    found = {}
    for family in _families():
        values, _ = _family(family)
        for method in values["methods"]:
            for gpu in values["gpus"]:
                found[f"{family}-{method}-{gpu}"] = Cell(family, method, gpu)
    return found


def values_of(name: str) -> tuple[dict[str, Any], Marks]:
    """A built-in recipe's values, and the lines they stand on.

    Raises:
        KeyError: no such recipe.
    """
    cell = names()[name]
    values, marks = _family(cell.family)
    layers = (
        ("base",),
        ("gpus", cell.gpu),
        ("methods", cell.method),
        ("cells", f"{cell.method}-{cell.gpu}"),
    )
    whole: dict[str, Any] = {}
    places = Marks()
    for layer in layers:
        part: Any = values
        for key in layer:
            part = (part or {}).get(key)
        whole = merge(whole, part or {})
        cut = len(layer)
        places.update({p[cut:]: m for p, m in marks.items() if p[:cut] == layer and p[cut:]})
    return {"name": name, **whole}, places


@cache
def _families() -> tuple[str, ...]:
    return tuple(sorted(p.stem for p in FOLDER.glob("*.yaml") if not p.stem.startswith("_")))


@cache
def _family(name: str) -> tuple[dict[str, Any], Marks]:
    return read(FOLDER / f"{name}.yaml")


@cache
def models() -> Mapping[str, Mapping[str, Any]]:
    """What is known of published models: their config.json, parameters, and from where."""
    values, _ = read(FOLDER / "_models.yaml")
    return values
