"""The built-in recipes as rows."""

from __future__ import annotations

from speccli.core.recipes import catalog
from speccli.core.recipes.load import load


def listed(match: str | None = None) -> list[dict[str, str]]:
    """`specctl recipes list -o json`."""
    names = [name for name in catalog.names() if match is None or match in name]
    rows = []
    for name in names:
        recipe = load(name)
        rows.append(
            {
                "name": name,
                "target": recipe.target.model,
                "method": recipe.draft.method,
                "gpu": f"{recipe.hardware.count} x {recipe.hardware.gpu}",
                "summary": recipe.summary,
            }
        )
    return rows
