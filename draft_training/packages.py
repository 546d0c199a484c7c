"""What the stages need of a Python: found out before the first of them, and not hours later."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence

from draft_training.events import Failed

NEEDED: Mapping[str, Sequence[str]] = {
    "prompts": ("transformers",),
    "answers": ("vllm",),
    "train": ("torch", "transformers", "speculators"),
    "export": ("torch", "safetensors"),
}
_SINCE = {"speculators": (0, 9)}
"""Its model classes and losses have moved before that."""


def need(stages: Sequence[str]) -> None:
    """That all of these can run here; nothing heavy is imported for that.

    Raises:
        Failed: a package is missing, or too old.
    """
    for stage in stages:
        for name in NEEDED.get(stage, ()):
            if importlib.util.find_spec(name) is None:
                _missing(stage, f"no {name} in {sys.executable}", name)
            if (told := _older(name)) is not None:
                _missing(stage, f"{name} {told} in {sys.executable} is too old", name)


def _missing(stage: str, message: str, name: str) -> None:
    least = ".".join(map(str, _SINCE.get(name, ())))
    what = f"'{name}>={least}'" if least else name
    raise Failed(
        "not-installed",
        f"{message}: stage {stage} needs it",
        f"install {what} there, or give another Python",
    )


def _older(name: str) -> str | None:
    """Its version, where that is too old; None where it is not, or cannot be told."""
    least = _SINCE.get(name)
    if least is None:
        return None
    try:
        told = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    return told if tuple(map(int, re.findall(r"\d+", told)[: len(least)])) < least else None
