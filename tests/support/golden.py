"""Files that hold an output byte for byte; `UPDATE_GOLDEN=1 pytest …` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data" / "golden"


def assert_golden(name: str, text: str) -> None:
    """The text is what the file says."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name} differs; UPDATE_GOLDEN=1 rewrites it"
