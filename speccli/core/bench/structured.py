"""Answers held to a JSON schema."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speccli.core.bench.datasets import Prompts
from speccli.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that every answer is held to."""

    words: str
    """Its file and its hash."""
    schema: Mapping[str, Any]

    def over(self, dataset: Prompts) -> Prompts:
        """The dataset with it; a prompt's own goes first."""
        return replace(
            dataset,
            prompts=tuple(replace(p, schema=p.schema or self.schema) for p in dataset.prompts),
        )


def read(path: Path) -> Schema:
    """The schema in a file.

    Raises:
        UsageError: it cannot be read, or is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text)
    except OSError as error:
        raise UsageError(f"--structured: cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--structured: {path} is not JSON: {error}") from error
    if not isinstance(value, dict) or not ({"type", "properties", "$ref", "anyOf"} & value.keys()):
        raise UsageError(
            f"--structured: {path} is no JSON schema",
            hint='it looks like {"type": "object", "properties": {…}}',
        )
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
    return Schema(f"{path.name}, sha256 {digest[:16]}", value)
