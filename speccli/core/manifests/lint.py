"""What OpenAPI schemas do not catch. Stub until the next commit fills it."""

from __future__ import annotations

from typing import Any


def lint(objects: list[dict[str, Any]]) -> None:
    """Nothing yet."""
